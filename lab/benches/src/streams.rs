//! Agents on real streams: the controller in this process, the agents in another, so that each counts its own memory.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use api::control::client::{Credentials, follow};
use api::control::server::{Controller, Feed, Listener, Refusal, Rest, Timeouts, prepare};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use policy::{Brain, Subscription};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use types::control::{Batch, Report};

/// The argument that makes this program run the agents.
pub const AGENTS: &str = "--be-agents";
const NAME: &str = "antrea.kube-system.svc";

/// A brain with agents that follow it.
pub struct Streams {
    inner: Arc<Inner>,
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    authority: String,
    agents: Option<Child>,
}

struct Inner {
    brain: Mutex<Brain>,
    changed: watch::Sender<u64>,
    /// Number of agents that have received everything.
    served: AtomicUsize,
    tls: watch::Sender<Arc<ServerConfig>>,
}

/// The batches of one agent.
pub struct Following {
    inner: Arc<Inner>,
    subscription: Subscription,
    changed: watch::Receiver<u64>,
    served: bool,
}

impl Feed for Following {
    async fn next(&mut self) -> Option<Batch> {
        loop {
            let batch = {
                let mut brain = self.inner.brain.lock().unwrap_or_else(PoisonError::into_inner);
                brain.take(&self.subscription).ok()?
            };
            if batch.is_some() {
                return batch;
            }
            if !std::mem::replace(&mut self.served, true) {
                self.inner.served.fetch_add(1, Ordering::Relaxed);
            }
            self.changed.changed().await.ok()?;
        }
    }
}

struct Admits(Arc<Inner>);

impl Controller for Admits {
    type Feed = Following;

    async fn admit(&self, _: &str, node: &str) -> Result<Following, Refusal> {
        let changed = self.0.changed.subscribe();
        let subscription = self.0.brain.lock().unwrap_or_else(PoisonError::into_inner).subscribe(node);
        Ok(Following { inner: Arc::clone(&self.0), subscription, changed, served: false })
    }

    async fn report(&self, _: &str, _: Vec<Report>) {}
}

struct Nothing;

impl Rest for Nothing {
    async fn answer(&self, _: http::Request<Incoming>, _: &[CertificateDer<'static>]) -> http::Response<Full<Bytes>> {
        http::Response::new(Full::default())
    }
}

impl Streams {
    /// Listens on loopback for the agents of a brain.
    pub fn listen(brain: Brain) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new(vec![NAME.to_owned()])?.signed_by(&key, &authority)?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = config.with_single_cert(vec![leaf.der().clone()], key.into())?;
        prepare(&mut config);
        let inner = Arc::new(Inner {
            brain: Mutex::new(brain),
            changed: watch::Sender::new(0),
            served: AtomicUsize::new(0),
            tls: watch::Sender::new(Arc::new(config)),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(Listener::bind(([127, 0, 0, 1], 0).into()))?;
        let address = listener.address()?;
        let (tls, admits) = (inner.tls.subscribe(), Arc::new(Admits(Arc::clone(&inner))));
        runtime.spawn(async move {
            let never = std::future::pending();
            listener.serve(tls, admits, Arc::new(Nothing), Timeouts::default(), never).await;
        });
        Ok(Self { inner, runtime, address, authority: authority.pem(), agents: None })
    }

    /// Starts agents for this many Nodes, `Node-0` and so on; returns when all have received everything.
    pub fn follow(&mut self, nodes: u32) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([AGENTS, &self.address.to_string(), &nodes.to_string()]).stdin(Stdio::piped());
        let agents = self.agents.insert(command.spawn()?);
        let mut stdin = agents.stdin.take().context("the agents have no standard input")?;
        stdin.write_all(self.authority.as_bytes())?;
        drop(stdin);
        let all = || (self.inner.served.load(Ordering::Relaxed) == nodes as usize).then_some(());
        testkit::wait::until("all agents to receive everything", std::time::Duration::from_secs(120), all)
    }

    /// Stops the agents and returns the brain.
    pub fn end(mut self) -> Result<Brain> {
        if let Some(mut agents) = self.agents.take() {
            agents.kill()?;
            agents.wait()?;
        }
        self.runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        let brain = std::mem::take(&mut *self.inner.brain.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(brain)
    }
}

/// Runs the agents that [`Streams::follow`] starts, until the process is killed.
pub fn be_agents(address: &str, nodes: &str) -> Result<()> {
    let (address, nodes): (SocketAddr, u32) = (address.parse()?, nodes.parse()?);
    let ca_bundle = std::io::read_to_string(std::io::stdin())?;
    let credentials = Credentials { ca_bundle, token: "bench".to_owned(), server_name: NAME.to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut agents = tokio::task::JoinSet::new();
        for node in 0..nodes {
            let mut following = follow(address, &credentials, &format!("Node-{node}")).await?;
            agents.spawn(async move { while following.next().await.is_ok() {} });
        }
        while agents.join_next().await.is_some() {}
        Ok(())
    })
}
