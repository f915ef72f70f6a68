//! Pods as far as policies use them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use types::control::{Member, NamedPort};
use types::meta::{Labels, Protocol};
use types::pod::Pod;
use types::{InvalidField, ObjectName};

/// A running Pod with its own network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The labels of the Pod.
    pub labels: Labels,
    /// The Node of the Pod; empty until it is scheduled.
    pub node: String,
    /// The uid that the runtime of the Pod has.
    pub uid: String,
    /// Name, addresses and named ports.
    pub member: Member,
}

/// The annotation of a mirror Pod with the uid of its static Pod, which is the one that the runtime uses.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Endpoint {
    /// Reads a Pod. The error is the name of a Pod that uses the host network or has terminated. Invalid addresses are reported, and
    /// the others are kept.
    pub fn read(pod: Pod) -> (Result<Self, ObjectName>, Vec<InvalidField>) {
        let mut problems = Vec::new();
        if pod.spec.host_network || pod.is_finished() {
            return (Err(pod.metadata.object_name()), problems);
        }
        let mut addresses: Vec<IpAddr> = Vec::with_capacity(pod.addresses().count());
        for text in pod.addresses() {
            match text.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => problems.push(InvalidField {
                    kind: "Pod",
                    name: pod.metadata.object_name(),
                    field: "status.podIPs".to_owned(),
                    problem: format!("`{text}` is not an IP address"),
                }),
            }
        }
        let ports = named_ports(&pod);
        let name = ObjectName { namespace: pod.metadata.namespace, name: pod.metadata.name };
        let member = Member { pod: name, addresses, ports };
        let (labels, mut annotations) = (pod.metadata.labels, pod.metadata.annotations);
        let uid = annotations.remove(MIRROR).unwrap_or(pod.metadata.uid);
        (Ok(Self { labels, node: pod.spec.node_name, uid, member }), problems)
    }

    /// The label set that selectors are matched with: the labels, and a key for each named port.
    pub(crate) fn attributes(&self) -> Cow<'_, Labels> {
        if self.member.ports.is_empty() {
            return Cow::Borrowed(&self.labels);
        }
        let mut attributes = self.labels.clone();
        for port in &self.member.ports {
            attributes.insert(port_key(port.protocol, &port.name), String::new());
        }
        Cow::Owned(attributes)
    }
}

/// The key for a named port. Labels cannot contain a colon, so it is no label.
pub(crate) fn port_key(protocol: Protocol, name: &str) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    format!("port:{protocol}:{name}")
}

fn named_ports(pod: &Pod) -> Vec<NamedPort> {
    let named = pod.spec.containers.iter().flat_map(|container| &container.ports).filter(|port| !port.name.is_empty());
    let by_name: BTreeMap<(Protocol, &str), u16> =
        named.map(|port| ((port.protocol, port.name.as_str()), port.container_port)).collect();
    let port =
        |((protocol, name), number): ((Protocol, &str), u16)| NamedPort { protocol, name: name.to_owned(), number };
    by_name.into_iter().map(port).collect()
}
