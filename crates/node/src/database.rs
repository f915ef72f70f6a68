//! The desired state of OVSDB: the bridge with its gateway and tunnel, the ports of Pods, and the transport bridge.
//!
//! OVSDB is where a Node remembers its Pods: a restarted agent learns them from `external_ids`, with Antrea's keys.

mod adoption;
mod bridge;
mod diff;
mod pod_port;
mod ports;
mod transport;

pub use adoption::Adoption;
pub use bridge::{BridgePorts, BridgeSpec, MAX_CLIENTS, TUNNEL, TunnelPort, UnassignedPort};
pub use diff::{Change, Reconciled, Subject};
pub use pod_port::{InvalidPort, PodPort};
pub use ports::Ports;
pub use transport::{TRANSPORT_BRIDGE, TransportSpec, bridge_of};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ovsdb::tables::{Interface, OfPort};
use serde::{Deserialize, Serialize};

/// A port of the bridge, as OVSDB has it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct PortRow {
    /// Name of the port, and of its interface.
    pub name: String,
    /// The Pod that it belongs to, if any.
    pub pod: Option<PodPort>,
    /// The requested OpenFlow port.
    pub requested: Option<u16>,
    /// The OpenFlow port that the switch has assigned.
    pub assigned: Assigned,
}

/// The OpenFlow port of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Assigned {
    /// The switch has not handled the interface yet.
    Pending,
    /// The switch uses the interface.
    Port(u16),
    /// The switch cannot use the interface, for this reason.
    Failed(String),
}

/// The desired state of OVSDB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Desired {
    /// The bridge with its own ports.
    pub bridge: BridgeSpec,
    /// The ports of Pods, with their requested OpenFlow ports.
    pub pods: BTreeMap<String, (Arc<PodPort>, Option<u16>)>,
    /// Ports of deleted Pods. Others that are not in `pods` are not changed.
    pub removed: BTreeSet<String>,
}

impl PortRow {
    fn read(row: &Interface) -> Result<Self, InvalidPort> {
        let assigned = match (&row.ofport, &row.error) {
            (OfPort::Assigned(port), _) => Assigned::Port(*port),
            (OfPort::Failed, error) => {
                Assigned::Failed(error.clone().unwrap_or_else(|| "it reports no reason".to_owned()))
            }
            (OfPort::Unassigned, _) => Assigned::Pending,
        };
        let pod = PodPort::read(row).transpose()?;
        Ok(Self { name: row.name.clone(), pod, requested: row.ofport_request, assigned })
    }
}

impl Assigned {
    /// The OpenFlow port, if the switch has assigned one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Port(port) => Some(*port),
            Self::Pending | Self::Failed(_) => None,
        }
    }
}
