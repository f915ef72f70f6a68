//! Ports of Pods in OVSDB, from which a restarted agent learns its Pods.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use node::{Event, Source};
use openflow::port::Port as OfPort;
use ovs::database::{Database, Feed, TransactError};
use ovsdb::condition::Where;
use ovsdb::replica::Replica;
use ovsdb::tables::{Bridge, Interface, InterfaceColumns, OfPort as Assigned, Port, PortColumns, RowError};
use ovsdb::transaction::Transaction;
use ovsdb::value::RowRef;
use tracing::{info, warn};
use types::{Mac, ObjectName};

use crate::bridge::remove_port;
use crate::engine::Engine;
use numbers::Numbers;
pub(crate) use numbers::Reserved;

/// Keys of Antrea in `external_ids`.
mod key {
    pub(super) const CONTAINER: &str = "container-id";
    pub(super) const POD: &str = "pod-name";
    pub(super) const NAMESPACE: &str = "pod-namespace";
    pub(super) const ADDRESSES: &str = "ip-address";
    pub(super) const MAC: &str = "attached-mac";
    pub(super) const DEVICE: &str = "if-dev";
    pub(super) const NETNS: &str = "net-ns";
    /// Not a key of Antrea.
    pub(super) const UID: &str = "pod-uid";
}

/// The port of a Pod's interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodPort {
    /// Name of the port, and of the veth on the host.
    pub(crate) name: String,
    /// Container ID of the Pod's sandbox.
    pub(crate) container: String,
    pub(crate) pod: ObjectName,
    /// UID of the Pod; empty if the runtime does not pass it.
    pub(crate) uid: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// MAC of the interface in the Pod.
    pub(crate) mac: Mac,
    /// Name of the interface in the Pod.
    pub(crate) device: String,
    /// Path of the Pod's network namespace.
    pub(crate) netns: String,
}

impl PodPort {
    fn external_ids(&self) -> BTreeMap<String, String> {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        [
            (key::CONTAINER, self.container.clone()),
            (key::POD, self.pod.name.clone()),
            (key::NAMESPACE, self.pod.namespace.clone()),
            (key::ADDRESSES, addresses.join(",")),
            (key::MAC, self.mac.to_string()),
            (key::DEVICE, self.device.clone()),
            (key::NETNS, self.netns.clone()),
            (key::UID, self.uid.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }

    /// Decodes a row; `None` if it is not the port of a Pod.
    fn read(row: &Interface) -> Option<Result<Self, String>> {
        let ids = &row.external_ids;
        let container = ids.get(key::CONTAINER)?.clone();
        let text = |key: &str| ids.get(key).cloned().ok_or_else(|| format!("external_ids:{key} is missing"));
        let read = || -> Result<Self, String> {
            let addresses = text(key::ADDRESSES)?;
            let address =
                |ip: &str| ip.parse().map_err(|_| format!("external_ids:{}: `{ip}` is not an address", key::ADDRESSES));
            let mac = text(key::MAC)?;
            Ok(Self {
                name: row.name.clone(),
                container,
                pod: ObjectName { namespace: text(key::NAMESPACE)?, name: text(key::POD)? },
                addresses: addresses.split(',').filter(|ip| !ip.is_empty()).map(address).collect::<Result<_, _>>()?,
                mac: mac.parse().map_err(|_| format!("external_ids:{}: `{mac}` is not a MAC", key::MAC))?,
                device: ids.get(key::DEVICE).cloned().unwrap_or_else(|| "eth0".to_owned()),
                netns: ids.get(key::NETNS).cloned().unwrap_or_default(),
                uid: ids.get(key::UID).cloned().unwrap_or_default(),
            })
        };
        Some(read())
    }

    /// The interface as the brain knows it, with its assigned or requested OpenFlow port.
    pub(crate) fn interface(&self, port: u16) -> node::Interface {
        node::Interface {
            name: self.name.clone(),
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            port: OfPort(port.into()),
            mac: self.mac,
            addresses: self.addresses.clone(),
        }
    }
}

/// A port that must be in the bridge.
#[derive(Clone, Debug)]
struct Expected {
    port: PodPort,
    /// The OpenFlow port that it requests.
    number: Option<u16>,
}

/// The Pod ports of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    database: Arc<Database>,
    bridge: String,
    /// The ports that must be in the bridge, by name. They are added again when another program removes them.
    expected: Arc<Mutex<BTreeMap<String, Expected>>>,
    numbers: Numbers,
}

impl Ports {
    pub(crate) fn new(database: Arc<Database>, bridge: &str) -> Self {
        Self { database, bridge: bridge.to_owned(), expected: Arc::default(), numbers: Numbers::default() }
    }

