//! The agent's brain: decides everything that an agent does, from its events.
//!
//! *Role.* [`Brain::step`] takes [`Event`]s and keeps three descriptions of desired state up to date: flows and groups of the bridge
//! ([`Brain::flows`], [`Brain::bundle`]), the host's addresses, routes, neighbours and firewall ([`Brain::host`]), and the bridge with
//! its ports in OVSDB ([`Brain::database`]); where tunnels end in userspace, also the transport bridge ([`Brain::tunnels`]). It emits requests to the rim ([`Effect`]), which answers them by events, and says when it
//! wants to be woken up ([`Brain::wake_at`]). A [`recording`] of the events can be replayed.
//!
//! *Invariants.* Equal events at equal times give equal results. The descriptions depend on the current inputs, not on the order of
//! events, except for history that [`Resume`] lists: a Pod that the controller has seen once stays connected, and numbers stay as
//! assigned. Services are not rendered before the initial sync of Services and EndpointSlices, so that a restart never sends a
//! connection to a wrong endpoint. A Pod is connected only after the controller has seen it, and its policies are in the same bundle or
//! an earlier one. Nothing in the switch is swept before the initial sync of every source. A failed CNI call leaves nothing behind.
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
pub mod recording;
mod refusal;
mod services;
mod tunnels;
mod underlay;

pub use addressing::{Own, avoid_taken, local_addresses, node_addresses, pod_cidrs, reserved, transport_addresses};
pub use attachments::{AddRequest, AttachmentId, CallId, CniError, CniErrorKind, interface_name};
pub use brain::{Brain, Problem, Resume};
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
pub use tunnels::{PathChange, TunnelPath, Tunnels, path_changes};
pub use underlay::ControlPath;
