//! What the compilers know of a Node, its Pods, peers, Services and rules: values, checked where they enter.

mod node;
mod policy;
mod service;

pub use node::{Address, Datapath, Families, Features, Gateway, Mode, Node, Peer, PeerPath, Pod, Uplink};
pub use policy::{Applied, Direction, IpBlock, Ports, Protocol, Rule, RuleAction, RuleKind};
pub use service::{Affinity, Endpoint, EndpointSet, Frontend, FrontendKind, ServiceGroup};
pub use types::Mac;
