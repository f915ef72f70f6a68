//! The bridge with its gateway and its tunnel, as OVSDB describes them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openflow::port::Port as OfPort;
use ovs::database::{Database, TransactError};
use ovsdb::condition::{Condition, Where};
use ovsdb::operation::Mutation;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, BridgeColumns, FailMode, Interface, InterfaceColumns, Port, PortColumns, RowError};
use ovsdb::transaction::Transaction;
use ovsdb::value::{RowRef, Uuid};
use thiserror::Error;
use tracing::warn;
use types::Mac;

/// How long the switch may take to make what it was asked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The ports that the reference documents have.
const TUNNEL_PORT: u16 = 1;
const GATEWAY_PORT: u16 = 2;
/// What Antrea calls the tunnel.
pub(crate) const TUNNEL: &str = "antrea-tun0";
/// What the pipeline needs the switch to speak.
const PROTOCOL: &str = "OpenFlow15";

/// A bridge, as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// Its name.
    pub(crate) bridge: String,
    /// `system` or `netdev`.
    pub(crate) datapath: &'static str,
    /// The name of its gateway.
    pub(crate) gateway: String,
    /// The largest packet of its gateway.
    pub(crate) mtu: u32,
    /// Its tunnel, if packets between Nodes need one.
    pub(crate) tunnel: Option<Tunnel>,
}

/// The tunnel to all other Nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tunnel {
    /// `geneve`, `vxlan`, `gre` or `stt`.
    pub(crate) kind: String,
    /// Another UDP port than the usual one.
    pub(crate) port: Option<u16>,
    /// Whether the outer packets have a checksum.
    pub(crate) checksum: bool,
}

/// What the switch made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Made {
    /// The gateway's port.
    pub(crate) gateway: OfPort,
    /// The gateway's Ethernet address.
    pub(crate) mac: Mac,
    /// The tunnel's port.
    pub(crate) tunnel: Option<OfPort>,
}

/// Why there is no bridge.
#[derive(Debug, Error)]
pub(crate) enum BridgeError {
    /// ovsdb-server does not take it.
    #[error("bridge {bridge}: {source}")]
    Transact {
        /// The bridge.
        bridge: String,
        /// Why.
        source: TransactError,
    },
    /// The database is not what it should be.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The switch cannot make an interface.
    #[error("interface {interface}: Open vSwitch says: {reason}")]
    Interface {
        /// Which.
        interface: String,
        /// Why.
        reason: String,
    },
    /// The switch cannot make tunnels of this type.
    #[error("tunnelType: this Open vSwitch has no `{kind}` tunnels; it has: {known}")]
    TunnelType {
        /// What was asked for.
        kind: String,
        /// What there is.
        known: String,
    },
    /// The bridge is another one now.
    #[error("bridge {bridge}: it was removed and made anew, with other ports: starting again")]
    Another {
        /// The bridge.
        bridge: String,
    },
    /// The switch does not answer.
    #[error("bridge {bridge}: ovs-vswitchd has not made it within {PATIENCE:?}; is it running?")]
    Slow {
        /// The bridge.
        bridge: String,
    },
}

impl Wanted {
    /// Changes the database where it is not as it should be, and waits until the switch has followed.
    pub(crate) async fn make(&self, database: &Database) -> Result<Made, BridgeError> {
        let slow = || BridgeError::Slow { bridge: self.bridge.clone() };
        let replica = database.synced().await.ok_or_else(slow)?;
        if let Some(changes) = self.changes(&replica)? {
            let refused = |source| BridgeError::Transact { bridge: self.bridge.clone(), source };
            database.transact(changes).await.map_err(refused)?;
        }
        let mut outcome = Ok(None);
        let done = |replica: &Replica| {
            outcome = self.look(replica);
            !matches!(outcome, Ok(None))
        };
        let _ = tokio::time::timeout(PATIENCE, database.wait_for(done)).await;
        outcome?.ok_or_else(slow)
    }

    /// Keeps the bridge as it should be. Ends when the switch has made something else of it than before: the flows of this
    /// agent are those of the bridge that it found.
    pub(crate) async fn keep(&self, database: &Database, before: Made, repairs: &AtomicU64) -> BridgeError {
        let mut changes = database.changes();
        loop {
            if changes.next().await.is_none() {
                return BridgeError::Slow { bridge: self.bridge.clone() };
            }
            let Some(replica) = database.snapshot() else { continue };
            match self.changes(&replica) {
                Ok(None) => {}
                Ok(Some(_)) => {
                    warn!(bridge = self.bridge, "somebody has changed the bridge; repaired");
                    repairs.fetch_add(1, Ordering::Relaxed);
                    match self.make(database).await {
                        Ok(made) if made == before => {}
                        Ok(_) => return BridgeError::Another { bridge: self.bridge.clone() },
                        Err(error) => return error,
                    }
                }
                Err(error) => return error.into(),
            }
        }
    }

    /// What has to change in the database; nothing if all is as it should be.
    pub(crate) fn changes(&self, replica: &Replica) -> Result<Option<Transaction>, RowError> {
        let mut transaction = Transaction::new();
        let (bridge, present) = self.bridge_changes(replica, &mut transaction)?;
        let own =
            InterfaceColumns::default().kind("internal").ofport_request(Some(GATEWAY_PORT)).mtu_request(Some(self.mtu));
        self.interface(replica, &mut transaction, &bridge, present, (&self.gateway, own), |row| {
            row.kind == "internal" && row.mtu_request == Some(self.mtu)
        })?;
        if let Some(tunnel) = &self.tunnel {
            let options = tunnel.options();
            let own = InterfaceColumns::default()
                .kind(tunnel.kind.as_str())
                .options(options.clone())
                .ofport_request(Some(TUNNEL_PORT));
            self.interface(replica, &mut transaction, &bridge, present, (TUNNEL, own), |row| {
                row.kind == tunnel.kind && row.options == options
            })?;
        } else if let Some(port) = replica.named::<Port>(TUNNEL)?.filter(|_| present) {
            remove_port(&mut transaction, &self.bridge, port.uuid);
        }
        Ok((!transaction.is_empty()).then_some(transaction))
    }

