//! Connections survive killed agents and switches, while Pods and Nodes are added and removed.
//!
//! A few times in `make test`; `make lab-long` sets `AGENT_KILLS` and `SWITCH_KILLS` for many.

use std::collections::{BTreeSet, VecDeque};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use testkit::Netns;
use testkit::ovs::in_kernel;
use testkit::process::run;
use testkit::wait::{scaled, until};

use crate::agent::network;
use crate::lab::{Kube, Lab, TIMEOUT, is_ready, pause};
use crate::streams::{Noticed, Stream, TICK};
use crate::traces::{set_up, start_afresh, until_only_pods_have_any};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// The Node that joins and leaves.
const VISITORS: [&str; 2] = ["node-3", "node-4"];
/// How long an agent lives at most: some are killed as they start, some when they have long been at work.
const LIFE: Duration = Duration::from_millis(1500);
/// How many Pods come and go at a time.
const CHURN: usize = 6;
/// Maximum time until a restarted switch forwards packets.
const BACK: Duration = Duration::from_secs(1);

/// A number from an environment variable, or the default.
pub(crate) fn times(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Talk within a Node and between two.
fn talk(lab: &Lab, api: &Kube) -> Vec<Stream> {
    let pods = [("talker", "node-1"), ("near", "node-1"), ("far", "node-2")];
    for (name, node) in pods {
        api.pod(name, pause(node));
    }
    let ready: Vec<(Netns, String)> = pods
        .iter()
        .map(|(name, node)| {
            let address = api.until_ready(name).remove(0);
            (lab.netns(node, name), address)
        })
        .collect();
    let [(talker, _), near, far] = ready.as_slice() else { unreachable!() };
    let mut streams = Vec::new();
    for (what, (to, address)) in [("within a Node", near), ("between Nodes", far)] {
        streams.push(Stream::tcp(what, talker, to, address));
        streams.push(Stream::udp(what, talker, to, address));
    }
    let start = Instant::now();
    let all = || streams.iter().all(|stream| stream.first_after(start).is_some()).then_some(());
    until("an echo of every stream", TIMEOUT, all).unwrap();
    streams
}

/// Pods come and go on the Nodes that stay.
fn churn(lab: &Lab, stop: &AtomicBool) -> usize {
    let api = lab.api();
    let (mut living, mut made) = (VecDeque::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("churn-{made}");
        api.pod(&name, pause(NODES[made % NODES.len()]));
        living.push_back(name.clone());
        made += 1;
        if living.len() > CHURN {
            api.wait(api.pods().delete(&living.pop_front().unwrap(), &DeleteParams::default())).unwrap();
        }
        // Not faster than Nodes can follow, when they can: some wait for an agent that is dead.
        let _ = until("the newest Pod", Duration::from_millis(400), || {
            api.get(&name).is_some_and(|pod| is_ready(&pod)).then_some(())
        });
    }
    made
}

/// Nodes join, one in each subnet, and leave again; none is there in the end.
fn come_and_go(lab: &Lab, stop: &AtomicBool) -> usize {
    let mut joined = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in VISITORS {
            lab.join().unwrap();
            joined += 1;
        }
        for node in VISITORS {
            lab.leave(node).unwrap();
        }
    }
    joined
}

/// Kills a process of a Node, which has to be there.
pub(crate) fn kill(lab: &Lab, node: &str, name: &str) -> u32 {
    let pid = until(format_args!("{name} runs on {node}"), TIMEOUT, || lab.pid(node, name)).unwrap();
    lab.node(node, &["kill", "-KILL", &pid.to_string()]).unwrap();
    // Else the next one might find a process that is about to end.
    let ended = || lab.pid(node, name).is_none_or(|other| other != pid).then_some(());
    until(format_args!("the end of {name} on {node}"), TIMEOUT, ended).unwrap();
    pid
}

/// Sets a stop flag on drop, also after a panic, so that the threads of a test end.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn show(noticed: &Noticed) {
    let Noticed { what, sent, lost, longest, .. } = noticed;
    let lost = lost.len();
    println!("{what}: {sent} messages, {lost} lost, at most {longest:.0?} between two echoes");
}

