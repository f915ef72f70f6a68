//! The agent's brain: computes the desired state of the switch and the host from cluster state.
//!
//! *Role.* [`Brain`] takes one [`Event`] after the other and keeps two descriptions up to date: the flows and groups of the
//! bridge ([`Brain::switch`]) and the addresses, routes, neighbours and firewall of the host ([`Brain::host`]). It also says
//! which connections are stale ([`Brain::connections`]) and what health checks report to load balancers
//! ([`Brain::health_checks`]). The agent applies all of them.
//!
//! *Invariants.* The descriptions depend on the current state only, never on the order of events. An event recomputes what
//! it affects and nothing else. Services are not rendered before the initial sync of Services and EndpointSlices, so that a
//! restart never sends a connection to a wrong endpoint. A Pod is connected only after the controller has seen it, and its
//! policies are in the same bundle or an earlier one. Nothing in the switch is swept before the initial sync of every source.
//! Invalid input becomes a [`Problem`] that names the object and the field, and does not affect other objects.
//!
//! *Not here.* Sockets, the kernel and the clock (crates `ovs`, `host`, `k8s`); how a flow looks (crate `pipeline`).

mod addressing;
mod attachments;
mod brain;
mod controller_link;
mod crowding;
pub mod database;
mod effect;
mod event;
mod host;
mod owner;
mod peers;
mod policies;
mod refusal;
mod services;
mod underlay;

pub use addressing::{Own, local_addresses, node_addresses, pod_cidrs, reserved, transport_addresses};
pub use attachments::{AddRequest, AttachmentId, CallId, CniError, CniErrorKind, interface_name};
pub use brain::{Brain, Problem};
pub use crowding::{Excess, Load, Tracked, crowding};
pub use effect::{Effect, Level, Notice};
pub use event::{
    AllocationError, Change, CniEvent, CommitError, ControllerEvent, Discovery, Event, Interface, PortEvent, Source,
    SwitchEvent, Time,
};
pub use owner::{Owner, ServiceKey};
pub use peers::{ControlEndpoints, PeerNode, Survey, survey};
pub use policies::RuleName;
pub use refusal::{NotNow, Refusals, refusal};
pub use services::{Connections, Versions};
pub use underlay::ControlPath;
