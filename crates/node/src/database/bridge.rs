//! The bridge with its gateway and its tunnel port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use openflow::port::Port as OfPort;
use ovsdb::condition::{Condition, Where};
use ovsdb::operation::Mutation;
use ovsdb::replica::Replica;
use ovsdb::tables::{
    Bridge, BridgeColumns, FailMode, FlowTable, FlowTableColumns, Interface, InterfaceColumns, Port, PortColumns,
    RowError,
};
use ovsdb::transaction::Transaction;
use ovsdb::value::{RowRef, Uuid};
use serde::{Deserialize, Serialize};
use types::Mac;

use super::transport::{self, TransportSpec};

/// OpenFlow ports as in the documentation of Antrea.
const TUNNEL_PORT: u16 = 1;
const GATEWAY_PORT: u16 = 2;
/// The name that Antrea gives the tunnel port.
pub const TUNNEL: &str = "antrea-tun0";
/// The OpenFlow version that the pipeline needs.
const PROTOCOL: &str = "OpenFlow15";

/// The table of session affinity.
const CLIENT_TABLE: u16 = pipeline::tables::Table::SessionAffinity.id() as u16;
/// `overflow_policy` that evicts a flow with a timeout when the table is full.
const EVICT: &str = "evict";
/// Limit of the session affinity table: one flow per client and frontend.
pub const MAX_CLIENTS: u32 = 8192;
/// Eviction groups, the largest loses a flow first: client networks, /16 of IPv4 and /48 of IPv6.
const CLIENT_NETWORKS: [&str; 2] = ["NXM_OF_IP_SRC[16..31]", "NXM_NX_IPV6_SRC[80..127]"];

/// Desired state of the bridge and its own ports.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct BridgeSpec {
    /// Name of the bridge.
    pub bridge: String,
    /// `datapath_type`: `system` or `netdev`.
    pub datapath: String,
    /// Name of the gateway port.
    pub gateway: String,
    /// MTU of the gateway.
    pub mtu: u32,
    /// The tunnel port, unless the mode is `noEncap`.
    pub tunnel: Option<TunnelPort>,
    /// The transport bridge, if the tunnel ends in the userspace datapath.
    #[serde(default)]
    pub transport: Option<TransportSpec>,
}

/// The tunnel port, which reaches all other Nodes (`remote_ip=flow`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct TunnelPort {
    /// `geneve`, `vxlan`, `gre` or `stt`.
    pub kind: String,
    /// UDP port, if it is not the default of the tunnel type.
    pub port: Option<u16>,
    /// Whether outer UDP headers have a checksum.
    pub checksum: bool,
    /// Outer source address. Peers accept tunnel packets only from known addresses of this Node, and a route may prefer another
    /// one.
    pub local: Option<IpAddr>,
}

/// OpenFlow ports and MAC that ovs-vswitchd assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct BridgePorts {
    /// OpenFlow port of the gateway.
    pub gateway: OfPort,
    /// MAC of the gateway.
    pub mac: Mac,
    /// OpenFlow port of the tunnel.
    pub tunnel: Option<OfPort>,
    /// OpenFlow port of the uplink on the transport bridge.
    #[serde(default)]
    pub uplink: Option<OfPort>,
}

/// Why ovs-vswitchd assigns no ports.
#[derive(Debug, thiserror::Error)]
pub enum UnassignedPort {
    /// A row of OVSDB cannot be decoded.
    #[error(transparent)]
    Row(#[from] RowError),
    /// ovs-vswitchd cannot create an interface.
    #[error("interface {interface}: Open vSwitch reports: {reason}")]
    #[expect(missing_docs, reason = "the names say it")]
    Interface { interface: String, reason: String },
    /// ovs-vswitchd cannot open the uplink.
    #[error(
        "transport interface {device}: Open vSwitch cannot use it for tunnels: {reason}; load the openvswitch kernel module, or \
         set trafficEncapMode: noEncap"
    )]
    #[expect(missing_docs, reason = "the names say it")]
    Uplink { device: String, reason: String },
    /// Open vSwitch does not support this tunnel type.
    #[error("tunnelType: this Open vSwitch does not support `{kind}` tunnels; it supports: {known}")]
    #[expect(missing_docs, reason = "the names say it")]
    TunnelType { kind: String, known: String },
}