    /// All Pod ports of the bridge, with the OpenFlow ports that the switch assigned.
    pub(crate) fn all(&self) -> Vec<(PodPort, Assigned)> {
        self.database.snapshot().map(|replica| rows(&replica, &self.bridge)).unwrap_or_default()
    }

    /// The ports of one container.
    pub(crate) fn of(&self, container: &str) -> Vec<PodPort> {
        self.all().into_iter().map(|(port, _)| port).filter(|port| port.container == container).collect()
    }

    /// Reserves an OpenFlow port to request for a new port. `None` if all are taken, or if OVSDB cannot be read.
    pub(crate) fn reserve(&self) -> Option<Reserved> {
        let replica = self.database.snapshot()?;
        let rows = replica.all::<Interface>().collect::<Result<Vec<_>, _>>().ok()?;
        let in_use = rows.iter().flat_map(|row| [row.ofport_request, row.ofport.number()]).flatten();
        let mut taken: BTreeSet<u16> = in_use.collect();
        // A removed port is added again with the same OpenFlow port.
        taken.extend(self.expected().values().filter_map(|expected| expected.number));
        self.numbers.reserve(&taken)
    }

    /// Adds a port to the bridge, replacing one of the same name, and requests an OpenFlow port. From now on the port is expected.
    pub(crate) async fn add(&self, port: &PodPort, number: Option<u16>) -> Result<(), TransactError> {
        self.insert(port, number).await?;
        self.expected().insert(port.name.clone(), Expected { port: port.clone(), number });
        Ok(())
    }

    async fn insert(&self, port: &PodPort, number: Option<u16>) -> Result<(), TransactError> {
        let mut transaction = Transaction::new();
        if let Some(replica) = self.database.snapshot() {
            self.remove_row(&replica, &mut transaction, &port.name);
        }
        let columns = InterfaceColumns::default().name(port.name.as_str()).external_ids(port.external_ids());
        let columns = columns.ofport_request(number);
        let interface = RowRef::Inserted(transaction.insert(columns));
        let row = transaction.insert(PortColumns::default().name(port.name.as_str()).interfaces([interface]));
        transaction.mutate(
            "Bridge",
            Where::named(&self.bridge),
            [ovsdb::operation::Mutation::insert("ports", RowRef::Inserted(row))],
        );
        self.database.transact(transaction).await.map(|_| ())
    }

    /// Removes a port from the bridge, if it exists.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), TransactError> {
        self.expected().remove(name);
        let mut transaction = Transaction::new();
        if let Some(replica) = self.database.snapshot() {
            self.remove_row(&replica, &mut transaction, name);
        }
        if transaction.is_empty() {
            return Ok(());
        }
        self.database.transact(transaction).await.map(|_| ())
    }

    fn expected(&self) -> MutexGuard<'_, BTreeMap<String, Expected>> {
        // The map stays consistent even if a thread panics while it holds the lock.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds expected ports again that were removed from the bridge; returns how many.
    async fn restore_missing(&self, present: &BTreeSet<String>) -> u64 {
        let is_missing = |expected: &&Expected| !present.contains(&expected.port.name);
        let missing: Vec<Expected> = self.expected().values().filter(is_missing).cloned().collect();
        let mut count = 0;
        for Expected { port, number } in missing {
            warn!(interface = port.name, pod = %port.pod, "the Pod's port was removed from the bridge; adding it again");
            match self.insert(&port, number).await {
                Ok(()) => count += 1,
                // Retried after the next change of OVSDB.
                Err(error) => {
                    warn!(interface = port.name, %error, "cannot add the Pod's port to the bridge; retrying later");
                }
            }
            if !self.expected().contains_key(&port.name) {
                // The Pod was deleted in the meantime.
                let _ = self.remove(&port.name).await;
            }
        }
        count
    }

    fn remove_row(&self, replica: &Replica, transaction: &mut Transaction, name: &str) {
        // A row that cannot be decoded is left alone.
        if let Ok(Some(row)) = replica.named::<Port>(name) {
            remove_port(transaction, &self.bridge, row.uuid);
        }
    }

