//! CNI calls: passes them to the brain, and carries out its effects on the IPAM store, on veths and on connection tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cni::{Attachment, AttachmentId, Call, Code, Error, Handler, Interface, Release};
use host::ipam::{self, Pool, Reservation};
use ipnet::IpNet;
use node::{AddRequest, AllocationError, CallId, CniError, CniErrorKind, CniEvent, Event};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use types::ObjectName;
use types::host::PodLink;

use crate::blocking::{BlockingError, blocking};
use crate::conntrack::{Conntrack, ConntrackError};
use crate::engine::Engine;

/// What the brain replies to a call: ADD gets the veth.
type Reply = Result<Option<PodLink>, CniError>;

/// Why addresses are not released.
#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error(transparent)]
    Store(#[from] BlockingError<ipam::Error>),
    #[error(transparent)]
    Connections(#[from] Arc<ConntrackError>),
}

/// Carries out CNI calls.
#[derive(Clone, Debug)]
pub(crate) struct Cni {
    engine: Engine,
    pool: Arc<Pool>,
    conntrack: Conntrack,
    calls: Arc<Calls>,
    /// Where the Node's `/proc` is mounted, if the agent runs in a Pod.
    proc: Option<Arc<PathBuf>>,
}

/// The calls that wait for a reply.
#[derive(Debug, Default)]
struct Calls {
    last: AtomicU64,
    waiting: Mutex<BTreeMap<CallId, oneshot::Sender<Reply>>>,
}

impl Cni {
    /// If the agent runs in a Pod, the Node's `/proc` is mounted under `prefix`.
    pub(crate) fn new(engine: Engine, pool: Pool, conntrack: Conntrack, prefix: &Path) -> Self {
        let proc = prefix.join("proc");
        let proc = Some(proc).filter(|path| path.join("1").exists()).map(Arc::new);
        Self { engine, pool: Arc::new(pool), conntrack, calls: Arc::default(), proc }
    }

    /// Accepts calls from now on; before, runtimes get a "try again" error.
    pub(crate) async fn open(&self) {
        self.engine.deliver(Event::Cni(CniEvent::Open)).await;
        let conntrack = self.conntrack.clone();
        tokio::spawn(async move {
            if let Err(error) = conntrack.list_tracked().await {
                debug!(%error, "cannot list connections; the agent flushes those of each address before a Pod gets it");
            }
        });
    }

    /// Waits until all detached veths are deleted and their addresses released.
    pub(crate) async fn wait_for_removals(&self) {
        // Fails only when the agent is stopping.
        let _ = self.engine.progress().wait_for(|progress| progress.idle).await;
    }

    /// Removes the leftovers of interrupted calls: addresses and veths without a port, ports without a veth.
    ///
    /// Must not run concurrently with other calls.
    pub(crate) async fn collect_garbage(&self) -> Result<(), Error> {
        let ports = self.engine.read(|brain| brain.pod_ports().cloned().collect::<Vec<_>>()).await;
        let (mut containers, mut veths, mut missing) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for port in ports {
            let device = port.name.clone();
            // On an error keep the port: its Pod may be running.
            let there = blocking(move || host::pod::is_plugged(&device)).await.unwrap_or(true);
            if there {
                containers.insert(port.container);
                veths.insert(port.name);
            } else {
                warn!(interface = port.name, pod = %port.pod, "the Pod's veth does not exist; removing its port");
                missing.push(port.name);
            }
        }
        self.collect(missing, containers).await?;
        let gone = blocking(move || host::pod::collect(&veths));
        let gone = gone.await.map_err(|error| Error::new(Code::Interface, error.to_string()))?;
        for device in gone {
            info!(device, "removed a veth that belongs to no port");
        }
        Ok(())
    }

    /// Removes ports, and releases the addresses of all containers but these.
    async fn collect(&self, ports: Vec<String>, containers: BTreeSet<String>) -> Result<(), Error> {
        self.engine.deliver(Event::Cni(CniEvent::Collect(ports))).await;
        self.wait_for_removals().await;
        let leaked = self.pool(move |pool| pool.leaked(&containers)).await.map_err(ipam_error)?;
        for ip in self.flush_and_free(leaked).await.map_err(ipam_error)? {
            info!(%ip, "released an address that no container of this Node holds");
        }
        Ok(())
    }

    /// Flushes the connections of addresses whose flows are not in the switch, and then frees the addresses.
    async fn flush_and_free(&self, held: Vec<Reservation>) -> Result<Vec<IpAddr>, ReleaseError> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        self.conntrack.flush_released(held.iter().map(|entry| entry.ip).collect()).await?;
        Ok(self.pool(move |pool| pool.free(&held)).await?)
    }

    /// Runs `work` on the IPAM store, and logs files there that cannot be used.
    async fn pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pool) -> Result<T, ipam::Error> + Send + 'static,
    ) -> Result<T, BlockingError<ipam::Error>> {
        let pool = Arc::clone(&self.pool);
        let done = blocking(move || work(&pool)).await;
        for ipam::Unusable { path, problem } in self.pool.news() {
            let file = path.display();
            warn!(%file, problem, "IPAM: cannot use this file; if it is named like an address, the address counts as \
                taken. Remove the file if no container uses the address");
        }
        done
    }

    /// Passes a call to the brain, and waits for the reply.
    async fn call(&self, event: impl FnOnce(CallId) -> CniEvent) -> Reply {
        let call = CallId(self.calls.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, receiver) = oneshot::channel();
        self.calls.waiting().insert(call, sender);
        self.engine.send(Event::Cni(event(call))).await;
        let stopping = || CniError {
            kind: CniErrorKind::TryAgain,
            message: "the agent is stopping".to_owned(),
            hint: String::new(),
        };
        receiver.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Fails until calls are accepted.
    async fn opened(&self) -> Result<(), Error> {
        match self.engine.read(node::Brain::accepts_calls).await {
            true => Ok(()),
            false => Err(not_ready()),
        }
    }

    /// Spawns work whose result is an event.
    fn spawn(&self, work: impl Future<Output = CniEvent> + Send + 'static) {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.send(Event::Cni(work.await)).await });
    }

    /// The same veth, with the path at which the agent sees the Pod's network namespace.
    fn visible(&self, link: PodLink) -> PodLink {
        match (&self.proc, link.netns.strip_prefix("/proc")) {
            (Some(proc), Ok(below)) => PodLink { netns: proc.join(below), ..link },
            _ => link,
        }
    }
}