    fn bridge_changes(&self, replica: &Replica, transaction: &mut Transaction) -> Result<(RowRef, bool), RowError> {
        let wanted = BridgeColumns::default()
            .datapath_type(self.datapath)
            // Without flows nothing passes: a bridge that learns would let everything through until the agent is there.
            .fail_mode(Some(FailMode::Secure))
            .protocols([PROTOCOL]);
        let found: Option<Bridge> = replica.named(&self.bridge)?;
        Ok(match found {
            Some(row) => {
                let same = row.datapath_type == self.datapath
                    && row.fail_mode == Some(FailMode::Secure)
                    && row.protocols == BTreeSet::from([PROTOCOL.to_owned()]);
                if !same {
                    transaction.update(Where::named(&self.bridge), wanted);
                }
                (RowRef::Existing(row.uuid), true)
            }
            None => {
                let row = transaction.insert(wanted.name(self.bridge.as_str()));
                let row = RowRef::Inserted(row);
                let add = Mutation::insert("bridges", row.clone());
                transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [add]);
                (row, false)
            }
        })
    }

    /// Adds a port to the bridge, or corrects the one that is there.
    fn interface(
        &self,
        replica: &Replica,
        transaction: &mut Transaction,
        bridge: &RowRef,
        present: bool,
        (name, columns): (&str, InterfaceColumns),
        is_right: impl Fn(&Interface) -> bool,
    ) -> Result<(), RowError> {
        let port: Option<Port> = if present { replica.named(name)? } else { None };
        let row: Option<Interface> = if port.is_some() { replica.named(name)? } else { None };
        match row {
            Some(row) if is_right(&row) => {}
            Some(_) => _ = transaction.update(Where::named(name), columns),
            None => {
                let interface = transaction.insert(columns.name(name));
                let port =
                    transaction.insert(PortColumns::default().name(name).interfaces([RowRef::Inserted(interface)]));
                add_port(transaction, bridge, RowRef::Inserted(port), &self.bridge);
            }
        }
        Ok(())
    }

    /// What the switch has made so far.
    fn look(&self, replica: &Replica) -> Result<Option<Made>, BridgeError> {
        if let (Some(tunnel), Some(root)) = (&self.tunnel, replica.open_vswitch()?)
            && !root.iface_types.is_empty()
            && !root.iface_types.contains(&tunnel.kind)
        {
            let known = ["geneve", "vxlan", "gre", "stt"].into_iter().filter(|kind| root.iface_types.contains(*kind));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(BridgeError::TunnelType { kind: tunnel.kind.clone(), known });
        }
        let gateway = made(replica, &self.gateway)?;
        let tunnel = self.tunnel.as_ref().map(|_| made(replica, TUNNEL)).transpose()?;
        let Some((port, Some(mac))) = gateway else { return Ok(None) };
        Ok(match tunnel {
            Some(None) => None,
            Some(Some((tunnel, _))) => Some(Made { gateway: port, mac, tunnel: Some(tunnel) }),
            None => Some(Made { gateway: port, mac, tunnel: None }),
        })
    }
}

impl Tunnel {
    fn options(&self) -> std::collections::BTreeMap<String, String> {
        let mut options = std::collections::BTreeMap::from([
            ("key".to_owned(), "flow".to_owned()),
            ("remote_ip".to_owned(), "flow".to_owned()),
        ]);
        if let Some(port) = self.port {
            options.insert("dst_port".to_owned(), port.to_string());
        }
        if self.checksum {
            options.insert("csum".to_owned(), "true".to_owned());
        }
        options
    }
}

/// Adds a port to a bridge.
pub(crate) fn add_port(transaction: &mut Transaction, bridge: &RowRef, port: RowRef, name: &str) {
    let row = match bridge {
        RowRef::Existing(uuid) => Where::from(Condition::equal("_uuid", *uuid)),
        // A row that the transaction inserts has no id to ask for yet, but its name is known.
        RowRef::Inserted(_) => Where::named(name),
    };
    transaction.mutate("Bridge", row, [Mutation::insert("ports", port)]);
}

/// Removes a port from a bridge; rows that nobody points at are removed by the server.
pub(crate) fn remove_port(transaction: &mut Transaction, bridge: &str, port: Uuid) {
    transaction.mutate("Bridge", Where::named(bridge), [Mutation::delete("ports", RowRef::Existing(port))]);
}

/// The port and the Ethernet address of an interface, once the switch has made it.
fn made(replica: &Replica, name: &str) -> Result<Option<(OfPort, Option<Mac>)>, BridgeError> {
    let Some(row): Option<Interface> = replica.named(name)? else { return Ok(None) };
    if let Some(reason) = row.error {
        return Err(BridgeError::Interface { interface: name.to_owned(), reason });
    }
    let mac = row.mac_in_use.and_then(|mac| mac.parse().ok());
    Ok(row.ofport.number().map(|port| (OfPort(port.into()), mac)))
}