    /// Waits until the switch has assigned an OpenFlow port, or failed to.
    pub(crate) async fn assigned(&self, name: &str) -> Result<u16, String> {
        let mut outcome = None;
        let is_assigned = |replica: &Replica| {
            outcome = match replica.named::<Interface>(name) {
                Ok(Some(row)) => match (row.ofport, row.error) {
                    (Assigned::Assigned(port), _) => Some(Ok(port)),
                    (Assigned::Failed, error) => {
                        let reason = error.unwrap_or_else(|| "it reports no reason".to_owned());
                        Some(Err(format!("Open vSwitch cannot use interface {name}: {reason}")))
                    }
                    (Assigned::Unassigned, _) => None,
                },
                Ok(None) => Some(Err(format!("interface {name} was removed from the bridge"))),
                Err(error) => Some(Err(error.to_string())),
            };
            outcome.is_some()
        };
        self.database.wait_for(is_assigned).await;
        outcome.unwrap_or_else(|| Err("the agent is stopping".to_owned()))
    }

    /// Sends all ports and their changes to the engine, and repairs removed ones, until the agent stops.
    pub(crate) async fn follow(self, engine: Engine, repairs: Arc<AtomicU64>) {
        let mut sent: BTreeMap<String, node::Interface> = BTreeMap::new();
        let mut logged: BTreeSet<String> = BTreeSet::new();
        let mut changes = self.database.changes();
        while let Some(feed) = changes.next().await {
            let first = matches!(&feed, Feed::Resync { missed: 0, .. });
            let Some(replica) = self.database.snapshot() else { continue };
            let rows = rows(&replica, &self.bridge);
            if first {
                let number = |port: &PodPort| {
                    let row = replica.named::<Interface>(&port.name).ok()??;
                    row.ofport_request.or(row.ofport.number())
                };
                let known = rows.iter().map(|(port, _)| Expected { port: port.clone(), number: number(port) });
                self.expected().extend(known.map(|expected| (expected.port.name.clone(), expected)));
            }
            let present: BTreeSet<String> = rows.iter().map(|(port, _)| port.name.clone()).collect();
            repairs.fetch_add(self.restore_missing(&present).await, Ordering::Relaxed);
            let now: BTreeMap<String, node::Interface> = rows
                .into_iter()
                .filter_map(|(port, assigned)| match assigned {
                    Assigned::Assigned(number) => Some((port.name.clone(), port.interface(number))),
                    Assigned::Failed => {
                        if logged.insert(port.name.clone()) {
                            warn!(interface = port.name, pod = %port.pod, "Open vSwitch cannot use the interface; was the Pod deleted?");
                        }
                        None
                    }
                    Assigned::Unassigned => None,
                })
                .collect();
            logged.retain(|name| !now.contains_key(name));
            for name in sent.keys().filter(|name| !now.contains_key(*name)) {
                engine.send(Event::Detached(name.clone())).await;
            }
            for (name, interface) in now.iter().filter(|(name, interface)| sent.get(*name) != Some(interface)) {
                if sent.contains_key(name) {
                    info!(interface = name, port = interface.port.0, "Pod interface has a new OpenFlow port");
                }
                engine.send(Event::Attached(interface.clone())).await;
            }
            sent = now;
            if first {
                engine.send(Event::Synced(Source::Interfaces)).await;
            }
        }
    }
}

/// The Pod ports of a bridge. Rows that cannot be decoded are logged and skipped.
fn rows(replica: &Replica, bridge: &str) -> Vec<(PodPort, Assigned)> {
    let read = || -> Result<Vec<(PodPort, Assigned)>, RowError> {
        let Some(bridge): Option<Bridge> = replica.named(bridge)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for port in replica.ports_of(&bridge)? {
            for row in replica.interfaces_of(&port)? {
                match PodPort::read(&row) {
                    Some(Ok(pod)) => found.push((pod, row.ofport)),
                    Some(Err(problem)) => {
                        warn!(interface = row.name, problem, "ignoring a port with invalid external_ids");
                    }
                    None => {}
                }
            }
        }
        Ok(found)
    };
    read().unwrap_or_else(|error| {
        warn!(%error, "cannot read ports from OVSDB");
        Vec::new()
    })
}
