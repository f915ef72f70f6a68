//! The path to the Kubernetes API, which routes of the agent must not hide.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use host::{Kernel, uplink};
use ipnet::IpNet;
use k8s::Client;
use node::ControlPath;
use tracing::warn;
use types::ObjectName;
use types::host::{Desired, Op};

use crate::config::Config;
use crate::control::SERVICE;

/// Timeout of a name lookup.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);

/// Detects the addresses of the API server, and the routers on the way.
pub(crate) async fn detect(config: &Config, client: &Client, namespace: String) -> ControlPath {
    let api_servers = resolve(client.server_host().to_owned()).await;
    let routers = uplink::routers().unwrap_or_else(|error| {
        warn!(%error, "cannot find the default gateway; routes of the agent may conflict with it");
        Vec::new()
    });
    let service = std::env::var("KUBERNETES_SERVICE_HOST").ok().and_then(|host| host.parse::<IpAddr>().ok());
    let cidrs = [Some(IpNet::from(config.service_cidr)), config.service_cidr_v6.map(IpNet::from)];
    let is_service = |ip: &IpAddr| service == Some(*ip) || cidrs.iter().flatten().any(|cidr| cidr.contains(ip));
    let by_cluster_ip = api_servers.iter().any(is_service);
    ControlPath { api_servers, by_cluster_ip, routers, controller: ObjectName { namespace, name: SERVICE.to_owned() } }
}

/// Removes routes of an earlier agent that hide the API server. The agent could not learn that they are stale: that needs the
/// API.
pub(crate) async fn remove_stale_routes(path: &ControlPath) {
    let path = path.clone();
    let work = move || -> Result<(), host::Error> {
        let mut kernel = Kernel::open()?;
        let routes = kernel.observe(&Desired::default())?.routes;
        let removals: Vec<Op> = path.poisoned(&routes).cloned().map(Op::RemoveRoute).collect();
        for op in &removals {
            warn!(?op, api = ?path.api_servers, "removing a stale route that hides the Kubernetes API");
        }
        for failure in kernel.apply(&removals) {
            warn!(error = %failure, "cannot remove a route that hides the Kubernetes API; remove it by hand");
        }
        Ok(())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "cannot list routes that may hide the Kubernetes API"),
        Err(error) => warn!(%error, "bug: the task that lists routes failed"),
    }
}

/// The addresses of a host, which is an IP address or a name.
async fn resolve(host: String) -> Vec<IpAddr> {
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
    if let Ok(address) = literal {
        return vec![address];
    }
    let name = host.clone();
    let asked = tokio::task::spawn_blocking(move || (name.as_str(), 0).to_socket_addrs().map(Iterator::collect));
    let found: Result<Vec<std::net::SocketAddr>, String> = match tokio::time::timeout(DNS_TIMEOUT, asked).await {
        Ok(Ok(found)) => found.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer from a name server within {DNS_TIMEOUT:?}")),
    };
    match found {
        Ok(found) => {
            let mut addresses: Vec<IpAddr> = found.into_iter().map(|address| address.ip()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        }
        Err(error) => {
            warn!(
                host,
                error, "cannot resolve the host name of the Kubernetes API; routes of the agent may conflict with it"
            );
            Vec::new()
        }
    }
}
