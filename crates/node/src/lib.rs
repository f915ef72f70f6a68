//! The agent's brain: what is known of the cluster becomes what the switch and the host should hold.
//!
//! *Role.* [`Brain`] takes what happens, one [`Event`] after the other, and keeps two descriptions up to date: the flows and
//! groups of the bridge ([`Brain::switch`]) and the addresses, routes, neighbours and firewall of the host ([`Brain::host`]).
//! Beside them it says which connections are out of date ([`Brain::connections`]) and what load balancers are told
//! ([`Brain::health_checks`]). Whoever owns it carries them out.
//!
//! *Invariants.* The descriptions depend on what is true now, never on the order in which it became known. An event recompiles
//! what it touches and nothing else. Services are not compiled before all of them and all their endpoints are known, so that a
//! restart never leads a connection astray. A Pod is connected only when the controller has seen it, and the policies that it named
//! are in the same bundle or before. Nothing in the switch is swept before every source is in sync. What cannot be understood is a
//! [`Problem`] that names the object and the field, and the rest works.
//!
//! *Not here.* Sockets, the kernel and the clock (crates `ovs`, `host`, `k8s`); how a flow looks (crate `pipeline`).

mod addressing;
mod brain;
mod event;
mod host;
mod owner;
mod peers;
mod policies;
mod refusal;
mod services;

pub use addressing::{Own, local_addresses, node_addresses, pod_cidrs, reserved, transport_addresses};
pub use brain::{Brain, Problem};
pub use event::{Change, Event, Interface, Source};
pub use owner::{Owner, ServiceKey};
pub use peers::{PeerNode, peers};
pub use policies::rule_model;
pub use refusal::refusal;
pub use services::{Connections, Rendered, Services, Versions};