impl BridgeSpec {
    /// Adds the difference between the desired and the actual bridge to a transaction.
    pub(super) fn changes(&self, replica: &Replica, transaction: &mut Transaction) -> Result<(), RowError> {
        let (bridge, present) = self.bridge_changes(replica, transaction)?;
        let own =
            InterfaceColumns::default().kind("internal").ofport_request(Some(GATEWAY_PORT)).mtu_request(Some(self.mtu));
        let at = BridgeRow { name: &self.bridge, row: bridge, present };
        at.put_interface(replica, transaction, (&self.gateway, own), |row| {
            row.kind == "internal" && row.mtu_request == Some(self.mtu)
        })?;
        if let Some(tunnel) = &self.tunnel {
            let options = tunnel.options();
            let own = InterfaceColumns::default()
                .kind(tunnel.kind.as_str())
                .options(options.clone())
                .ofport_request(Some(TUNNEL_PORT));
            at.put_interface(replica, transaction, (TUNNEL, own), |row| {
                row.kind == tunnel.kind && row.options == options
            })?;
        } else if let Some(port) = replica.named::<Port>(TUNNEL)?.filter(|_| present) {
            remove_port(transaction, &self.bridge, port.uuid);
        }
        match &self.transport {
            Some(transport) => transport.changes(&self.datapath, replica, transaction),
            None => transport::removal(replica, transaction),
        }
    }

    fn bridge_changes(&self, replica: &Replica, transaction: &mut Transaction) -> Result<(RowRef, bool), RowError> {
        let columns = bridge_columns(&self.datapath);
        let found: Option<Bridge> = replica.named(&self.bridge)?;
        Ok(match found {
            Some(row) => {
                let same = has_bridge_columns(&row, &self.datapath);
                let is_limited = is_limited(replica, &row)?;
                if !same || !is_limited {
                    let tables = limit(&row, is_limited, transaction);
                    transaction.update(Where::named(&self.bridge), columns.flow_tables(tables));
                }
                (RowRef::Existing(row.uuid), true)
            }
            None => {
                let clients = RowRef::Inserted(transaction.insert(client_table()));
                let columns = columns.flow_tables([(CLIENT_TABLE, clients)]);
                (add_bridge(transaction, columns.name(self.bridge.as_str())), false)
            }
        })
    }

    /// The ports that ovs-vswitchd has assigned; `None` if some are missing.
    pub fn assigned(&self, replica: &Replica) -> Result<Option<BridgePorts>, UnassignedPort> {
        if let (Some(tunnel), Some(root)) = (&self.tunnel, replica.open_vswitch()?)
            && !root.iface_types.is_empty()
            && !root.iface_types.contains(&tunnel.kind)
        {
            let known = ["geneve", "vxlan", "gre", "stt"].into_iter().filter(|kind| root.iface_types.contains(*kind));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(UnassignedPort::TunnelType { kind: tunnel.kind.clone(), known });
        }
        let gateway = assigned_port(replica, &self.gateway)?;
        let tunnel = self.tunnel.as_ref().map(|_| assigned_port(replica, TUNNEL)).transpose()?;
        let uplink = self.transport.as_ref().map(|transport| transport.assigned(replica)).transpose()?;
        let Some((gateway, Some(mac))) = gateway else { return Ok(None) };
        if matches!(tunnel, Some(None)) || matches!(uplink, Some(None)) {
            return Ok(None);
        }
        let tunnel = tunnel.flatten().map(|(port, _)| port);
        Ok(Some(BridgePorts { gateway, mac, tunnel, uplink: uplink.flatten() }))
    }
}

/// The settings of every bridge of ours.
pub(super) fn bridge_columns(datapath: &str) -> BridgeColumns {
    BridgeColumns::default()
        .datapath_type(datapath)
        // Fail closed: a learning bridge would forward everything until the agent has installed flows.
        .fail_mode(Some(FailMode::Secure))
        .protocols([PROTOCOL])
}

/// Whether a bridge has the settings of [`bridge_columns`].
pub(super) fn has_bridge_columns(row: &Bridge, datapath: &str) -> bool {
    row.datapath_type == datapath
        && row.fail_mode == Some(FailMode::Secure)
        && row.protocols == BTreeSet::from([PROTOCOL.to_owned()])
}

/// A bridge that exists, or that the transaction inserts.
pub(super) struct BridgeRow<'a> {
    pub(super) name: &'a str,
    pub(super) row: RowRef,
    pub(super) present: bool,
}

