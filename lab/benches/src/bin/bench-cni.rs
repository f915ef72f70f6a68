//! Latency of CNI calls, compared with Debian's `bridge` plugin on the same machine in the same minutes.

use std::time::Duration;

use anyhow::{Context, Result};
use benches::node::{Node, Plugin, Sandbox, program};
use benches::{Figure, Goal, percentile, progress, report};
use testkit::wait::{TIMEOUT, until};

/// Rounds, and Pods of each plugin at the end of a round.
const ROUNDS: usize = 8;
const PODS: usize = 25;
/// Calls that are not counted: the first ones find cold caches, and `bridge` creates its bridge.
const WARM_UP: usize = 5;

#[derive(Default)]
struct Times {
    add: Vec<Duration>,
    del: Vec<Duration>,
}

fn main() -> Result<()> {
    let node = Node::start(0)?;
    let plugins = [node.antrea()?, node.bridge()];
    round(&node, &plugins, 0, WARM_UP)?;
    let mut times = [Times::default(), Times::default()];
    for number in 1..=ROUNDS {
        progress(&format!("round {number} of {ROUNDS}: add and remove {PODS} Pods, with the plugins in turn"));
        let took = round(&node, &plugins, number, PODS)?;
        for (all, took) in times.iter_mut().zip(took) {
            all.add.extend(took.add);
            all.del.extend(took.del);
        }
    }
    // DEL returns before veths are deleted and addresses released.
    let is_clean = || node.traces().is_ok_and(|traces| traces.is_empty()).then_some(());
    until("nothing of removed Pods is left", TIMEOUT, is_clean)
        .with_context(|| format!("left behind by removed Pods: {:?}", node.traces()))?;

    let [ours, peer] = &times;
    let milliseconds = |times: &[Duration], percent| percentile(times, percent).as_secs_f64() * 1e3;
    for (name, ours, peer, percent) in [
        ("cni-add-p50", &ours.add, &peer.add, 50),
        ("cni-add-p99", &ours.add, &peer.add, 99),
        ("cni-del-p50", &ours.del, &peer.del, 50),
        ("cni-del-p99", &ours.del, &peer.del, 99),
    ] {
        report(&Figure {
            name,
            unit: "ms",
            ours: milliseconds(ours, percent),
            peer: Some(milliseconds(peer, percent)),
            goal: (percent == 50).then_some(Goal::Ratio(0.7)),
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let size = program("antrea-cni")?.metadata()?.len() as f64 / 1e6;
    report(&Figure { name: "cni-binary", unit: "MB", ours: size, peer: None, goal: Some(Goal::Ours(5.0)) });
    Ok(())
}

/// Adds and removes Pods, with one plugin and the other in turn.
fn round(node: &Node, plugins: &[Plugin; 2], number: usize, pods: usize) -> Result<[Times; 2]> {
    let mut times = [Times::default(), Times::default()];
    let mut sandboxes = Vec::new();
    for pod in 0..pods {
        for (side, (plugin, times)) in plugins.iter().zip(&mut times).enumerate() {
            let sandbox = Sandbox::new((number * pods + pod) * plugins.len() + side)?;
            times.add.push(node.call(plugin, "ADD", &sandbox)?);
            sandboxes.push((side, sandbox));
        }
    }
    for (side, sandbox) in sandboxes {
        let (plugin, times) = (&plugins[side], &mut times[side]);
        times.del.push(node.call(plugin, "DEL", &sandbox)?);
        node.settle(&sandbox)?;
    }
    Ok(times)
}
