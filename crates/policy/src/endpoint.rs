//! Pods as policies see them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use types::control::{Member, NamedPort};
use types::meta::{Labels, Protocol};
use types::pod::Pod;
use types::{InvalidField, ObjectName};

/// A Pod that has a network of its own, and runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its labels.
    pub labels: Labels,
    /// The Node it runs on; empty until it is scheduled.
    pub node: String,
    /// What tells it from others of its name.
    pub uid: String,
    /// Its name, its addresses and its named ports.
    pub member: Member,
}

/// A kubelet's own Pod has another uid for its runtime than the API's image of it, which says here what that is.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Endpoint {
    /// Reads a Pod. Of one on the Node's network or at its end, which is no end of any connection, only the name is left; of
    /// addresses that cannot be read, the others are kept.
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
                    problem: format!("`{text}` is not an address"),
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

    /// What it can be selected by: its labels, and keys for the names of its ports.
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

/// A key that stands for the name of a port; as labels have no colons, it is none of theirs.
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
