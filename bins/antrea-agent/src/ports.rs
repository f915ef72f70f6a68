//! The ports of Pods, as OVSDB remembers them: what an agent that was restarted knows of its Pods.

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

/// The keys that Antrea has in `external_ids`.
mod key {
    pub(super) const CONTAINER: &str = "container-id";
    pub(super) const POD: &str = "pod-name";
    pub(super) const NAMESPACE: &str = "pod-namespace";
    pub(super) const ADDRESSES: &str = "ip-address";
    pub(super) const MAC: &str = "attached-mac";
    pub(super) const DEVICE: &str = "if-dev";
    pub(super) const NETNS: &str = "net-ns";
    /// Ours.
    pub(super) const UID: &str = "pod-uid";
}

/// A Pod's port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodPort {
    /// Its name: that of the device on the host.
    pub(crate) name: String,
    /// The id that the runtime gave to the Pod's sandbox.
    pub(crate) container: String,
    /// The Pod.
    pub(crate) pod: ObjectName,
    /// What tells it from others of its name; empty where the runtime did not say.
    pub(crate) uid: String,
    /// The Pod's addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// The Pod's Ethernet address.
    pub(crate) mac: Mac,
    /// The device's name in the Pod.
    pub(crate) device: String,
    /// The path of the Pod's namespace.
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

    /// Reads a row; `None` if it is nobody's that we know.
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
                mac: mac
                    .parse()
                    .map_err(|_| format!("external_ids:{}: `{mac}` is not an Ethernet address", key::MAC))?,
                device: ids.get(key::DEVICE).cloned().unwrap_or_else(|| "eth0".to_owned()),
                netns: ids.get(key::NETNS).cloned().unwrap_or_default(),
                uid: ids.get(key::UID).cloned().unwrap_or_default(),
            })
        };
        Some(read())
    }

    /// What the brain knows of it, by the number that the switch has given it or is asked for.
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

/// A port that should be there.
#[derive(Clone, Debug)]
struct Expected {
    port: PodPort,
    /// The number that it asks for.
    number: Option<u16>,
}

/// The rows of a bridge that are Pods' ports.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    database: Arc<Database>,
    bridge: String,
    /// Those that should be there, whoever removes them, by name.
    expected: Arc<Mutex<BTreeMap<String, Expected>>>,
    numbers: Numbers,
}

impl Ports {
    /// The ports of a bridge.
    pub(crate) fn new(database: Arc<Database>, bridge: &str) -> Self {
        Self { database, bridge: bridge.to_owned(), expected: Arc::default(), numbers: Numbers::default() }
    }

    /// All that are there, with the number that the switch gave them, and what cannot be read.
    pub(crate) fn all(&self) -> Vec<(PodPort, Assigned)> {
        self.database.snapshot().map(|replica| rows(&replica, &self.bridge)).unwrap_or_default()
    }

    /// Those of a container.
    pub(crate) fn of(&self, container: &str) -> Vec<PodPort> {
        self.all().into_iter().map(|(port, _)| port).filter(|port| port.container == container).collect()
    }

    /// A number for a new port, which the switch will most likely give it; none if all are taken, or if nobody can tell which are.
    pub(crate) fn reserve(&self) -> Option<Reserved> {
        let replica = self.database.snapshot()?;
        let rows = replica.all::<Interface>().collect::<Result<Vec<_>, _>>().ok()?;
        let there = rows.iter().flat_map(|row| [row.ofport_request, row.ofport.number()]).flatten();
        let mut taken: BTreeSet<u16> = there.collect();
        // What somebody has taken out comes back with its number.
        taken.extend(self.expected().values().filter_map(|expected| expected.number));
        self.numbers.reserve(&taken)
    }

    /// Adds a port to the bridge, in place of one with its name, and asks for a number. From now on it is expected to be there.
    pub(crate) async fn add(&self, port: &PodPort, number: Option<u16>) -> Result<(), TransactError> {
        self.insert(port, number).await?;
        self.expected().insert(port.name.clone(), Expected { port: port.clone(), number });
        Ok(())
    }

