//! CNI calls: attaches Pods to the bridge and detaches them.
//!
//! An attached Pod has addresses in the IPAM store, a veth, a row in OVSDB and flows in the switch. A restarted agent learns the
//! Pod from the row: it is inserted when the veth exists, and deleted before the veth. DEL returns before the veth is deleted,
//! and before the addresses are released, which needs the Pod's flows out of the switch and its connections out of the
//! connection tables. The next call for the same container, or [`Cni::collect_garbage`], cleans up after an interrupted call.

mod in_progress;
mod interface_name;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::cni::{Attachment, AttachmentId, Call, Code, Error, Handler, Interface, Release};
use host::ipam::{self, Pool, Reservation};
use ipnet::IpNet;
use node::{Event, Own, Owner};
use ovs::backoff::Backoff;
use pipeline::model::Address;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use types::host::PodLink;
use types::{Mac, ObjectName};

use crate::conntrack::Conntrack;
use crate::engine::Engine;
use crate::ports::{PodPort, Ports, Reserved};
use in_progress::{Releases, Removals};
use interface_name::interface_name;

/// How long the switch may take to assign an OpenFlow port and to install the flows.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Hint for operators if addresses are not released.
const RELEASE_HINT: &str = "is ovs-vswitchd running? See the log of antrea-agent";

/// Attaches Pods to this Node's bridge.
#[derive(Clone, Debug)]
pub(crate) struct Cni {
    own: Arc<Own>,
    engine: Engine,
    ports: Ports,
    pool: Arc<Pool>,
    removals: Removals,
    releases: Releases,
    conntrack: Conntrack,
    /// Whether calls are accepted: not before the leftovers of earlier calls are collected.
    open: Arc<AtomicBool>,
    /// Where the Node's `/proc` is mounted, if the agent runs in a Pod.
    proc: Option<Arc<PathBuf>>,
}

impl Cni {
    /// If the agent runs in a Pod, the Node's `/proc` is mounted under `prefix`.
    pub(crate) fn new(
        own: Arc<Own>,
        engine: Engine,
        ports: Ports,
        pool: Pool,
        conntrack: Conntrack,
        prefix: &Path,
    ) -> Self {
        let proc = prefix.join("proc");
        Self {
            own,
            engine,
            ports,
            pool: Arc::new(pool),
            removals: Removals::new(),
            releases: Releases::new(),
            conntrack,
            open: Arc::default(),
            proc: Some(proc).filter(|path| path.join("1").exists()).map(Arc::new),
        }
    }

    /// Accepts calls from now on; before, runtimes get a "try again" error.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The path at which the agent sees a network namespace that a runtime names.
    fn netns(&self, named: &str) -> PathBuf {
        match (&self.proc, Path::new(named).strip_prefix("/proc")) {
            (Some(proc), Ok(below)) => proc.join(below),
            _ => PathBuf::from(named),
        }
    }

    /// Waits until all detached veths are deleted and their addresses released.
    pub(crate) async fn wait_for_removals(&self) {
        self.removals.wait_for_all().await;
        self.releases.wait_for_all().await;
    }

    /// Removes the leftovers of interrupted calls: addresses and veths without a port, ports without a veth.
    ///
    /// Must not run concurrently with other calls.
    pub(crate) async fn collect_garbage(&self) -> Result<(), Error> {
        let (mut containers, mut veths) = (BTreeSet::new(), BTreeSet::new());
        for (port, _) in self.ports.all() {
            let device = port.name.clone();
            // On an error keep the port: its Pod may be running.
            let there = blocking(move || host::pod::is_plugged(&device)).await.unwrap_or(true);
            if there {
                containers.insert(port.container);
                veths.insert(port.name);
            } else {
                warn!(interface = port.name, pod = %port.pod, "the Pod's veth does not exist; removing its port");
                self.remove_port(&port.name, None).await?;
            }
        }
        self.wait_for_removals().await;
        self.release_all_except(containers).await?;
        let gone = blocking(move || host::pod::collect(&veths));
        let gone = gone.await.map_err(|error| Error::new(Code::Interface, error))?;
        for device in gone {
            info!(device, "removed a veth that belongs to no port");
        }
        Ok(())
    }

