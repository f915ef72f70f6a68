//! Whose flows and groups those in the switch are.

use std::fmt;
use std::sync::Arc;

use delta::{StableHasher, StableKey};
use types::ObjectName;
use types::meta::Protocol;

/// A port of a Service in one family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServiceKey {
    /// The Service.
    pub service: ObjectName,
    /// The port's name; empty if it has none.
    pub port: String,
    /// The port's protocol.
    pub protocol: Protocol,
    /// Whether of IPv6.
    pub ipv6: bool,
}

impl ServiceKey {
    /// The key of a port.
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

/// Who wants a flow or a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    /// The Node itself.
    Node,
    /// A Pod, by the name of its interface.
    Interface(String),
    /// Another Node.
    Peer(String),
    /// A Service; all its flows have it in common.
    Service(Arc<ServiceKey>),
    /// The rule of a policy with this number.
    Rule(u32),
    /// The policies that isolate a Pod, by the name of its interface.
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
