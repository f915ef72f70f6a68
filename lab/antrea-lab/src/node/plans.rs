//! Receives the plan of the lab: the supervisor writes it to the standard input of the Node, and again when Nodes join or
//! leave.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::daemon::Backoff;
use super::{init, network};
use crate::mounts::replace;
use crate::plan::{Network, Node, Plan};

/// Follows the plan on standard input. Returns after the first one was received.
pub(super) async fn listen() -> Result<watch::Receiver<Plan>> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = pipe::Receiver::from_owned_fd(stdin).context("standard input is not a pipe")?;
    let mut lines = BufReader::new(pipe).lines();
    let first = lines.next_line().await?.context("standard input was closed before the plan was received")?;
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

/// Applies each new plan to the Node. `known` is the plan that the Node was started with.
pub(super) async fn follow(node: Node, mut known: Plan, mut plans: watch::Receiver<Plan>) {
    while plans.wait_for(|plan| *plan != known).await.is_ok() {
        let plan = plans.borrow_and_update().clone();
        let mut backoff = Backoff::default();
        loop {
            let (node, old, new) = (node.clone(), known.clone(), plan.clone());
            // Runs programs that may wait for the switch.
            match tokio::task::spawn_blocking(move || apply(&node, &old, &new)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::warn!("cannot apply the new plan, retrying: {error:#}"),
                Err(error) => tracing::error!("applying the new plan panicked: {error}"),
            }
            tokio::time::sleep_until(tokio::time::Instant::now() + backoff.next()).await;
        }
        known = plan;
    }
}

fn apply(node: &Node, old: &Plan, new: &Plan) -> Result<()> {
    replace(std::path::Path::new(init::HOSTS), &init::hosts(new))?;
    if new.network == Network::Bridge {
        network::routes(node, old, new)?;
    }
    Ok(())
}
