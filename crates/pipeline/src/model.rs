//! Inputs of the compilers: descriptions of a Node, its Pods, peers, Services and rules. Callers have validated them.

mod node;
mod policy;
mod service;

pub use node::{Address, Datapath, Families, Features, Gateway, Mode, Node, Peer, PeerPath, Pod, Uplink};
pub use policy::{Applied, Direction, IpBlock, Ports, Protocol, Rule, RuleAction, RuleKind};
pub use service::{Affinity, Endpoint, EndpointSet, Frontend, FrontendKind, ServiceGroup};
pub use types::Mac;
