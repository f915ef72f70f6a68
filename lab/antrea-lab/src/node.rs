//! A Node: its operating system, kubelet and network, all inside the Node's namespaces.

pub(crate) mod daemon;
pub(crate) mod init;
mod kube_proxy;
pub(crate) mod network;
mod plans;
mod real;
mod switch;

use anyhow::{Context, Result};
use testkit::netns::sysctls;

use crate::kubelet;
use crate::plan::{Kubelet, Network};
use crate::progress::{Progress, step};
use crate::state::Home;

/// Starts the Node and runs its kubelet. Runs in the Node's namespaces, as a child of its init process.
pub(crate) async fn run(home: Home, name: &str) -> Result<()> {
    let booted = boot(&home, name).await;
    if let Err(error) = &booted {
        Progress::Failed(format!("{error:#}")).print();
    }
    match booted? {
        Some(kubelet) => kubelet.run().await,
        None => std::future::pending().await,
    }
}

/// Starts the Node. Returns the kubelet of the lab, if that is the one to run.
async fn boot(home: &Home, name: &str) -> Result<Option<kubelet::Kubelet>> {
    let plans = plans::listen().await?;
    let plan = plans.borrow().clone();
    let node = plan.node(name).with_context(|| format!("there is no Node {name}"))?;
    if plan.kubelet == Kubelet::Real {
        tokio::spawn(plans::follow(node.clone(), plan.clone(), plans));
        real::boot(home, &plan, node).await?;
        return Ok(None);
    }
    sysctls(&[
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
    ])?;
    if plan.network == Network::Bridge {
        // The bridge plugin waits for duplicate address detection, which is not needed here.
        sysctls(&[("net.ipv6.conf.default.accept_dad", "0")])?;
    }
    let directory = home.node(name);
    switch::start(node, plan.datapath, &directory).await.context("Open vSwitch")?;
    step(format!("{name}: Open vSwitch runs"));
    let kubelet = kubelet::Kubelet::register(home, &plan, node).await.context("the Kubernetes API")?;
    network::start(home, &plan, node).await.context("the network")?;
    tokio::spawn(plans::follow(node.clone(), plan.clone(), plans));
    kubelet.ready().await.context("the Kubernetes API")?;
    step(format!("{name}: ready, at {} and {}", node.ipv4, node.ipv6));
    Progress::Ready.print();
    Ok(Some(kubelet))
}
