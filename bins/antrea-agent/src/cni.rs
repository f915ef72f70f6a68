//! Pods come and go: what a container runtime asks for, carried out.
//!
//! A Pod that is attached has an address in the IPAM store, a cable, a row in OVSDB and flows in the switch. The row is what an
//! agent that was restarted knows the Pod by: it is made when the cable is there, and removed before the cable goes, for which a
//! runtime does not wait. What is left of a call that was cut short is found by the same container's next call, or by
//! [`Cni::collect`].

mod interface_name;
mod removals;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::cni::{Attachment, AttachmentId, Call, Code, Error, Handler, Interface, Release};
use host::ipam::{self, Pool};
use ipnet::IpNet;
use node::{Event, Own, Owner};
use pipeline::model::Address;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use types::host::PodLink;
use types::{Mac, ObjectName};

use crate::engine::Engine;
use crate::ports::{PodPort, Ports, Reserved};
use interface_name::interface_name;
use removals::Removals;

/// How long the switch may take to give a port its number, and to hold its flows.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attaches Pods to this Node's bridge.
#[derive(Clone, Debug)]
pub(crate) struct Cni {
    own: Arc<Own>,
    engine: Engine,
    ports: Ports,
    pool: Arc<Pool>,
    removals: Removals,
    /// Whether what earlier calls have left behind was collected, which is done alone.
    open: Arc<AtomicBool>,
    /// Where the Node's `/proc` is seen, if that is not where it is on the Node.
    proc: Option<Arc<PathBuf>>,
}

impl Cni {
    /// Attaches Pods with addresses of a pool. In an agent that runs in a Pod, the Node's `/proc` is below `prefix`.
    pub(crate) fn new(own: Arc<Own>, engine: Engine, ports: Ports, pool: Pool, prefix: &Path) -> Self {
        let proc = Some(prefix.join("proc")).filter(|path| path.join("1").exists()).map(Arc::new);
        Self { own, engine, ports, pool: Arc::new(pool), removals: Removals::new(), open: Arc::default(), proc }
    }

    /// From now on calls are carried out; until then, runtimes are told to try again.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Where the agent finds a network namespace that a runtime names.
    fn netns(&self, named: &str) -> PathBuf {
        match (&self.proc, Path::new(named).strip_prefix("/proc")) {
            (Some(proc), Ok(below)) => proc.join(below),
            _ => PathBuf::from(named),
        }
    }

    /// Waits until what was detached is gone from the kernel.
    pub(crate) async fn settled(&self) {
        self.removals.ended().await;
    }

    /// Removes what calls that were cut short have left behind: addresses and cables of no port, ports without a cable.
    ///
    /// No call may be under way.
    pub(crate) async fn collect(&self) -> Result<(), Error> {
        let (mut containers, mut cables) = (BTreeSet::new(), BTreeSet::new());
        for (port, _) in self.ports.all() {
            let device = port.name.clone();
            // Where nobody can tell, nothing is taken from a Pod that may live.
            let there = blocking(move || host::pod::is_plugged(&device)).await.unwrap_or(true);
            if there {
                containers.insert(port.container);
                cables.insert(port.name);
            } else {
                warn!(interface = port.name, pod = %port.pod, "its cable is gone, and with it the port");
                self.take_out(&port.name, None).await?;
            }
        }
        self.settled().await;
        self.free_all_but(containers).await?;
        let gone = blocking(move || host::pod::collect(&cables));
        let gone = gone.await.map_err(|error| Error::new(Code::Interface, error))?;
        for device in gone {
            info!(device, "what was left of a Pod's cable was removed");
        }
        Ok(())
    }

    /// Gives back the addresses of all containers but these.
    async fn free_all_but(&self, containers: BTreeSet<String>) -> Result<(), Error> {
        let pool = Arc::clone(&self.pool);
        let freed = blocking(move || pool.collect(&containers));
        for ip in freed.await.map_err(|error| Error::new(Code::Ipam, error))? {
            info!(%ip, "an address that was nobody's is free again");
        }
        Ok(())
    }

