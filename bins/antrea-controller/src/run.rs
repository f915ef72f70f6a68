//! From nothing to a replica that works, and until it is told to stop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::control::server::{Listener, Patience};
use k8s::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info};
use types::ObjectName;

use crate::authority::Keeper;
use crate::config::Config;
use crate::door::Door;
use crate::engine::Engine;
use crate::peers::Peers;
use crate::rest::Rest;
use crate::sources::Sources;
use crate::{complaints, node_ipam, tls};

/// The Lease of the replica that writes.
const LEASE: &str = "antrea-controller";

/// Runs the controller until it is told to stop; `notes` are for its log.
pub(crate) fn run(config: &Config, notes: &[String]) -> Result<()> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    telemetry::log::init(&filter, telemetry::log::Format::Text)?;
    for note in notes {
        info!("{note}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work(config));
    runtime.shutdown_background();
    outcome
}

async fn work(config: &Config) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tokio::pin!(stop);
    let started = tokio::select! {
        () = &mut stop => return Ok(()),
        started = start(config) => started?,
    };
    let Started { listener, tls, door, rest } = started;
    info!(address = %listener.address()?, "agents are told");
    listener.serve(tls, door, rest, Patience::default(), stop).await;
    info!("stopped; Nodes go on with what they know");
    Ok(())
}

struct Started {
    listener: Listener,
    tls: watch::Receiver<Arc<tokio_rustls::rustls::ServerConfig>>,
    door: Arc<Door>,
    rest: Arc<Rest>,
}

async fn start(config: &Config) -> Result<Started> {
    let kubeconfig = config.client_connection.kubeconfig.as_deref();
    let client = Client::new(kubeconfig, config.kube_api_server_override.as_deref()).await?;
    let (complain, complained) = mpsc::channel(complaints::MOST);
    let engine = Engine::start(complain);
    let sources = Sources::follow(&client, &engine);

    let me = identity()?;
    let (leading, leads) = watch::channel(false);
    let lease = ObjectName { namespace: "kube-system".to_owned(), name: LEASE.to_owned() };
    let elected = client.clone();
    tokio::spawn(async move { elected.lead(&lease, &me, &leading).await });
    tokio::spawn(complaints::write(client.clone(), engine.clone(), leads.clone(), complained));
    if config.node_ipam.enable_node_ipam {
        tokio::spawn(node_ipam::keep(client.clone(), config.node_ipam.clone(), leads.clone()));
    }

    let (front, proxy) = watch::channel(Arc::default());
    tokio::spawn(tls::follow_front_proxy(client.clone(), front));
    let keeper = Keeper::new(client.clone(), leads);
    let (authority, authorities) = watch::channel(keeper.first().await);
    let first = tls::first(&authorities.borrow(), &proxy.borrow())?;
    let (shown, tls) = watch::channel(Arc::new(first));
    tokio::spawn(keeper.keep(authority));
    let me = config.api_address.or_else(|| std::env::var("POD_IP").ok()?.parse().ok());
    let peers = Peers::find(client.clone(), me, authorities.clone());
    tokio::spawn(tls::keep(authorities, proxy.clone(), shown));

    let door = Arc::new(Door::new(client, engine.clone()));
    let (metrics, front_proxy) = (config.enable_prometheus_metrics, proxy);
    let rest = Arc::new(Rest { engine, sources, door: Arc::clone(&door), metrics, peers, front_proxy });
    Ok(Started { listener: listen(config).await?, tls, door, rest })
}

/// Both families, where there are both.
async fn listen(config: &Config) -> Result<Listener> {
    if let Some(address) = config.api_address {
        return Ok(Listener::bind(SocketAddr::new(address, config.api_port)).await?);
    }
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    match Listener::bind(SocketAddr::new(any[0], config.api_port)).await {
        Ok(listener) => Ok(listener),
        Err(error) => {
            debug!(%error, "no IPv6");
            Ok(Listener::bind(SocketAddr::new(any[1], config.api_port)).await?)
        }
    }
}

/// What tells this replica from the others.
fn identity() -> Result<String> {
    if let Some(pod) = std::env::var("POD_NAME").ok().filter(|pod| !pod.is_empty()) {
        return Ok(pod);
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("the name of the host")?;
    Ok(format!("{}_{}", host.trim(), std::process::id()))
}