    /// Releases the addresses of all containers but these.
    async fn release_all_except(&self, containers: BTreeSet<String>) -> Result<(), Error> {
        let leaked = self.pool(move |pool| pool.leaked(&containers)).await?;
        if leaked.is_empty() {
            return Ok(());
        }
        for ip in self.flush_and_release(leaked).await? {
            info!(%ip, "released an address that no container of this Node holds");
        }
        Ok(())
    }

    /// Flushes the connections of addresses whose ports are deleted, and then releases the addresses.
    async fn flush_and_release(&self, held: Vec<Reservation>) -> Result<Vec<IpAddr>, Error> {
        // While the Pod's flows are in the switch, they could create a flushed connection again. The engine logs rejections.
        let _ = self.engine.installed(Owner::Node).await;
        let addresses = held.iter().map(|entry| entry.ip).collect();
        self.conntrack.flush_released(addresses).await.map_err(|error| Error::new(Code::Ipam, error))?;
        self.pool(move |pool| pool.free(&held)).await
    }

    /// Releases the addresses of an attachment whose port is deleted, in the background. The next call for the same container
    /// waits for it.
    async fn release(&self, owner: ipam::Owner) -> Result<(), Error> {
        let of = owner.clone();
        let held = self.pool(move |pool| pool.held_by(&of)).await?;
        if held.is_empty() {
            return Ok(());
        }
        let this = self.clone();
        self.releases.begin(owner, (), async move {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
            while let Err(error) = this.flush_and_release(held.clone()).await {
                let delay = backoff.next_delay();
                if backoff.is_news() {
                    let addresses: Vec<IpAddr> = held.iter().map(|entry| entry.ip).collect();
                    warn!(?addresses, %error, "cannot release addresses of a deleted Pod; retrying");
                }
                tokio::time::sleep_until((Instant::now() + delay).into()).await;
            }
        });
        Ok(())
    }

