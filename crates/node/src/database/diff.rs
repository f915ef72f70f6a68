//! The transaction that makes OVSDB equal to the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ovsdb::condition::Where;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, Interface, InterfaceColumns, Port, PortColumns, RowError, TypedRow};
use ovsdb::transaction::Transaction;
use ovsdb::value::{Row, RowRef, Uuid};

use super::bridge::{add_port, remove_port};
use super::{BridgeSpec, Desired, PodPort};

/// A difference between desired and actual state.
#[derive(Debug)]
pub struct Change {
    /// What the difference is about.
    pub subject: Subject,
    /// The transaction that removes it.
    pub transaction: Transaction,
}

/// What a [`Change`] is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The bridge with its gateway and tunnel.
    Bridge,
    /// The port of a Pod, by name.
    Port(String),
}

/// Rows of Pod ports that were found equal to the desired state, and are not decoded again.
#[derive(Debug, Default)]
pub struct Reconciled(BTreeMap<String, (Arc<Row>, Arc<PodPort>)>);

impl Desired {
    /// The bridge without Pods.
    pub fn bridge(bridge: BridgeSpec) -> Self {
        Self { bridge, pods: BTreeMap::new(), removed: BTreeSet::new() }
    }

    /// The differences to the actual state. There are none while OVSDB is not initialised: a bridge needs the row of `Open_vSwitch`,
    /// which `ovs-vsctl init` inserts. Each port has its own transaction, so that one that is rejected does not affect others.
    pub fn changes(&self, replica: &Replica, reconciled: &mut Reconciled) -> Result<Vec<Change>, RowError> {
        let mut changes = Vec::new();
        if replica.open_vswitch()?.is_none() {
            return Ok(changes);
        }
        let mut transaction = Transaction::new();
        self.bridge.changes(replica, &mut transaction)?;
        changes.extend((!transaction.is_empty()).then_some(Change { subject: Subject::Bridge, transaction }));
        // A new bridge gets the ports of Pods when it is there.
        if let Some(bridge) = replica.named::<Bridge>(&self.bridge.bridge)? {
            self.removals(replica, &bridge, &mut changes);
            self.port_changes(replica, &bridge, reconciled, &mut changes)?;
        }
        Ok(changes)
    }

    fn removals(&self, replica: &Replica, bridge: &Bridge, changes: &mut Vec<Change>) {
        for name in &self.removed {
            if let Some(port) = port_of(replica, bridge, name) {
                let mut transaction = Transaction::new();
                remove_port(&mut transaction, &self.bridge.bridge, port);
                changes.push(Change { subject: Subject::Port(name.clone()), transaction });
            }
        }
    }

    fn port_changes(
        &self,
        replica: &Replica,
        bridge: &Bridge,
        reconciled: &mut Reconciled,
        changes: &mut Vec<Change>,
    ) -> Result<(), RowError> {
        reconciled.0.retain(|name, _| self.pods.contains_key(name));
        for (name, (port, number)) in self.pods.iter().filter(|(name, _)| !self.removed.contains(*name)) {
            let columns = || InterfaceColumns::default().external_ids(port.external_ids()).ofport_request(*number);
            let mut transaction = Transaction::new();
            if port_of(replica, bridge, name).is_none() {
                let interface = RowRef::Inserted(transaction.insert(columns().name(name.as_str())));
                let row = transaction.insert(PortColumns::default().name(name.as_str()).interfaces([interface]));
                let bridge = RowRef::Existing(bridge.uuid);
                add_port(&mut transaction, &bridge, RowRef::Inserted(row), &self.bridge.bridge);
            } else if let Some((uuid, row)) = replica.row_named(Interface::TABLE, name)
                && !reconciled.contains(name, row, port)
            {
                match PodPort::read(&Interface::from_row(uuid, row)?) {
                    Some(Ok(read)) if read == **port => {
                        reconciled.0.insert(name.clone(), (Arc::clone(row), Arc::clone(port)));
                    }
                    _ => _ = transaction.update(Where::named(name), columns()),
                }
            }
            if !transaction.is_empty() {
                changes.push(Change { subject: Subject::Port(name.clone()), transaction });
            }
        }
        Ok(())
    }
}

impl Reconciled {
    fn contains(&self, name: &str, row: &Arc<Row>, port: &Arc<PodPort>) -> bool {
        self.0.get(name).is_some_and(|(actual, desired)| Arc::ptr_eq(actual, row) && Arc::ptr_eq(desired, port))
    }
}

/// A port of the bridge by name.
fn port_of(replica: &Replica, bridge: &Bridge, name: &str) -> Option<Uuid> {
    replica.row_named(Port::TABLE, name).map(|(uuid, _)| uuid).filter(|uuid| bridge.ports.contains(uuid))
}
