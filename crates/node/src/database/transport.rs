//! The transport bridge, with the uplink as its port. See [`pipeline::TransportBridge`].

use openflow::port::Port as OfPort;
use ovsdb::condition::Where;
use ovsdb::operation::Mutation;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, InterfaceColumns, Port, RowError};
use ovsdb::transaction::Transaction;
use ovsdb::value::RowRef;
use serde::{Deserialize, Serialize};

use super::bridge::{
    BridgeRow, UnassignedPort, add_bridge, assigned_port, bridge_columns, has_bridge_columns, remove_port,
};

/// Name of the transport bridge, and of its device in the kernel.
pub const TRANSPORT_BRIDGE: &str = "antrea-phy0";
const UPLINK_PORT: u16 = 1;

/// Desired state of the transport bridge.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct TransportSpec {
    /// The device towards other Nodes.
    pub uplink: String,
}

impl TransportSpec {
    pub(super) fn changes(
        &self,
        datapath: &str,
        replica: &Replica,
        transaction: &mut Transaction,
    ) -> Result<(), RowError> {
        let columns = bridge_columns(datapath);
        let found: Option<Bridge> = replica.named(TRANSPORT_BRIDGE)?;
        let (row, present) = match &found {
            Some(row) => {
                if !has_bridge_columns(row, datapath) {
                    transaction.update(Where::named(TRANSPORT_BRIDGE), columns);
                }
                self.remove_other_ports(row, replica, transaction)?;
                (RowRef::Existing(row.uuid), true)
            }
            None => (add_bridge(transaction, columns.name(TRANSPORT_BRIDGE)), false),
        };
        let at = BridgeRow { name: TRANSPORT_BRIDGE, row, present };
        let local = InterfaceColumns::default().kind("internal");
        at.put_interface(replica, transaction, (TRANSPORT_BRIDGE, local), |row| row.kind == "internal")?;
        let uplink = InterfaceColumns::default().kind("").ofport_request(Some(UPLINK_PORT));
        at.put_interface(replica, transaction, (&self.uplink, uplink), |row| {
            row.kind.is_empty() && row.ofport_request == Some(UPLINK_PORT)
        })
    }

    /// Removes an earlier uplink.
    fn remove_other_ports(
        &self,
        bridge: &Bridge,
        replica: &Replica,
        transaction: &mut Transaction,
    ) -> Result<(), RowError> {
        for uuid in &bridge.ports {
            let Some(port) = replica.get::<Port>(*uuid)? else { continue };
            if port.name != TRANSPORT_BRIDGE && port.name != self.uplink {
                remove_port(transaction, TRANSPORT_BRIDGE, *uuid);
            }
        }
        Ok(())
    }

    /// The uplink's port, once ovs-vswitchd has assigned it and created the bridge's own device.
    pub(super) fn assigned(&self, replica: &Replica) -> Result<Option<OfPort>, UnassignedPort> {
        let uplink = assigned_port(replica, &self.uplink).map_err(|error| match error {
            UnassignedPort::Interface { interface, reason } => UnassignedPort::Uplink { device: interface, reason },
            other => other,
        })?;
        let local = assigned_port(replica, TRANSPORT_BRIDGE)?;
        Ok(uplink.filter(|_| local.is_some()).map(|(port, _)| port))
    }
}

/// Removes the transport bridge, which a Node without tunnels or with the kernel datapath does not need.
pub(super) fn removal(replica: &Replica, transaction: &mut Transaction) -> Result<(), RowError> {
    if let Some(bridge) = replica.named::<Bridge>(TRANSPORT_BRIDGE)? {
        let remove = Mutation::delete("bridges", RowRef::Existing(bridge.uuid));
        transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [remove]);
    }
    Ok(())
}

/// The bridge that a device is a port of, except the transport bridge.
pub fn bridge_of(replica: &Replica, device: &str) -> Result<Option<String>, RowError> {
    let Some(port) = replica.named::<Port>(device)? else { return Ok(None) };
    for bridge in replica.all::<Bridge>() {
        let bridge = bridge?;
        if bridge.name != TRANSPORT_BRIDGE && bridge.ports.contains(&port.uuid) {
            return Ok(Some(bridge.name));
        }
    }
    Ok(None)
}