    /// Allocates addresses for an attachment.
    async fn allocate(&self, owner: ipam::Owner) -> Result<Vec<IpAddr>, Error> {
        let ended = timeout(CONNECT_TIMEOUT, self.releases.wait_for(&owner)).await;
        ended.map_err(|_| {
            Error::try_again(
                format!("addresses of container {} are still being released", owner.container),
                RELEASE_HINT,
            )
        })?;
        let allocate = || {
            let owner = owner.clone();
            self.pool(move |pool| match pool.allocate(&owner) {
                Err(full @ ipam::Error::Full { .. }) => Ok(Err(Error::new(Code::Ipam, full.to_string()))),
                other => other.map(Ok),
            })
        };
        let allocated = async {
            loop {
                // Addresses of deleted Pods may be released soon.
                let pending = self.releases.count();
                match allocate().await? {
                    Err(_) if pending > 0 => self.releases.fewer_than(pending).await,
                    allocated => return allocated,
                }
            }
        };
        match timeout(CONNECT_TIMEOUT, allocated).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(Error::try_again("all Pod addresses are in use, and some are still being released", RELEASE_HINT))
            }
        }
    }

    /// Runs `work` on the IPAM store, and logs files there that cannot be used.
    async fn pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pool) -> Result<T, ipam::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let pool = Arc::clone(&self.pool);
        let done = blocking(move || work(&pool)).await.map_err(|error| Error::new(Code::Ipam, error));
        for ipam::Unusable { path, problem } in self.pool.news() {
            let file = path.display();
            warn!(%file, problem, "IPAM: cannot use this file; if it is named like an address, the address counts as \
                taken. Remove the file if no container uses the address");
        }
        done
    }

    /// Fails unless Pods can be attached.
    fn ready(&self) -> Result<(), Error> {
        self.opened()?;
        let progress = *self.engine.progress().borrow();
        if progress.ready { Ok(()) } else { Err(not_ready()) }
    }

    /// Fails until calls are accepted.
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

    async fn attach(&self, call: &Call) -> Result<Attachment, Error> {
        let (container, device) = (call.id.container.as_str(), call.id.ifname.as_str());
        let addresses = self.allocate(ipam::Owner::new(container, device)).await?;
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
        debug!(interface = port.name, addresses = ?port.addresses, "allocated Pod addresses");
        let link = self.link_of(&port, call.mtu);
        if self.ports.of(container).contains(&port) {
            let checked = link.clone();
            let differences = blocking(move || host::pod::check(&checked)).await;
            if differences.is_ok_and(|differences| differences.is_empty()) {
                return Ok(attachment(&link, &call.netns));
            }
            // The veth has drifted: create it again.
            self.remove_port(&port.name, None).await?;
        }
        self.removals.wait_for_conflicts(&port.name, &port.netns).await;
        // The flows are installed while the kernel creates the veth.
        let reserved = self.ports.reserve();
        let number = reserved.as_ref().map(Reserved::number);
        if let Some(number) = number {
            self.engine.send(Event::Attached(port.interface(number))).await;
        }
        let pod_link = link.clone();
        let (created, host_end) = oneshot::channel();
        let attached = async {
            let work = blocking(move || {
                // An interrupted ADD may have left a veth of this name.
                host::pod::detach(&pod_link.host_device)?;
                host::pod::attach(&pod_link, || _ = created.send(()))
            });
            work.await.inspect(|()| debug!(interface = port.name, "created the Pod's veth"))
        };
        let connected = async {
            match host_end.await {
                Ok(()) => self.connect(&port, number).await,
                // There is no veth; the other future returns the error.
                Err(_) => Ok(()),
            }
        };
        // Run both to the end even if one fails: a cancelled transaction may still insert its row.
        let (attached, connected) = tokio::join!(attached, connected);
        attached.map_err(|error| Error::new(Code::Interface, error))?;
        connected?;
        let answer = attachment(&link, &call.netns);
        // In the background: without the announcement, neighbours send ARP requests.
        let announced = blocking(move || host::pod::announce(&link));
        tokio::spawn(async move {
            if let Err(error) = announced.await {
                warn!(pod = %port.pod, error, "cannot announce the Pod's addresses to neighbours");
            }
        });
        Ok(answer)
    }

    /// Adds a veth to the bridge, requesting an OpenFlow port, and waits until its flows are installed.
    async fn connect(&self, port: &PodPort, requested: Option<u16>) -> Result<(), Error> {
        let failed = |message: String| Error::new(Code::Interface, message);
        let connected = async {
            self.ports.add(port, requested).await.map_err(|error| failed(error.to_string()))?;
            debug!(interface = port.name, "added the port to OVSDB");
            let owner = Owner::Interface(port.name.clone());
            // Connections of the address belong to the Pod that had it before.
            let prepare = async || {
                self.engine.installed(owner.clone()).await?;
                self.conntrack.prepare(&port.addresses).await
            };
            let early = async { if requested.is_some() { prepare().await } else { Ok(()) } };
            let (number, prepared) = tokio::join!(self.ports.assigned(&port.name), early);
            let number = number.map_err(failed)?;
            debug!(interface = port.name, number, "the switch assigned an OpenFlow port");
            prepared.map_err(failed)?;
            // The switch may have assigned another number, and `Ports::follow` may have sent `Detached` for an older port of
            // this name.
            self.engine.send(Event::Attached(port.interface(number))).await;
            self.engine.installed(owner.clone()).await.map_err(failed)?;
            if requested.is_none() {
                prepare().await.map_err(failed)?;
            }
            Ok(())
        };
        match timeout(CONNECT_TIMEOUT, connected).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timeout_error(port).await),
        }
    }

    /// The error for a port that was not connected in time.
    async fn timeout_error(&self, port: &PodPort) -> Error {
        let owner = Owner::Interface(port.name.clone());
        if self.engine.query(move |brain| brain.is_held(&owner)).await.unwrap_or_default() {
            let message =
                format!("antrea-controller did not send the policies of Pod {} within {CONNECT_TIMEOUT:?}", port.pod);
            return Error::try_again(
                message,
                "is antrea-controller running, and can it list the Pod? See the log of antrea-agent",
            );
        }
        let message = format!("Open vSwitch did not connect interface {} within {CONNECT_TIMEOUT:?}", port.name);
        Error::try_again(message, "is ovs-vswitchd running? See the log of antrea-agent")
    }

    /// Removes a port and its flows, if they exist, and starts to delete its veth.
    async fn remove_port(&self, name: &str, netns: Option<String>) -> Result<(), Error> {
        let failed = |error: String| Error::new(Code::Interface, error);
        self.engine.send(Event::Detached(name.to_owned())).await;
        self.ports.remove(name).await.map_err(|error| failed(error.to_string()))?;
        let device = name.to_owned();
        self.removals.begin(name.to_owned(), netns, async move {
            let detached = device.clone();
            if let Err(error) = blocking(move || host::pod::detach(&detached)).await {
                warn!(device, error, "cannot remove the veth; the agent tries again at its next start");
            }
        });
        Ok(())
    }

    /// Removes whatever exists of an attachment.
    async fn detach(&self, id: &AttachmentId, pod: Option<&str>) -> Result<(), Error> {
        let (container, device) = (id.container.as_str(), id.ifname.as_str());
        let rows: Vec<PodPort> = self.ports.of(container).into_iter().filter(|port| port.device == device).collect();
        let was_connected = !rows.is_empty();
        // An interrupted call may have left a veth without a row.
        let mut veths: BTreeMap<String, Option<String>> =
            pod.map(|pod| (interface_name(pod, container), None)).into_iter().collect();
        veths.extend(rows.into_iter().map(|port| (port.name, Some(port.netns))));
        for (name, netns) in veths {
            self.remove_port(&name, netns).await?;
        }
        let owner = ipam::Owner::new(container, device);
        if was_connected {
            return self.release(owner).await;
        }
        // Without a port there are no connections, or the next ADD flushes them. A release in progress is left alone.
        if !self.releases.contains(&owner) {
            self.pool(move |pool| pool.release(&owner)).await?;
        }
        Ok(())
    }
}

