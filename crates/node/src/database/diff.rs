//! The transaction that makes OVSDB equal to the desired state.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::condition::Where;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, Interface, InterfaceColumns, Port, PortColumns, RowError};
use ovsdb::transaction::Transaction;
use ovsdb::value::RowRef;

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

impl Desired {
    /// The bridge without Pods.
    pub fn bridge(bridge: BridgeSpec) -> Self {
        Self { bridge, pods: BTreeMap::new(), removed: BTreeSet::new() }
    }

    /// The differences to the actual state. There are none while OVSDB is not initialised: a bridge needs the row of `Open_vSwitch`,
    /// which `ovs-vsctl init` inserts. Each port has its own transaction, so that one that is rejected does not affect others.
    pub fn changes(&self, replica: &Replica) -> Result<Vec<Change>, RowError> {
        let mut changes = Vec::new();
        if replica.open_vswitch()?.is_none() {
            return Ok(changes);
        }
        let mut transaction = Transaction::new();
        self.bridge.changes(replica, &mut transaction)?;
        changes.extend((!transaction.is_empty()).then_some(Change { subject: Subject::Bridge, transaction }));
        // A new bridge gets the ports of Pods when it is there.
        if let Some(bridge) = replica.named::<Bridge>(&self.bridge.bridge)? {
            self.port_changes(replica, &bridge, &mut changes)?;
        }
        Ok(changes)
    }

    fn port_changes(&self, replica: &Replica, bridge: &Bridge, changes: &mut Vec<Change>) -> Result<(), RowError> {
        let present: BTreeSet<String> = replica.ports_of(bridge)?.into_iter().map(|port| port.name).collect();
        let mut add = |name: &str, transaction: Transaction| {
            changes.push(Change { subject: Subject::Port(name.to_owned()), transaction });
        };
        for name in self.removed.iter().filter(|name| present.contains(*name)) {
            if let Some(row) = replica.named::<Port>(name)? {
                let mut transaction = Transaction::new();
                remove_port(&mut transaction, &self.bridge.bridge, row.uuid);
                add(name, transaction);
            }
        }
        for (name, (port, number)) in self.pods.iter().filter(|(name, _)| !self.removed.contains(*name)) {
            let columns = || InterfaceColumns::default().external_ids(port.external_ids()).ofport_request(*number);
            let mut transaction = Transaction::new();
            if !present.contains(name) {
                let interface = RowRef::Inserted(transaction.insert(columns().name(name.as_str())));
                let row = transaction.insert(PortColumns::default().name(name.as_str()).interfaces([interface]));
                let bridge = RowRef::Existing(bridge.uuid);
                add_port(&mut transaction, &bridge, RowRef::Inserted(row), &self.bridge.bridge);
            } else if let Some(row) = replica.named::<Interface>(name)?
                && PodPort::read(&row).is_none_or(|read| read.as_ref() != Ok(port))
            {
                transaction.update(Where::named(name), columns());
            }
            if !transaction.is_empty() {
                add(name, transaction);
            }
        }
        Ok(())
    }
}
