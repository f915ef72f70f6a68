//! Memory of an agent with few Pods, and with many Pods in a large cluster; CPU time of an idle agent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use benches::node::{Node, Sandbox};
use benches::{Figure, Goal, progress, report};
use testkit::wait::until;

const FEW_PODS: usize = 5;
const MANY_PODS: usize = 110;
const PEERS: u16 = 500;
/// Duration of the idle measurement in seconds, unless the environment variable `SECONDS_IDLE` is set.
const IDLE: u64 = 60;

fn main() -> Result<()> {
    let idle = match std::env::var("SECONDS_IDLE") {
        Ok(text) => text.parse().with_context(|| format!("SECONDS_IDLE: `{text}` is not a number of seconds"))?,
        Err(_) => IDLE,
    };
    progress(&format!("an agent with {FEW_PODS} Pods"));
    let small = node_with(0, FEW_PODS)?;
    report(&memory("rss-small", small.0.agent_rss()?, 20.0));
    drop(small);

    progress(&format!("an agent with {MANY_PODS} Pods and {PEERS} other Nodes"));
    let (node, _pods) = node_with(PEERS, MANY_PODS)?;
    report(&memory("rss-110x500", node.agent_rss()?, 40.0));
    progress(&format!("the same, idle for {idle} s"));
    let share = idle_cpu(&node, Duration::from_secs(idle))?;
    report(&Figure { name: "cpu-idle", unit: "%", ours: share * 100.0, peer: None, goal: Some(Goal::Ours(0.2)) });
    Ok(())
}

fn node_with(peers: u16, pods: usize) -> Result<(Node, Vec<Sandbox>)> {
    let node = Node::start(peers)?;
    let plugin = node.antrea()?;
    let pods = (0..pods).map(|number| {
        let sandbox = Sandbox::new(number)?;
        node.call(&plugin, "ADD", &sandbox)?;
        Ok(sandbox)
    });
    let pods = pods.collect::<Result<_>>()?;
    Ok((node, pods))
}

/// A MB has a million bytes.
fn memory(name: &'static str, bytes: u64, goal: f64) -> Figure {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let ours = bytes as f64 / 1e6;
    Figure { name, unit: "MB", ours, peer: None, goal: Some(Goal::Ours(goal)) }
}

/// The CPU time of an idle agent, as a fraction of one core.
fn idle_cpu(node: &Node, time: Duration) -> Result<f64> {
    let (start, before) = (Instant::now(), node.agent_cpu()?);
    until("the end of the measurement", time * 2, || (start.elapsed() >= time).then_some(()))?;
    let used = node.agent_cpu()?.saturating_sub(before);
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
}