#[test]
fn agents_killed_at_any_moment_lose_no_packet_and_leak_nothing() {
    let kills = times("AGENT_KILLS", 6);
    let (lab, api) = network("killed", 2, &[]);
    let streams = talk(&lab, &api);
    let by_chance = usize::try_from(std::process::id()).unwrap() << 20 | 1;
    let seed = u64::try_from(times("SEED", by_chance)).unwrap();
    let (stop, mut dice) = (AtomicBool::new(false), Dice(seed));
    let (made, joined) = std::thread::scope(|scope| {
        let stops = Stops(&stop);
        // The emulated machine of the kernel's datapath has no CPU left for this: agents would wait for the API for minutes.
        let churn = scope.spawn(|| if in_kernel() { 0 } else { churn(&lab, &stop) });
        let visits = scope.spawn(|| if in_kernel() { 0 } else { come_and_go(&lab, &stop) });
        for number in 0..kills {
            let node = NODES[usize::try_from(dice.roll(2)).unwrap()];
            let life = scaled(LIFE);
            let moment = Instant::now() + Duration::from_millis(dice.roll(life.as_millis().try_into().unwrap()));
            until("the moment", LIFE * 2, || (Instant::now() >= moment).then_some(())).unwrap();
            kill(&lab, node, "antrea-agent");
            if number % 20 == 19 {
                println!("{} of {kills} kills", number + 1);
            }
        }
        drop(stops);
        (churn.join().unwrap(), visits.join().unwrap())
    });
    println!("{kills} agents killed (seed {seed}), {made} Pods made, {joined} Nodes joined and left meanwhile");

    // Agents that were killed so often still attach Pods.
    for node in NODES {
        api.pod(&format!("last-{node}"), pause(node));
    }
    // No Pod is half-configured: all expected Pods exist and are reachable.
    let there = api.wait(api.pods().list(&kube::api::ListParams::default())).unwrap();
    for pod in there.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        for address in api.until_ready(pod.metadata.name.as_deref().unwrap()) {
            lab.exec("talker", &["ping", "-n", "-c", "1", "-w", "10", &address]).unwrap();
        }
    }
    for node in NODES {
        until_only_pods_have_any(&lab, &api, node);
    }
    let noticed: Vec<Noticed> = streams.into_iter().map(Stream::end).collect();
    noticed.iter().for_each(show);
    for Noticed { what, lost, outcome, .. } in &noticed {
        assert_eq!((lost, outcome), (&Vec::new(), &Ok(())), "{what}");
    }
    for node in NODES {
        let before = set_up(&lab, node).unwrap();
        start_afresh(&lab, node);
        let mut difference = (BTreeSet::new(), BTreeSet::new());
        let same = || {
            let now = set_up(&lab, node).ok()?;
            difference = (&before - &now, &now - &before);
            (before == now).then_some(())
        };
        let same = until(format_args!("{node}: all that a fresh start sets up"), TIMEOUT, same);
        same.unwrap_or_else(|error| panic!("{error:#}: before, and after it: {difference:#?}"));
        println!("{node}: all {} flows, groups, routes and rules are as after a fresh start", before.len());
    }
}

/// When a process was started.
fn started(lab: &Lab, node: &str, pid: u32) -> Instant {
    let stat = std::fs::read_to_string(lab.root(node).join(format!("proc/{pid}/stat"))).unwrap();
    let ticks: f64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let (uptime, now) = (std::fs::read_to_string("/proc/uptime").unwrap(), Instant::now());
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    now - Duration::from_secs_f64((uptime - ticks / 100.0).max(0.0))
}

/// Whether a new ovs-vswitchd keeps the device of the tunnel in the kernel. Versions before 3.1.1 replace it.
fn keeps_tunnel_device() -> bool {
    let text = run(Command::new("ovs-vswitchd").arg("--version"), None).unwrap();
    let version = text.lines().next().unwrap().rsplit(' ').next().unwrap();
    let numbers: Vec<u32> = version.split('.').map(|number| number.parse().unwrap()).collect();
    in_kernel() && numbers.as_slice() >= [3, 1, 1].as_slice()
}

#[test]
fn killed_switches_forward_again_within_a_second_of_their_restart() {
    let kills = times("SWITCH_KILLS", 2);
    let (lab, api) = network("switches", 2, &[]);
    let streams = talk(&lab, &api);
    let mut worst = Duration::ZERO;
    for number in 0..kills {
        let node = NODES[number % NODES.len()];
        let old = kill(&lab, node, "ovs-vswitchd");
        let new = until("another ovs-vswitchd", TIMEOUT, || lab.pid(node, "ovs-vswitchd").filter(|pid| *pid != old));
        let start = started(&lab, node, new.unwrap());
        // Streams within node-1 don't notice the other's switch.
        let concerned = || streams.iter().filter(|stream| node == "node-1" || stream.what.starts_with("between"));
        let udp = || concerned().filter(|stream| stream.what.ends_with("UDP"));
        let back = || udp().map(|stream| stream.first_after(start)).collect::<Option<Vec<_>>>();
        let back = until("echoes", TIMEOUT, back).unwrap();
        let took = back.into_iter().max().unwrap() - start;
        println!("kill {}: {node} forwards {took:.0?} after the start of its ovs-vswitchd", number + 1);
        worst = worst.max(took);
        // TCP is heard again too, each time, before the next kill.
        let heard = Instant::now() + TICK;
        let all = || streams.iter().all(|stream| stream.first_after(heard).is_some()).then_some(());
        until("an echo of every stream", TIMEOUT, all).unwrap();
    }
    println!("{kills} switches killed, back after at most {worst:.0?}");
    let noticed: Vec<Noticed> = streams.into_iter().map(Stream::end).collect();
    noticed.iter().for_each(show);
    for Noticed { what, outcome, lost, .. } in &noticed {
        assert_eq!(outcome, &Ok(()), "{what}");
        // The kernel forwards packets without ovs-vswitchd.
        let survives = in_kernel() && (what.starts_with("within") || keeps_tunnel_device());
        let udp = what.ends_with("UDP") && !survives;
        assert!(udp || lost.is_empty(), "{what}: {} lost, where TCP repeats and the kernel forwards", lost.len());
    }
    assert!(in_kernel() || worst <= BACK, "{worst:?}");
}
