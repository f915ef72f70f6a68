//! Random Nodes, with the flows of `pipeline`, and random conversations through them.

mod hostile;
mod packets;
mod policies;
mod scene;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use pipeline::tables::Table;
use simulator::{Sent, Trace, Verdict};

use crate::cluster::Cluster;
use crate::compare::Twins;
use crate::conversation::History;
use testkit::dice::Dice;

/// A number in the environment: `PACKETS` asks for a longer run, `SEED` for one Node again.
fn from_env(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// What has been seen of packets.
#[derive(Default)]
struct Tally {
    sent: usize,
    packet_ins: usize,
    tables: BTreeSet<u8>,
    learned: usize,
    reasons: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, trace: &Trace) {
        self.tables.extend(trace.steps.iter().map(|step| step.table));
        let learned = |did: &simulator::trace::Did| matches!(did, simulator::trace::Did::Learned(_));
        self.learned += trace.steps.iter().flat_map(|step| &step.did).filter(|did| learned(did)).count();
        match &trace.verdict {
            Verdict::Sent(sent) if sent.iter().all(|sent| matches!(sent, Sent::Controller { .. })) => {
                self.packet_ins += 1;
            }
            Verdict::Sent(_) => self.sent += 1,
            Verdict::Dropped(reason) => *self.reasons.entry(reason.to_string()).or_default() += 1,
        }
    }
}

/// Invariants of every Node, which both could violate: a Pod's packets have its source, and reach only the destination Pod.
fn promises(cluster: &Cluster, trace: &Trace) -> Result<()> {
    let packet = &trace.arrival.packet;
    let pod_at = |port: Port| cluster.pods.iter().find(|pod| pod.port == port);
    let is_neighbours = matches!(packet.get(Field::Icmpv6Type), 135 | 136);
    let (Some(sender), Some(src), false) = (pod_at(trace.arrival.in_port), packet.src(), is_neighbours) else {
        return Ok(());
    };
    let honest = sender.addresses.contains(&src) && packet.get(Field::EthSrc) == sender.mac.into();
    for (port, sent) in trace.outputs() {
        ensure!(honest, "a packet with another's address");
        let Some(pod) = pod_at(port) else { continue };
        let is_for = |dst: IpAddr| pod.addresses.contains(&dst) && sent.get(Field::EthDst) == pod.mac.into();
        ensure!(sent.dst().is_some_and(is_for), "a packet to another's port");
    }
    Ok(())
}

/// One Node and one conversation, which follow from the seed.
fn converse(twins: &mut Twins, seed: u64, tally: &mut Tally) -> Result<()> {
    let dice = &mut Dice::new(seed);
    let cluster: Cluster = scene::scene(dice);
    let mut flows: Vec<Flow> = cluster.flows().into_values().collect();
    flows.extend(scene::far_ends(&cluster.node));
    flows.extend(scene::near_ends(&cluster.node));
    let groups: Vec<Group> = cluster.groups().into_values().collect();
    twins.install(&flows, &groups)?;
    let mut history = History::default();
    for _ in 0..40 + dice.below(80) {
        let known = dice.percent(70).then(|| history.next(&packets::next(dice))).flatten();
        let arrival = match known {
            Some(arrival) => packets::from_afar(arrival),
            None => packets::fresh(dice, &cluster),
        };
        let trace = twins.run(&arrival).with_context(|| format!("{cluster:#?}"))?;
        let Some(trace) = trace else { break };
        promises(&cluster, &trace).with_context(|| format!("{trace}\n{cluster:#?}"))?;
        tally.add(&trace);
        history.add(arrival, &trace, &scene::PORTS);
    }
    Ok(())
}

/// `PACKETS` makes it a long run; `SEED` repeats the Node of a failure.
#[test]
fn switch_and_simulator_agree_on_random_nodes() {
    let packets = usize::try_from(from_env("PACKETS").unwrap_or(4000)).unwrap();
    let mut twins = Twins::new(&scene::PORTS).unwrap();
    let mut tally = Tally::default();
    let only = from_env("SEED");
    let first = only.unwrap_or_else(|| RandomState::new().hash_one(0) >> 16);
    let mut nodes = 0;
    while twins.packets < packets && (only.is_none() || nodes == 0) {
        let seed = first + nodes;
        if let Err(error) = converse(&mut twins, seed, &mut tally) {
            panic!("Node {seed} after {} packets (SEED={seed} repeats it): {error:?}", twins.packets);
        }
        nodes += 1;
    }
    let Tally { sent, packet_ins, tables, learned, reasons } = tally;
    let Twins { packets, spared, .. } = twins;
    let dropped: usize = reasons.values().sum();
    println!(
        "{packets} packets through {nodes} Nodes from seed {first}: {sent} sent, {packet_ins} to the controller, {dropped} dropped; \
         {learned} flows learned; {spared} conversations ended before the switch would have aborted; no difference"
    );
    for (reason, count) in &reasons {
        println!("{count:>8} {reason}");
    }
    if only.is_none() {
        // Else the conversations are not about what they should be about.
        assert!(
            sent * 4 > packets && packet_ins > 0 && learned > 0,
            "{sent} sent, {packet_ins} to the controller, {learned} learned"
        );
        let never = Table::ALL.iter().filter(|table| !tables.contains(&table.id()));
        let never: Vec<&str> = never.map(|table| table.name()).collect();
        assert!(never.is_empty() || packets < 20_000, "tables that no packet meets: {never:?}");
    }
}
