//! The server: sockets, tasks, files.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_rustls::TlsAcceptor;

use crate::allocate::Allocator;
use crate::auth::{Authority, FRONT_PROXY, Identity, KUBELET_CLIENT, Rbac, Signer, TokenRequestSpec, certified};
use crate::core::Core;
use crate::local::Local;
use crate::objects::Object;
use crate::serve::{self, Backends, Dialer, Kubelets, Never, State};
use crate::snapshot::Disk;
use crate::store::Store;
use crate::{bootstrap, controllers, snapshot, tls};

/// Range of ports for NodePort Services.
const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Directory for certificates, keys and the snapshot; `None` keeps everything in memory only.
    pub data_dir: Option<PathBuf>,
    /// Ranges of ClusterIPs, one for each family, the preferred one first.
    pub service_cidrs: Vec<IpNet>,
    /// Number of events kept for each resource, for watches that resume.
    pub history: usize,
    /// Interval of bookmarks on quiet watches that ask for them.
    pub bookmark_every: Duration,
    /// Whether to run the controllers: EndpointSlices, workloads, namespaces, garbage collection.
    pub controllers: bool,
    /// Whether to remove the taint `not-ready` from Nodes that report ready.
    pub ready_nodes: bool,
    /// Ranges for Pod CIDRs of Nodes, one for each family; if empty, Nodes set their own or have none.
    pub pod_cidrs: Vec<IpNet>,
    /// Additional names and addresses for the server's certificate.
    pub names: Vec<String>,
    /// Opens the connections to kubelets, for logs, commands and ports of Pods.
    pub kubelets: Dialer,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: None,
            service_cidrs: vec![IpNet::V4(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 12))],
            history: 8192,
            bookmark_every: Duration::from_secs(60),
            controllers: true,
            ready_nodes: true,
            pod_cidrs: Vec::new(),
            names: Vec::new(),
            kubelets: Dialer::default(),
        }
    }
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or not an address of this machine.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Keys, certificates or the snapshot could not be read or written.
    #[error("cannot use the data directory {}", .0.display())]
    Data(PathBuf, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// Keys or certificates could not be created.
    #[error("cannot create certificates")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StartError {
    /// Whether a retry may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Listen(_, error) if error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

/// What a kubelet needs to serve this API server, and no other client. All as PEM.
#[derive(Clone, Debug)]
pub struct KubeletCertificates {
    /// Certificate of the kubelet.
    pub certificate: String,
    /// Private key of the kubelet.
    pub key: String,
    /// The certificate that the API server presents.
    pub client: String,
}

/// A running server. It stops on drop; [`ApiServer::stop`] also saves its state.
pub struct ApiServer {
    state: Arc<State>,
    address: SocketAddr,
    authority: Authority,
    kubelet_client: Identity,
    data_dir: Option<PathBuf>,
    ending: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server; it accepts connections on return.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let directory = options.data_dir.as_deref();
        let data = |error| match directory {
            Some(directory) => StartError::Data(directory.to_owned(), error),
            None => StartError::Certificates(error),
        };
        if let Some(directory) = directory {
            std::fs::create_dir_all(directory).map_err(|error| data(error.into()))?;
        }
        let authority = Authority::load(directory).map_err(data)?;
        let signer = Signer::load(directory).map_err(data)?;
        let allocator = Allocator::new(options.service_cidrs.clone(), NODE_PORTS);
        let core = Core::new(Store::new(options.history), allocator, signer, authority.pem.clone());
        let disk = directory.map(|directory| Disk::open(&core, directory)).transpose();
        let disk = disk.map_err(|error| data(error.into()))?;
        bootstrap::bootstrap(&core);
        let core = Arc::new(core);

        let listener =
            TcpListener::bind(options.listen).await.map_err(|error| StartError::Listen(options.listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(options.listen, error))?;
        let mut names = options.names.clone();
        names.extend(
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1"]
                .map(str::to_owned),
        );
        names.push(address.ip().to_string());
        names.extend(bootstrap::service_address(&core));
        names.sort();
        names.dedup();
        let config = tls::server(&authority, &names).map_err(StartError::Certificates)?;
        let front = authority.client(FRONT_PROXY, None).map_err(|error| StartError::Certificates(error.into()))?;
        let kubelet_client =
            authority.client(KUBELET_CLIENT, None).map_err(|error| StartError::Certificates(error.into()))?;
        let to_kubelets = tls::to_kubelets(&authority, &kubelet_client).map_err(StartError::Certificates)?;
        let (ending, ended) = watch::channel(false);
        let state = Arc::new(State {
            core: core.clone(),
            rbac: Rbac::default(),
            backends: Backends::new(front),
            kubelets: Kubelets::new(options.kubelets, to_kubelets),
            bookmark_every: options.bookmark_every,
            ending: ended.clone(),
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut tasks = vec![tokio::spawn(accept(listener, acceptor, state.clone()))];
        if let Some(disk) = disk {
            tasks.push(tokio::spawn(snapshot::follow(core.clone(), disk, ended.clone())));
        }
        if options.controllers {
            tasks.push(tokio::spawn(serve::availability::run(state.clone())));
            tasks.push(tokio::spawn(controllers::definitions::run(core.clone(), ended.clone())));
            let settings = controllers::Settings { ready_nodes: options.ready_nodes, pod_cidrs: options.pod_cidrs };
            tasks.push(tokio::spawn(controllers::run(core, settings, ended)));
        }
        Ok(Self { state, address, authority, kubelet_client, data_dir: options.data_dir, ending, tasks })
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The CA certificate of the server in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    /// A kubeconfig for the admin, who has all rights.
    pub fn admin_kubeconfig(&self) -> Result<String, StartError> {
        self.kubeconfig("kubernetes-admin", Some("system:masters"))
    }

    /// A kubeconfig with a client certificate for a user, with one group at most.
    pub fn kubeconfig(&self, user: &str, group: Option<&str>) -> Result<String, StartError> {
        let written = self.authority.kubeconfig(&self.url(), user, group);
        written.map_err(|error| StartError::Certificates(error.into()))
    }

    /// Writes the admin's kubeconfig to a file that only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), StartError> {
        let written = self.admin_kubeconfig()?;
        crate::auth::write_private(path, written.as_bytes())
            .map_err(|error| StartError::Data(path.to_owned(), error.into()))
    }

    /// The certificates of the kubelet of a Node with these addresses.
    pub fn kubelet_certificates(&self, node: &str, addresses: &[IpAddr]) -> Result<KubeletCertificates, StartError> {
        let mut names = vec![node.to_owned()];
        names.extend(addresses.iter().map(ToString::to_string));
        let issued = self.authority.server(&format!("system:node:{node}"), &names);
        let Identity { certificate, key } = issued.map_err(|error| StartError::Certificates(error.into()))?;
        Ok(KubeletCertificates { certificate, key, client: self.kubelet_client.certificate.clone() })
    }

    /// A token of a ServiceAccount, valid for an hour.
    pub fn token_for(&self, namespace: &str, account: &str) -> Result<String, crate::Failure> {
        let core = &self.state.core;
        let accounts = core.builtin("", "serviceaccounts")?;
        let Object { metadata } = core.get(&accounts, namespace, account)?.read().unwrap_or_default();
        core.token(&metadata, &TokenRequestSpec::default()).map(|(token, _)| token)
    }

    /// The API without a socket, with the rights of the admin.
    pub fn local(&self) -> Local {
        Local::new(self.state.core.clone())
    }

    /// Sets the address of the Service (`namespace/name`) behind an APIService.
    pub fn set_backend(&self, service: &str, url: http::Uri) {
        self.state.backends.set(service, url);
    }

    /// Drops the history, as the real server does every few minutes: older watches get the error 410.
    pub fn compact(&self) {
        self.state.core.store.compact();
    }

    /// Closes all connections, and writes a snapshot if there is a data directory.
    pub async fn stop(mut self) -> std::io::Result<()> {
        self.ending.send_replace(true);
        for task in self.tasks.drain(..) {
            // A task that panicked has ended too.
            let _ = task.await;
        }
        match &self.data_dir {
            Some(directory) => snapshot::close(&self.state.core, directory),
            None => Ok(()),
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.ending.send_replace(true);
        self.tasks.iter().map(JoinHandle::abort_handle).for_each(|task: AbortHandle| task.abort());
    }
}

/// Waits until the server stops.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    // A dropped sender has stopped too.
    let _ = ending.wait_for(|ending| *ending).await;
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut ending = state.ending.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, acceptor.clone(), state.clone()))),
                // Out of file descriptors, or the client has disconnected: the next accept may succeed.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::task::yield_now().await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = ended(&mut ending) => break,
        }
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    // Small responses are sent at once.
    let _ = stream.set_nodelay(true);
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
    };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(|der| certified(der));
    let service = service_fn(move |request| {
        let (state, user) = (state.clone(), user.clone());
        async move { Ok::<_, Never>(serve::serve(state, user, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(2000).adaptive_window(true);
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection ended");
    }
}
