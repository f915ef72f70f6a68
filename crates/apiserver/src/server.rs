//! The server: sockets, tasks, files.

use std::net::SocketAddr;
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
use crate::auth::{Authority, FRONT_PROXY, Rbac, Signer, certified};
use crate::core::Core;
use crate::local::Local;
use crate::serve::{self, Backends, Never, State};
use crate::snapshot::Disk;
use crate::store::Shelves;
use crate::{bootstrap, controllers, snapshot, tls};

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Where certificates, keys and the snapshot are kept; nothing is kept without it.
    pub data_dir: Option<PathBuf>,
    /// The ranges of ClusterIPs, one a family, the preferred first.
    pub service_cidrs: Vec<IpNet>,
    /// The ports of NodePort Services.
    pub node_ports: RangeInclusive<u16>,
    /// Events kept for each resource, for watches that resume.
    pub history: usize,
    /// How often a quiet watch that asks for bookmarks gets one.
    pub bookmark_every: Duration,
    /// Runs the controllers: EndpointSlices, workloads, namespaces, garbage collection.
    pub controllers: bool,
    /// Takes the taint `not-ready` off Nodes that say that they are ready.
    pub ready_nodes: bool,
    /// Where the Pod CIDRs of Nodes come from, one a family; without any, Nodes bring their own or have none.
    pub pod_cidrs: Vec<IpNet>,
    /// More names and addresses for the server's certificate.
    pub names: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: None,
            service_cidrs: vec![IpNet::V4(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 12))],
            node_ports: 30000..=32767,
            history: 8192,
            bookmark_every: Duration::from_secs(60),
            controllers: true,
            ready_nodes: true,
            pod_cidrs: Vec::new(),
            names: Vec::new(),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken, or is not this machine's.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Keys, certificates or the snapshot could not be read or written.
    #[error("cannot use the data directory {}", .0.display())]
    Data(PathBuf, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// Keys or certificates could not be made.
    #[error("cannot make certificates")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StartError {
    /// Whether it may help to try again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Listen(_, error) if error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

/// A running server; it ends when this is dropped, and saves what it has when it is stopped.
pub struct ApiServer {
    state: Arc<State>,
    address: SocketAddr,
    authority: Authority,
    data_dir: Option<PathBuf>,
    ending: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server; it answers from then on.
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
        let allocator = Allocator::new(options.service_cidrs.clone(), options.node_ports.clone());
        let core = Core::new(Shelves::new(options.history), allocator, signer, authority.pem.clone());
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
        let (ending, ended) = watch::channel(false);
        let state = Arc::new(State {
            core: core.clone(),
            rbac: Rbac::default(),
            backends: Backends::new(front),
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
        Ok(Self { state, address, authority, data_dir: options.data_dir, ending, tasks })
    }

    /// Where the server is reached.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the authority that signed the server's.
    pub fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    /// A kubeconfig for the admin, who may do everything.
    pub fn admin_kubeconfig(&self) -> Result<String, StartError> {
        self.kubeconfig("kubernetes-admin", Some("system:masters"))
    }

    /// A kubeconfig with a client certificate for a user, in a group if one is named.
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

    /// A token of a ServiceAccount, good for an hour.
    pub fn token_for(&self, namespace: &str, account: &str) -> Result<String, crate::Failure> {
        let core = &self.state.core;
        let accounts = core.builtin("", "serviceaccounts")?;
        let account = core.get(&accounts, namespace, account)?.value();
        core.token(&account, &serde_json::Value::Null).map(|(token, _)| token)
    }

    /// The API without a socket, as the admin.
    pub fn local(&self) -> Local {
        Local::new(self.state.core.clone())
    }

    /// Says where the Service (`namespace/name`) behind an APIService is reached.
    pub fn set_backend(&self, service: &str, url: http::Uri) {
        self.state.backends.set(service, url);
    }

    /// Forgets the history, as the real server does every few minutes: watches of the past are told that it is gone.
    pub fn compact(&self) {
        self.state.core.store.compact();
    }

    /// Ends all connections, and writes a snapshot if there is a directory for it.
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

/// Waits for the end of the server.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    // A sender that is gone has ended too.
    let _ = ending.wait_for(|ending| *ending).await;
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut ending = state.ending.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, acceptor.clone(), state.clone()))),
                // Out of descriptors, or the client has gone: the next may do.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
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
    // Small answers leave at once.
    let _ = stream.set_nodelay(true);
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a client did not get through TLS");
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
        tracing::debug!(%error, "a connection ended");
    }
}
