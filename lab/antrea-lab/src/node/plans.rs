//! What the Node is told of the others: the supervisor writes the plan to the Node's standard input, and again when Nodes join
//! or leave.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::daemon::Pauses;
use super::{init, network, switch};
use crate::mounts::replace;
use crate::plan::{Network, Node, Plan};

/// The plan, as it is known at any moment. There is one when this returns.
pub(super) async fn listen() -> Result<watch::Receiver<Plan>> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = pipe::Receiver::from_owned_fd(stdin).context("standard input is no pipe")?;
    let mut lines = BufReader::new(pipe).lines();
    let first = lines.next_line().await?.context("nobody has told the plan")?;
    let (sender, receiver) = watch::channel(serde_json::from_str(&first).context("cannot read the plan")?);
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(plan) => drop(sender.send_replace(plan)),
                Err(error) => tracing::error!("cannot read the plan: {error}"),
            }
        }
    });
    Ok(receiver)
}

/// Carries out what a Node has to know of others, for ever. `known` was carried out at its start.
pub(super) async fn follow(node: Node, mut known: Plan, mut plans: watch::Receiver<Plan>) {
    while plans.wait_for(|plan| *plan != known).await.is_ok() {
        let plan = plans.borrow_and_update().clone();
        let mut pauses = Pauses::default();
        loop {
            let (node, old, new) = (node.clone(), known.clone(), plan.clone());
            // These are programs that may have to wait for the switch.
            match tokio::task::spawn_blocking(move || learn(&node, &old, &new)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::warn!("Nodes have joined or left, and not all is done yet: {error:#}"),
                Err(error) => tracing::error!("Nodes have joined or left: {error}"),
            }
            tokio::time::sleep_until(tokio::time::Instant::now() + pauses.next()).await;
        }
        known = plan;
    }
}

fn learn(node: &Node, old: &Plan, new: &Plan) -> Result<()> {
    replace(std::path::Path::new(init::HOSTS), &init::hosts(new))?;
    if new.network == Network::Bridge {
        network::routes(node, old, new)?;
    }
    if new.tunnels() { switch::meet(new, node) } else { Ok(()) }
}
