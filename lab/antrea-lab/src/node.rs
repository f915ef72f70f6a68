//! A Node: what its operating system, its kubelet and its network do, all inside the Node's namespaces.

pub(crate) mod daemon;
pub(crate) mod init;
mod kube_proxy;
pub(crate) mod network;
mod plans;
mod switch;

use anyhow::{Context, Result};
use testkit::netns::sysctls;

use crate::kubelet;
use crate::plan::Network;
use crate::progress::{News, step};
use crate::state::Home;

/// Brings the Node up and runs its kubelet, for ever. Runs in the Node's namespaces, as a child of its first process.
pub(crate) async fn run(home: Home, name: &str) -> Result<()> {
    let told = boot(&home, name).await;
    if let Err(error) = &told {
        News::Failed(format!("{error:#}")).tell();
    }
    let kubelet = told?;
    kubelet.run().await
}

async fn boot(home: &Home, name: &str) -> Result<kubelet::Kubelet> {
    let plans = plans::listen().await?;
    let plan = plans.borrow().clone();
    let node = plan.node(name).with_context(|| format!("there is no Node {name}"))?;
    sysctls(&[
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
    ])?;
    if plan.network == Network::Bridge {
        // Its plugin waits for the detection of duplicate addresses, in vain: there are none.
        sysctls(&[("net.ipv6.conf.default.accept_dad", "0")])?;
    }
    let directory = home.node(name);
    switch::start(&plans, node, &directory).await.context("Open vSwitch")?;
    step(format!("{name}: Open vSwitch runs"));
    let kubelet = kubelet::Kubelet::register(home, &plan, node).await.context("the Kubernetes API")?;
    network::start(home, &plan, node).await.context("the network")?;
    tokio::spawn(plans::follow(node.clone(), plan.clone(), plans));
    kubelet.ready().await.context("the Kubernetes API")?;
    step(format!("{name}: ready, at {} and {}", node.ipv4, node.ipv6));
    News::Ready.tell();
    Ok(kubelet)
}
