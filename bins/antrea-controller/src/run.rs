//! Starts all parts of a replica, and runs until a signal stops it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::control::server::{Listener, Timeouts};
use k8s::Client;
use telemetry::daemon::stop_signal;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info};
use types::ObjectName;

use crate::DAEMON;
use crate::agents::Agents;
use crate::authenticator::Authenticator;
use crate::ca::CaReconciler;
use crate::config::Config;
use crate::engine::Engine;
use crate::peers::Peers;
use crate::rest::Rest;
use crate::sources::Sources;
use crate::{node_ipam, policy_events, tiers, tls};

/// The Lease of the leader.
const LEASE: &str = "antrea-controller";

/// Runs the controller until it gets a signal; `notes` are logged first.
pub(crate) fn run(config: &Config, notes: &[String]) -> Result<()> {
    DAEMON.start_log(notes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work(config));
    runtime.shutdown_background();
    outcome
}

async fn work(config: &Config) -> Result<()> {
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let started = tokio::select! {
        () = &mut stop => return Ok(()),
        started = start(config) => started?,
    };
    let Started { listener, tls, agents, rest } = started;
    info!(address = %listener.address()?, "serving agents");
    listener.serve(tls, agents, rest, Timeouts::default(), stop).await;
    info!("stopped; agents keep enforcing the policies they have");
    Ok(())
}

struct Started {
    listener: Listener,
    tls: watch::Receiver<Arc<tokio_rustls::rustls::ServerConfig>>,
    agents: Arc<Agents>,
    rest: Arc<Rest>,
}

async fn start(config: &Config) -> Result<Started> {
    let kubeconfig = config.client_connection.kubeconfig.as_deref();
    let client = Client::new(kubeconfig, config.kube_api_server_override.as_deref()).await?;
    let (warnings, pending_warnings) = mpsc::channel(policy_events::MAX_PENDING);
    let engine = Engine::start(warnings);
    let sources = Sources::follow(&client, &engine);

    let me = identity()?;
    let (leading, leads) = watch::channel(false);
    let lease = ObjectName { namespace: "kube-system".to_owned(), name: LEASE.to_owned() };
    let elected = client.clone();
    tokio::spawn(async move { elected.lead(&lease, &me, &leading).await });
    tokio::spawn(policy_events::write(client.clone(), engine.clone(), leads.clone(), pending_warnings));
    tokio::spawn(tiers::keep(client.clone(), leads.clone()));
    if config.node_ipam.enable_node_ipam {
        tokio::spawn(node_ipam::run(client.clone(), config.node_ipam.clone(), leads.clone()));
    }

    let (proxy_sender, proxy) = watch::channel(Arc::default());
    tokio::spawn(tls::follow_front_proxy(client.clone(), proxy_sender));
    let reconciler = CaReconciler::new(client.clone());
    let (ca_sender, ca) = watch::channel(reconciler.first().await);
    let first = tls::server_config(&ca.borrow(), &proxy.borrow())?;
    let (config_sender, tls) = watch::channel(Arc::new(first));
    tokio::spawn(reconciler.run(leads, ca_sender));
    let me = config.api_address.or_else(|| std::env::var("POD_IP").ok()?.parse().ok());
    let peers = Peers::find(client.clone(), me, ca.clone());
    tokio::spawn(tls::run(ca, proxy.clone(), config_sender));

    let authenticator = Arc::new(Authenticator::new(client));
    let agents = Arc::new(Agents::new(Arc::clone(&authenticator), engine.clone()));
    let (metrics, front_proxy) = (config.enable_prometheus_metrics, proxy);
    let rest = Arc::new(Rest { engine, sources, authenticator, metrics, peers, front_proxy });
    Ok(Started { listener: listen(config).await?, tls, agents, rest })
}

/// Listens on IPv6 and IPv4 if possible.
async fn listen(config: &Config) -> Result<Listener> {
    if let Some(address) = config.api_address {
        return Ok(Listener::bind(SocketAddr::new(address, config.api_port)).await?);
    }
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    match Listener::bind(SocketAddr::new(any[0], config.api_port)).await {
        Ok(listener) => Ok(listener),
        Err(error) => {
            debug!(%error, "cannot listen on IPv6, using IPv4");
            Ok(Listener::bind(SocketAddr::new(any[1], config.api_port)).await?)
        }
    }
}

/// The identity of this replica in the Lease.
fn identity() -> Result<String> {
    if let Some(pod) = std::env::var("POD_NAME").ok().filter(|pod| !pod.is_empty()) {
        return Ok(pod);
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host name")?;
    Ok(format!("{}_{}", host.trim(), std::process::id()))
}
