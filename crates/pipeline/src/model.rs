//! Inputs of the compilers: descriptions of a Node, its Pods, peers, Services and rules. Callers have validated them.

mod node;
mod policy;
mod service;

pub use node::{Address, Families, Features, Gateway, Node, Peer, PeerPath, Pod, Uplink};
pub use policy::{Applied, Direction, IpBlock, Ports, Protocol, Rule, RuleAction, RuleKind};
pub use proxy::{Endpoint, Frontend, FrontendKind};
pub use service::{Affinity, EndpointSet, ServiceFrontend, ServiceGroup};
pub use types::Mac;
pub use types::network::{Datapath, Mode};
