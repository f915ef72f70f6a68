//! Latency of attaching and detaching Pod veths: `cargo run --release -p host --example pod_latency [PODS]`.
//! Needs root. Works in namespaces of its own.
#![expect(clippy::print_stdout, reason = "it prints its results")]

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use host::ipam::{Owner, Pool, Range};
use host::{Netns, pod};
use testkit::Scratch;
use types::Mac;
use types::host::PodLink;
use types::network::Datapath;

fn main() -> Result<()> {
    let pods: u8 = env::args().nth(1).map_or(Ok(100), |text| text.parse()).context("PODS is a number below 250")?;
    let node = Netns::private()?;
    for datapath in [Datapath::System, Datapath::Netdev] {
        let (mut attach, mut check, mut detach) = (Vec::new(), Vec::new(), Vec::new());
        let mut attached = Vec::new();
        for number in 2..pods.saturating_add(2) {
            let netns = testkit::Netns::new()?;
            let pod = PodLink {
                netns: netns.path(),
                container_device: "eth0".into(),
                host_device: format!("pod-{number}"),
                mac: Mac([0x0a, 0, 10, 10, 0, number]),
                addresses: vec![format!("10.10.0.{number}/24").parse()?],
                gateways: vec!["10.10.0.1".parse()?],
                routes: vec![],
                mtu: 1450,
                datapath,
            };
            attach.push(node.run(|| timed(|| pod::attach(&pod, || {})))??);
            check.push(node.run(|| timed(|| pod::check(&pod).map(drop)))??);
            attached.push((pod, netns));
        }
        for (pod, netns) in attached {
            detach.push(node.run(|| timed(|| pod::detach(&pod.host_device)))??);
            drop(netns);
        }
        for (what, times) in [("attach", attach), ("check", check), ("detach", detach)] {
            report(&format!("{what} {datapath:?}"), times);
        }
    }
    let scratch = Scratch::new()?;
    let range = Range::new("10.10.0.0/24".parse()?, None, None, vec!["10.10.0.1".parse()?])?;
    let pool = Pool::open(scratch.path(), vec![range])?;
    let owner = |number: u8| Owner::new(format!("{number:064}"), "eth0");
    let times = (0..pods).map(|number| timed(|| pool.allocate(&owner(number)).map(drop)));
    report("allocate", times.collect::<Result<_, _>>()?);
    let times = (0..pods).map(|number| timed(|| pool.release(&owner(number)).map(drop)));
    report("release", times.collect::<Result<_, _>>()?);
    Ok(())
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    work().map(|()| start.elapsed())
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    println!("{what:16} p50={:?} p99={:?}", at(50), at(99));
}
