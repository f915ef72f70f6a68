//! Parses ExternalEntities, which are peers of rules.

use types::antrea::ExternalEntity;
use types::control::{Member, NamedPort};
use types::meta::{Labels, WrittenProtocol};
use types::{InvalidField, ObjectName};

use super::Problems;

/// A parsed ExternalEntity. Invalid addresses and ports are left out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct EntityReading {
    pub(crate) labels: Labels,
    /// As a peer of rules, like a Pod.
    pub(crate) member: Member,
}

impl EntityReading {
    /// Parses an ExternalEntity, and returns its problems.
    pub(crate) fn new(name: &ObjectName, entity: &ExternalEntity) -> (Self, Vec<InvalidField>) {
        let mut problems = Problems::new("ExternalEntity", name);
        problems.has_no_unknown(&entity.spec.unknown, "is an unknown field; it has no effect", || "spec".to_owned());
        let mut member = Member { pod: name.clone(), ..Member::default() };
        for (n, endpoint) in entity.spec.endpoints.iter().enumerate() {
            match endpoint.ip.parse() {
                Ok(address) => member.addresses.push(address),
                Err(_) => {
                    let problem = format!("`{}` is not an IP address; it is left out", endpoint.ip);
                    problems.report(format!("spec.endpoints[{n}].ip"), problem);
                }
            }
        }
        for (n, port) in entity.spec.ports.iter().enumerate().filter(|(_, port)| !port.name.is_empty()) {
            let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
            match (&port.protocol, number) {
                (WrittenProtocol::Known(protocol), Some(number)) => {
                    member.ports.push(NamedPort { protocol: *protocol, name: port.name.clone(), number });
                }
                (WrittenProtocol::Known(_), None) => {
                    problems.report(format!("spec.ports[{n}].port"), "needs a number from 1 to 65535; it is left out");
                }
                (WrittenProtocol::Other(text), _) => {
                    let problem = format!("`{text}` is not TCP, UDP or SCTP; it is left out");
                    problems.report(format!("spec.ports[{n}].protocol"), problem);
                }
            }
        }
        // A name occurs once per protocol; the first one counts.
        let mut ports: Vec<NamedPort> = Vec::new();
        for port in std::mem::take(&mut member.ports) {
            if !ports.iter().any(|other| (other.protocol, &other.name) == (port.protocol, &port.name)) {
                ports.push(port);
            }
        }
        ports.sort();
        member.ports = ports;
        (Self { labels: entity.metadata.labels.clone(), member }, problems.found)
    }
}