impl Handler for Cni {
    async fn add(&self, call: &Call) -> Result<Attachment, Error> {
        self.ready()?;
        let attached = self.attach(call).await;
        match &attached {
            Ok(_) => info!(pod = %call.pod, container = %call.id.container, "attached Pod"),
            Err(error) => {
                warn!(pod = %call.pod, container = %call.id.container, %error, "cannot attach Pod");
                if let Err(error) = self.detach(&call.id, Some(&call.pod.name)).await {
                    warn!(pod = %call.pod, %error, "cannot roll back the failed ADD; the runtime's DEL tries again");
                }
            }
        }
        attached
    }

    async fn del(&self, release: &Release) -> Result<(), Error> {
        self.opened()?;
        let pod = release.pod.as_ref().map(|pod| pod.name.as_str());
        self.detach(&release.id, pod).await?;
        info!(container = %release.id.container, pod, "detached Pod");
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
                info!(interface = port.name, pod = %port.pod, "removing a port that the runtime does not list as valid (GC)");
                self.remove_port(&port.name, Some(port.netns)).await?;
            }
        }
        self.release_all_except(valid.iter().map(|id| id.container.to_string()).collect()).await
    }
}

fn not_ready() -> Error {
    let details = "antrea-agent waits for Open vSwitch, the Kubernetes API or antrea-controller; see its log";
    Error::try_again("the network of this Node is not ready", details)
}

/// The CNI result, with the network namespace path that the runtime passed.
fn attachment(link: &PodLink, netns: &str) -> Attachment {
    let host = Interface { name: link.host_device.clone(), mtu: Some(link.mtu), ..Interface::default() };
    let container = Interface {
        name: link.container_device.clone(),
        mac: link.mac.to_string(),
        sandbox: netns.to_owned(),
        mtu: Some(link.mtu),
    };
    let gateway = |net: &IpNet| link.gateways.iter().find(|ip| ip.is_ipv4() == net.addr().is_ipv4()).copied();
    let mut result = Attachment::of_pair(host, container, link.addresses.iter().map(|net| (*net, gateway(net))));
    result.routes = link
        .gateways
        .iter()
        .map(|gateway| api::cni::Route {
            destination: default_destination(*gateway),
            gateway: Some(*gateway),
            mtu: None,
        })
        .collect();
    result
}

/// The default route's destination of an address family.
fn default_destination(of_family: IpAddr) -> IpNet {
    match of_family {
        IpAddr::V4(_) => IpNet::from(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::from(ipnet::Ipv6Net::default()),
    }
}

/// Runs `work` on the blocking thread pool once the future is polled.
pub(crate) async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    let handle = tokio::task::spawn_blocking(move || work().map_err(|error| error.to_string()));
    handle.await.unwrap_or_else(|error| Err(format!("a bug: {error}")))
}
