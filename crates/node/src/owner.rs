//! Owners of flows and groups in the switch.

use std::fmt;
use std::sync::Arc;

use delta::{StableHasher, StableKey};
use types::ObjectName;
use types::meta::Protocol;

/// A Service port in one address family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServiceKey {
    /// Namespace and name of the Service.
    pub service: ObjectName,
    /// Name of the port; empty if it has none.
    pub port: String,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Whether it is the IPv6 family.
    pub ipv6: bool,
}

impl ServiceKey {
    /// The key of a computed Service port.
    pub fn of(port: &proxy::ServicePort) -> Arc<Self> {
        let (service, name) = (port.service.clone(), port.name.clone());
        Arc::new(Self { service, port: name, protocol: port.protocol, ipv6: port.ipv6 })
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if self.port.is_empty() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl StableKey for ServiceKey {
    fn feed(&self, hash: &mut StableHasher) {
        self.service.namespace.feed(hash);
        self.service.name.feed(hash);
        self.port.feed(hash);
        self.protocol.number().feed(hash);
        u8::from(self.ipv6).feed(hash);
    }
}

/// The owner of a flow or a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    /// The Node itself: flows that every Node has.
    Node,
    /// A Pod, by the name of its interface.
    Interface(String),
    /// Another Node, by name.
    Peer(String),
    /// A Service port; all its flows and groups have this owner.
    Service(Arc<ServiceKey>),
    /// A policy rule, by number.
    Rule(u32),
    /// The isolation of a Pod by policies, by the name of its interface.
    Isolation(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Node => f.write_str("Node"),
            Owner::Interface(name) => write!(f, "interface {name}"),
            Owner::Peer(name) => write!(f, "Node {name}"),
            Owner::Service(key) => write!(f, "Service {key}"),
            Owner::Rule(id) => write!(f, "rule {id}"),
            Owner::Isolation(name) => write!(f, "isolation of interface {name}"),
        }
    }
}