    async fn insert(&self, port: &PodPort, number: Option<u16>) -> Result<(), TransactError> {
        let mut transaction = Transaction::new();
        if let Some(replica) = self.database.snapshot() {
            self.take_out(&replica, &mut transaction, &port.name);
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

    /// Removes a port from the bridge, if it is there.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), TransactError> {
        self.expected().remove(name);
        let mut transaction = Transaction::new();
        if let Some(replica) = self.database.snapshot() {
            self.take_out(&replica, &mut transaction, name);
        }
        if transaction.is_empty() {
            return Ok(());
        }
        self.database.transact(transaction).await.map(|_| ())
    }

    fn expected(&self) -> MutexGuard<'_, BTreeMap<String, Expected>> {
        // Nobody panics while holding it; and if somebody did, the map is as good as before.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts back what somebody has taken out of the bridge; how much that was.
    async fn put_back(&self, present: &BTreeSet<String>) -> u64 {
        let is_missing = |expected: &&Expected| !present.contains(&expected.port.name);
        let missing: Vec<Expected> = self.expected().values().filter(is_missing).cloned().collect();
        let mut count = 0;
        for Expected { port, number } in missing {
            warn!(interface = port.name, pod = %port.pod, "somebody has taken it out of the bridge; put back");
            match self.insert(&port, number).await {
                Ok(()) => count += 1,
                // The next change of the database, or the next look, is another chance.
                Err(error) => warn!(interface = port.name, %error, "could not be put back"),
            }
            if !self.expected().contains_key(&port.name) {
                // The Pod went in the meantime.
                let _ = self.remove(&port.name).await;
            }
        }
        count
    }

    fn take_out(&self, replica: &Replica, transaction: &mut Transaction, name: &str) {
        // A row that cannot be read is one that nothing can be said about.
        if let Ok(Some(row)) = replica.named::<Port>(name) {
            remove_port(transaction, &self.bridge, row.uuid);
        }
    }

    /// Waits until the switch has looked at a port.
    pub(crate) async fn assigned(&self, name: &str) -> Result<u16, String> {
        let mut outcome = None;
        let looked = |replica: &Replica| {
            outcome = match replica.named::<Interface>(name) {
                Ok(Some(row)) => match (row.ofport, row.error) {
                    (Assigned::Assigned(port), _) => Some(Ok(port)),
                    (Assigned::Failed, error) => {
                        let reason = error.unwrap_or_else(|| "it does not say why".to_owned());
                        Some(Err(format!("Open vSwitch cannot use interface {name}: {reason}")))
                    }
                    (Assigned::Unassigned, _) => None,
                },
                Ok(None) => Some(Err(format!("interface {name} was taken out of the bridge"))),
                Err(error) => Some(Err(error.to_string())),
            };
            outcome.is_some()
        };
        self.database.wait_for(looked).await;
        outcome.unwrap_or_else(|| Err("the agent is stopping".to_owned()))
    }

    /// Tells the engine of all ports, and of whatever changes about them, for ever.
    pub(crate) async fn follow(self, engine: Engine, repairs: Arc<AtomicU64>) {
        let mut told: BTreeMap<String, node::Interface> = BTreeMap::new();
        let mut complained: BTreeSet<String> = BTreeSet::new();
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
            repairs.fetch_add(self.put_back(&present).await, Ordering::Relaxed);
            let now: BTreeMap<String, node::Interface> = rows
                .into_iter()
                .filter_map(|(port, assigned)| match assigned {
                    Assigned::Assigned(number) => Some((port.name.clone(), port.interface(number))),
                    Assigned::Failed => {
                        if complained.insert(port.name.clone()) {
                            warn!(interface = port.name, pod = %port.pod, "Open vSwitch cannot use it: is the Pod gone?");
                        }
                        None
                    }
                    Assigned::Unassigned => None,
                })
                .collect();
            complained.retain(|name| !now.contains_key(name));
            for name in told.keys().filter(|name| !now.contains_key(*name)) {
                engine.tell(Event::Detached(name.clone())).await;
            }
            for (name, interface) in now.iter().filter(|(name, interface)| told.get(*name) != Some(interface)) {
                if told.contains_key(name) {
                    info!(interface = name, port = interface.port.0, "attached otherwise than before");
                }
                engine.tell(Event::Attached(interface.clone())).await;
            }
            told = now;
            if first {
                engine.tell(Event::Synced(Source::Interfaces)).await;
            }
        }
    }
}

/// The rows of a bridge that are Pods' ports; what cannot be read is reported once by whoever looks at the log.
fn rows(replica: &Replica, bridge: &str) -> Vec<(PodPort, Assigned)> {
    let read = || -> Result<Vec<(PodPort, Assigned)>, RowError> {
        let Some(bridge): Option<Bridge> = replica.named(bridge)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for port in replica.ports_of(&bridge)? {
            for row in replica.interfaces_of(&port)? {
                match PodPort::read(&row) {
                    Some(Ok(pod)) => found.push((pod, row.ofport)),
                    Some(Err(problem)) => {
                        warn!(interface = row.name, problem, "not a Pod's port, though it looks like one");
                    }
                    None => {}
                }
            }
        }
        Ok(found)
    };
    read().unwrap_or_else(|error| {
        warn!(%error, "the database cannot be read");
        Vec::new()
    })
}
