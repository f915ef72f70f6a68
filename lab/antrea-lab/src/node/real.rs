//! A Node with a real kubelet, containerd and runc. Its network is installed as in any cluster: with kubectl.

mod containerd;
mod kubelet;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use tokio::time::Instant;

use super::daemon::Backoff;
use super::kube_proxy;
use crate::plan::{Node, Plan};
use crate::progress::{Progress, step};
use crate::state::Home;

const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts the daemons of the Node. Returns when kubelet reports the state of the Node, which has no network yet.
pub(super) async fn boot(home: &Home, plan: &Plan, node: &Node) -> Result<()> {
    containerd::start(home, node).await.context("containerd")?;
    step(format!("{}: containerd runs, with {} image archives", node.name, plan.images.len()));
    kubelet::start(home, node).context("kubelet")?;
    if plan.has_kube_proxy() {
        kube_proxy::start(home, node).context("kube-proxy")?;
    }
    until_reported(home, node).await?;
    step(format!("{}: kubelet runs, at {} and {}", node.name, node.ipv4, node.ipv6));
    Progress::Ready.print();
    Ok(())
}

async fn until_reported(home: &Home, node: &Node) -> Result<()> {
    let client = crate::client::connect(&home.kubelet_kubeconfig(&node.name)).await?;
    let nodes: Api<core::Node> = Api::all(client);
    let (deadline, mut backoff) = (Instant::now() + READY_TIMEOUT, Backoff::default());
    loop {
        let found = nodes.get_opt(&node.name).await;
        let conditions = found.map(|node| node.and_then(|node| node.status?.conditions));
        match conditions {
            Ok(Some(conditions)) if conditions.iter().any(|condition| condition.type_ == "Ready") => return Ok(()),
            _ if Instant::now() < deadline => tokio::time::sleep_until(Instant::now() + backoff.next()).await,
            _ => bail!("kubelet has not reported within {READY_TIMEOUT:?}: {}", kubelet::log_tail(home, node)),
        }
    }
}