    /// Fails unless the switch holds what Pods need.
    fn ready(&self) -> Result<(), Error> {
        self.opened()?;
        let progress = *self.engine.progress().borrow();
        if progress.ready { Ok(()) } else { Err(not_ready()) }
    }

    /// Fails until calls are carried out at all.
    fn opened(&self) -> Result<(), Error> {
        if self.open.load(Ordering::Acquire) { Ok(()) } else { Err(not_ready()) }
    }

    fn link_of(&self, port: &PodPort, mtu: Option<u32>) -> PodLink {
        let family = |ip: &IpAddr| self.own.families().find(|address| address.pod_cidr.contains(ip));
        let with_prefix = |address: Address, ip: &IpAddr| IpNet::new(*ip, address.pod_cidr.prefix_len()).ok();
        PodLink {
            netns: self.netns(&port.netns),
            container_device: port.device.clone(),
            host_device: port.name.clone(),
            mac: port.mac,
            addresses: port.addresses.iter().filter_map(|ip| with_prefix(family(ip)?, ip)).collect(),
            gateways: port.addresses.iter().filter_map(|ip| Some(family(ip)?.gateway)).collect(),
            routes: Vec::new(),
            mtu: mtu.unwrap_or(self.own.mtu).min(self.own.mtu),
            datapath: match self.own.datapath {
                pipeline::model::Datapath::System | pipeline::model::Datapath::Windows => types::host::Datapath::System,
                pipeline::model::Datapath::Netdev => types::host::Datapath::Netdev,
            },
        }
    }

    async fn plug(&self, call: &Call) -> Result<Attachment, Error> {
        let (container, device) = (call.id.container.as_str(), call.id.ifname.as_str());
        let (pool, owner) = (Arc::clone(&self.pool), ipam::Owner::new(container, device));
        let addresses = blocking(move || pool.allocate(&owner));
        let addresses = addresses.await.map_err(|error| Error::new(Code::Ipam, error))?;
        let Some(first) = addresses.first() else {
            return Err(Error::new(Code::Ipam, "this Node has no Pod subnet"));
        };
        let port = PodPort {
            name: interface_name(&call.pod.name, container),
            container: container.to_owned(),
            pod: ObjectName { namespace: call.pod.namespace.clone(), name: call.pod.name.clone() },
            uid: call.pod.uid.clone(),
            mac: Mac::of_ip(*first),
            addresses,
            device: device.to_owned(),
            netns: call.netns.clone(),
        };
        debug!(interface = port.name, addresses = ?port.addresses, "it has its addresses");
        let link = self.link_of(&port, call.mtu);
        if self.ports.of(container).contains(&port) {
            let checked = link.clone();
            let differences = blocking(move || host::pod::check(&checked)).await;
            if differences.is_ok_and(|differences| differences.is_empty()) {
                return Ok(attachment(&link, &call.netns));
            }
            // Somebody has torn it: made anew it is whole.
            self.take_out(&port.name, None).await?;
        }
        self.removals.make_way(&port.name, &port.netns).await;
        // The switch learns what to do with the port while the kernel makes the cable.
        let reserved = self.ports.reserve();
        let number = reserved.as_ref().map(Reserved::number);
        if let Some(number) = number {
            self.engine.tell(Event::Attached(port.interface(number))).await;
        }
        let plugged = link.clone();
        let (there, host_end) = oneshot::channel();
        let plugged = async {
            let plugged = blocking(move || {
                // What an ADD without an end has left would be in the way.
                host::pod::detach(&plugged.host_device)?;
                host::pod::attach(&plugged, || _ = there.send(()))
            });
            plugged.await.inspect(|()| debug!(interface = port.name, "its cable is plugged"))
        };
        let connected = async {
            match host_end.await {
                Ok(()) => self.connect(&port, number).await,
                // There is no cable, and whoever should have made it says why.
                Err(_) => Ok(()),
            }
        };
        // Neither is left half-way if the other one fails: a transaction that is given up may still become a row.
        let (plugged, connected) = tokio::join!(plugged, connected);
        plugged.map_err(|error| Error::new(Code::Interface, error))?;
        connected?;
        let answer = attachment(&link, &call.netns);
        // Not waited for: without it, neighbours ask.
        let announced = blocking(move || host::pod::announce(&link));
        tokio::spawn(async move {
            if let Err(error) = announced.await {
                warn!(pod = %port.pod, error, "could not be announced");
            }
        });
        Ok(answer)
    }