/// Effects of the brain.
impl Cni {
    pub(crate) fn allocate(&self, call: CallId, id: node::AttachmentId) {
        let this = self.clone();
        self.spawn(async move {
            let owner = ipam::Owner::new(id.container, id.device);
            let allocate = move |pool: &Pool| -> Result<_, ipam::Error> {
                match pool.allocate(&owner) {
                    Ok(addresses) => Ok(Ok(addresses)),
                    Err(full @ ipam::Error::Full { .. }) => Ok(Err(AllocationError::Full(full.to_string()))),
                    Err(error) => Err(error),
                }
            };
            let outcome =
                this.pool(allocate).await.map_err(|error| AllocationError::Store(error.to_string())).flatten();
            CniEvent::Allocated { call, outcome }
        });
    }

    pub(crate) fn check_veth(&self, call: CallId, link: PodLink) {
        let link = self.visible(link);
        self.spawn(async move {
            let differences = blocking(move || host::pod::check(&link)).await;
            CniEvent::Checked { call, is_same: differences.is_ok_and(|differences| differences.is_empty()) }
        });
    }

    pub(crate) fn create_veth(&self, call: CallId, link: PodLink) {
        let (link, engine) = (self.visible(link), self.engine.clone());
        self.spawn(async move {
            let work = blocking(move || {
                // An interrupted ADD may have left a veth of this name.
                host::pod::detach(&link.host_device)?;
                host::pod::attach(&link, || engine.send_blocking(Event::Cni(CniEvent::VethCreated { call })))
            });
            CniEvent::VethAttached { call, outcome: outcome(work.await) }
        });
    }

    pub(crate) fn prepare_addresses(&self, call: CallId, addresses: Vec<IpAddr>) {
        let conntrack = self.conntrack.clone();
        self.spawn(async move {
            CniEvent::AddressesPrepared { call, outcome: outcome(conntrack.prepare(&addresses).await) }
        });
    }

    /// Without the announcement, neighbours send ARP requests.
    pub(crate) fn announce(&self, link: PodLink) {
        let link = self.visible(link);
        tokio::spawn(async move {
            let device = link.host_device.clone();
            if let Err(error) = blocking(move || host::pod::announce(&link)).await {
                warn!(device, %error, "cannot announce a Pod's addresses to neighbours");
            }
        });
    }

    pub(crate) fn delete_veth(&self, name: String) {
        self.spawn(async move {
            let device = name.clone();
            CniEvent::VethDeleted {
                name,
                outcome: outcome(blocking(move || host::pod::detach(&device)).await.map(drop)),
            }
        });
    }

    pub(crate) fn release(&self, id: node::AttachmentId, flush: bool) {
        let this = self.clone();
        self.spawn(async move {
            let owner = ipam::Owner::new(id.container.as_str(), id.device.as_str());
            let released = async {
                if !flush {
                    return Ok(this.pool(move |pool| pool.release(&owner)).await.map(drop)?);
                }
                let held = this.pool(move |pool| pool.held_by(&owner)).await?;
                this.flush_and_free(held).await.map(drop)
            };
            let failed = |error: ReleaseError| CniError {
                kind: CniErrorKind::Ipam,
                message: error.to_string(),
                hint: String::new(),
            };
            CniEvent::Released { outcome: released.await.map_err(failed), id }
        });
    }