impl BridgeRow<'_> {
    /// Adds a port to the bridge, or updates the existing one.
    pub(super) fn put_interface(
        &self,
        replica: &Replica,
        transaction: &mut Transaction,
        (name, columns): (&str, InterfaceColumns),
        is_right: impl Fn(&Interface) -> bool,
    ) -> Result<(), RowError> {
        let port: Option<Port> = if self.present { replica.named(name)? } else { None };
        let row: Option<Interface> = if port.is_some() { replica.named(name)? } else { None };
        match row {
            Some(row) if is_right(&row) => {}
            Some(_) => _ = transaction.update(Where::named(name), columns),
            None => {
                let interface = transaction.insert(columns.name(name));
                let port =
                    transaction.insert(PortColumns::default().name(name).interfaces([RowRef::Inserted(interface)]));
                add_port(transaction, &self.row, RowRef::Inserted(port), self.name);
            }
        }
        Ok(())
    }
}

/// Adds a bridge to Open vSwitch.
pub(super) fn add_bridge(transaction: &mut Transaction, columns: BridgeColumns) -> RowRef {
    let row = RowRef::Inserted(transaction.insert(columns));
    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::insert("bridges", row.clone())]);
    row
}

/// The limit of the session affinity table: a flood of spoofed clients must not fill the switch with flows.
fn client_table() -> FlowTableColumns {
    FlowTableColumns::default()
        .flow_limit(Some(MAX_CLIENTS))
        .overflow_policy(Some(EVICT))
        .groups(CLIENT_NETWORKS.map(str::to_owned))
}

fn is_limited(replica: &Replica, bridge: &Bridge) -> Result<bool, RowError> {
    let Some(row) = bridge.flow_tables.get(&CLIENT_TABLE) else { return Ok(false) };
    let row: Option<FlowTable> = replica.get(*row)?;
    Ok(row.is_some_and(|row| {
        row.flow_limit == Some(MAX_CLIENTS)
            && row.overflow_policy.as_deref() == Some(EVICT)
            && row.groups == CLIENT_NETWORKS.map(str::to_owned).into()
    }))
}

/// The value of `flow_tables`: existing entries of other tables, and ours.
fn limit(bridge: &Bridge, is_limited: bool, transaction: &mut Transaction) -> Vec<(u16, RowRef)> {
    let others = bridge.flow_tables.iter().filter(|(table, _)| is_limited || **table != CLIENT_TABLE);
    let mut tables: Vec<_> = others.map(|(table, row)| (*table, RowRef::Existing(*row))).collect();
    if !is_limited {
        tables.push((CLIENT_TABLE, RowRef::Inserted(transaction.insert(client_table()))));
    }
    tables
}

impl TunnelPort {
    fn options(&self) -> BTreeMap<String, String> {
        let mut options =
            BTreeMap::from([("key".to_owned(), "flow".to_owned()), ("remote_ip".to_owned(), "flow".to_owned())]);
        if let Some(port) = self.port {
            options.insert("dst_port".to_owned(), port.to_string());
        }
        if let Some(local) = self.local {
            options.insert("local_ip".to_owned(), local.to_string());
        }
        if self.checksum {
            options.insert("csum".to_owned(), "true".to_owned());
        }
        options
    }
}

/// Adds a port to a bridge.
pub(super) fn add_port(transaction: &mut Transaction, bridge: &RowRef, port: RowRef, name: &str) {
    let row = match bridge {
        RowRef::Existing(uuid) => Where::from(Condition::equal("_uuid", *uuid)),
        // A row that this transaction inserts has no UUID yet, but its name is known.
        RowRef::Inserted(_) => Where::named(name),
    };
    transaction.mutate("Bridge", row, [Mutation::insert("ports", port)]);
}

/// Removes a port from a bridge; ovsdb-server deletes rows without references.
pub(super) fn remove_port(transaction: &mut Transaction, bridge: &str, port: Uuid) {
    transaction.mutate("Bridge", Where::named(bridge), [Mutation::delete("ports", RowRef::Existing(port))]);
}

/// OpenFlow port and MAC of an interface, once ovs-vswitchd has assigned them.
pub(super) fn assigned_port(replica: &Replica, name: &str) -> Result<Option<(OfPort, Option<Mac>)>, UnassignedPort> {
    let Some(row): Option<Interface> = replica.named(name)? else { return Ok(None) };
    if let Some(reason) = row.error {
        return Err(UnassignedPort::Interface { interface: name.to_owned(), reason });
    }
    let mac = row.mac_in_use.and_then(|mac| mac.parse().ok());
    Ok(row.ofport.number().map(|port| (OfPort(port.into()), mac)))
}