    /// Makes a cable a port of the bridge, by this number if it can be, and waits until the switch knows what to do with it.
    async fn connect(&self, port: &PodPort, asked: Option<u16>) -> Result<(), Error> {
        let failed = |message: String| Error::new(Code::Interface, message);
        let connected = async {
            self.ports.add(port, asked).await.map_err(|error| failed(error.to_string()))?;
            debug!(interface = port.name, "it is in the database");
            let number = self.ports.assigned(&port.name).await.map_err(failed)?;
            debug!(interface = port.name, number, "it is in the switch");
            // It may be another number; and whoever saw a port of this name go may have taken back what was told before.
            self.engine.tell(Event::Attached(port.interface(number))).await;
            self.engine.installed(Owner::Interface(port.name.clone())).await.map_err(failed)
        };
        match timeout(PATIENCE, connected).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.late(port).await),
        }
    }

    /// Why a port is not connected yet.
    async fn late(&self, port: &PodPort) -> Error {
        let owner = Owner::Interface(port.name.clone());
        if self.engine.look(move |brain| brain.is_held(&owner)).await.unwrap_or_default() {
            let message =
                format!("antrea-controller has not said within {PATIENCE:?} which policies Pod {} has", port.pod);
            return Error::try_again(message, "is it running, and does it see the Pod? antrea-agent's log has more");
        }
        let message = format!("Open vSwitch has not connected interface {} within {PATIENCE:?}", port.name);
        Error::try_again(message, "is ovs-vswitchd running? antrea-agent's log has more")
    }

    /// Removes a port and its flows, if they are there, and begins to remove its cable.
    async fn take_out(&self, name: &str, netns: Option<String>) -> Result<(), Error> {
        let failed = |error: String| Error::new(Code::Interface, error);
        self.engine.tell(Event::Detached(name.to_owned())).await;
        self.ports.remove(name).await.map_err(|error| failed(error.to_string()))?;
        let device = name.to_owned();
        self.removals.begin(name.to_owned(), netns, blocking(move || host::pod::detach(&device)));
        Ok(())
    }

    /// Removes all that an attachment has, whatever is left of it.
    async fn unplug(&self, id: &AttachmentId, pod: Option<&str>) -> Result<(), Error> {
        let (container, device) = (id.container.as_str(), id.ifname.as_str());
        let rows = self.ports.of(container).into_iter().filter(|port| port.device == device);
        // A call that was cut short may have left a cable and no row.
        let mut cables: BTreeMap<String, Option<String>> =
            pod.map(|pod| (interface_name(pod, container), None)).into_iter().collect();
        cables.extend(rows.map(|port| (port.name, Some(port.netns))));
        for (name, netns) in cables {
            self.take_out(&name, netns).await?;
        }
        let (pool, owner) = (Arc::clone(&self.pool), ipam::Owner::new(container, device));
        blocking(move || pool.release(&owner)).await.map(drop).map_err(|error| Error::new(Code::Ipam, error))
    }
}