    pub(crate) fn reply(&self, call: CallId, outcome: Reply) {
        if let Some(sender) = self.calls.waiting().remove(&call) {
            // Fails if the client is gone: the runtime follows a lost ADD with a DEL.
            let _ = sender.send(outcome);
        }
    }
}

impl Calls {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<CallId, oneshot::Sender<Reply>>> {
        // The map stays consistent even if a thread panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Cni {
    async fn add(&self, call: &Call) -> Result<Attachment, Error> {
        let request = AddRequest {
            id: attachment_id(&call.id),
            pod: ObjectName { namespace: call.pod.namespace.clone(), name: call.pod.name.clone() },
            uid: call.pod.uid.clone(),
            netns: call.netns.clone(),
            mtu: call.mtu,
        };
        match self.call(|call| CniEvent::Add { call, request: Box::new(request) }).await {
            Ok(link) => {
                info!(pod = %call.pod, container = %call.id.container, "attached Pod");
                Ok(link.map(|link| attachment(&link, &call.netns)).unwrap_or_default())
            }
            Err(error) => {
                warn!(pod = %call.pod, container = %call.id.container, %error, "cannot attach Pod");
                Err(cni_error(error))
            }
        }
    }

    async fn del(&self, release: &Release) -> Result<(), Error> {
        let (id, pod) = (attachment_id(&release.id), release.pod.as_ref().map(|pod| pod.name.clone()));
        let name = pod.clone();
        self.call(|call| CniEvent::Delete { call, id, pod }).await.map_err(cni_error)?;
        info!(container = %release.id.container, pod = name, "detached Pod");
        Ok(())
    }

    async fn check(&self, call: &Call, expected: &Attachment) -> Result<(), Error> {
        self.opened().await?;
        let changed = |what: String| Err(Error::new(Code::Check, what));
        let id = attachment_id(&call.id);
        let find = |brain: &node::Brain| {
            let port = brain.pod_ports().find(|port| port.container == id.container && port.device == id.device)?;
            Some((port.clone(), brain.link_of(port, call.mtu)))
        };
        let Some((port, link)) = self.engine.read(find).await else {
            return changed(format!("{} is not attached to the bridge", call.id));
        };
        for ip in expected.ips_of(call.id.ifname.as_str()) {
            if !port.addresses.contains(&ip.address.addr()) {
                return changed(format!("{} is not an address of Pod {}", ip.address, port.pod));
            }
        }
        let link = self.visible(link);
        let differences = blocking(move || host::pod::check(&link))
            .await
            .map_err(|error| Error::new(Code::Check, error.to_string()))?;
        match differences.first() {
            Some(difference) => changed(format!("Pod {}: {difference}", port.pod)),
            None => Ok(()),
        }
    }

    async fn status(&self) -> Result<(), Error> {
        let accepts = |brain: &node::Brain| brain.accepts_calls() && brain.is_ready();
        match self.engine.read(accepts).await {
            true => Ok(()),
            false => Err(Error { code: Code::NotAvailable, ..not_ready() }),
        }
    }

    async fn gc(&self, valid: &[AttachmentId]) -> Result<(), Error> {
        self.opened().await?;
        let is_valid = |container: &str, device: &str| {
            valid.iter().any(|id| id.container.as_str() == container && id.ifname.as_str() == device)
        };
        let invalid = |brain: &node::Brain| {
            let ports = brain.pod_ports().filter(|port| !is_valid(&port.container, &port.device));
            ports.map(|port| (port.name.clone(), port.pod.clone())).collect::<Vec<_>>()
        };
        let invalid = self.engine.read(invalid).await;
        for (interface, pod) in &invalid {
            info!(interface, %pod, "removing a port that the runtime does not list as valid (GC)");
        }
        let names = invalid.into_iter().map(|(name, _)| name).collect();
        self.collect(names, valid.iter().map(|id| id.container.to_string()).collect()).await
    }
}

/// The outcome of an effect, as an event has it.
fn outcome(done: Result<(), impl std::fmt::Display>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}

fn attachment_id(id: &AttachmentId) -> node::AttachmentId {
    node::AttachmentId { container: id.container.to_string(), device: id.ifname.to_string() }
}

fn cni_error(error: CniError) -> Error {
    match error.kind {
        CniErrorKind::Ipam => Error::new(Code::Ipam, error.message),
        CniErrorKind::Interface => Error::new(Code::Interface, error.message),
        CniErrorKind::TryAgain => Error::try_again(error.message, error.hint),
    }
}

fn ipam_error(error: impl Into<ReleaseError>) -> Error {
    Error::new(Code::Ipam, error.into().to_string())
}

fn not_ready() -> Error {
    cni_error(node::CniError::not_ready())
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