impl Handler for Cni {
    async fn add(&self, call: &Call) -> Result<Attachment, Error> {
        self.ready()?;
        let made = self.plug(call).await;
        match &made {
            Ok(_) => info!(pod = %call.pod, container = %call.id.container, "attached"),
            Err(error) => {
                warn!(pod = %call.pod, container = %call.id.container, %error, "could not be attached");
                if let Err(error) = self.unplug(&call.id, Some(&call.pod.name)).await {
                    warn!(pod = %call.pod, %error, "what was done could not be undone; the runtime's DEL will try again");
                }
            }
        }
        made
    }

    async fn del(&self, release: &Release) -> Result<(), Error> {
        self.opened()?;
        let pod = release.pod.as_ref().map(|pod| pod.name.as_str());
        self.unplug(&release.id, pod).await?;
        info!(container = %release.id.container, pod, "detached");
        Ok(())
    }

    async fn check(&self, call: &Call, expected: &Attachment) -> Result<(), Error> {
        self.opened()?;
        let changed = |what: String| Err(Error::new(Code::Check, what));
        let ports = self.ports.of(call.id.container.as_str());
        let Some(port) = ports.into_iter().find(|port| port.device == call.id.ifname.as_str()) else {
            return changed(format!("{} is not attached to the bridge", call.id));
        };
        for ip in expected.ips_of(call.id.ifname.as_str()) {
            if !port.addresses.contains(&ip.address.addr()) {
                return changed(format!("{} is not an address of Pod {}", ip.address, port.pod));
            }
        }
        let link = self.link_of(&port, call.mtu);
        let differences =
            blocking(move || host::pod::check(&link)).await.map_err(|error| Error::new(Code::Check, error))?;
        match differences.first() {
            Some(difference) => changed(format!("Pod {}: {difference}", port.pod)),
            None => Ok(()),
        }
    }

    async fn status(&self) -> Result<(), Error> {
        self.ready().map_err(|error| Error { code: Code::NotAvailable, ..error })
    }

    async fn gc(&self, valid: &[AttachmentId]) -> Result<(), Error> {
        self.opened()?;
        let is_valid = |container: &str, device: &str| {
            valid.iter().any(|id| id.container.as_str() == container && id.ifname.as_str() == device)
        };
        for (port, _) in self.ports.all() {
            if !is_valid(&port.container, &port.device) {
                info!(interface = port.name, pod = %port.pod, "the runtime no longer knows it");
                self.take_out(&port.name, Some(port.netns)).await?;
            }
        }
        self.free_all_but(valid.iter().map(|id| id.container.to_string()).collect()).await
    }
}

fn not_ready() -> Error {
    let details = "antrea-agent waits for Open vSwitch, the Kubernetes API or antrea-controller; its log says for what";
    Error::try_again("the network of this Node is not ready", details)
}

/// What the runtime is told, which knows the namespace by the name that it gave.
fn attachment(link: &PodLink, netns: &str) -> Attachment {
    let host = Interface { name: link.host_device.clone(), mtu: Some(link.mtu), ..Interface::default() };
    let container = Interface {
        name: link.container_device.clone(),
        mac: link.mac.to_string(),
        sandbox: netns.to_owned(),
        mtu: Some(link.mtu),
    };
    let gateway = |net: &IpNet| link.gateways.iter().find(|ip| ip.is_ipv4() == net.addr().is_ipv4()).copied();
    let mut made = Attachment::of_pair(host, container, link.addresses.iter().map(|net| (*net, gateway(net))));
    made.routes = link
        .gateways
        .iter()
        .map(|gateway| api::cni::Route { destination: everything(*gateway), gateway: Some(*gateway), mtu: None })
        .collect();
    made
}

/// All addresses of a family.
fn everything(of_family: IpAddr) -> IpNet {
    match of_family {
        IpAddr::V4(_) => IpNet::from(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::from(ipnet::Ipv6Net::default()),
    }
}

/// Runs what waits for the kernel or a disk where nobody else waits for it, once it is polled.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    let handle = tokio::task::spawn_blocking(move || work().map_err(|error| error.to_string()));
    handle.await.unwrap_or_else(|error| Err(format!("a bug: {error}")))
}
