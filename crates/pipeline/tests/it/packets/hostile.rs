//! Pod A is hostile: thousands of random frames, and nothing comes out of the switch that the judge forbids.
//!
//! The datapath keeps its flows here, so this also finds a frame that is handled as another one was.

use std::collections::BTreeSet;
use std::net::IpAddr;

use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Mode, PeerPath, Protocol};
use testkit::dice::Dice;
use testkit::frames::{self, proto};
use testkit::hostile::{Exit, Host, Neighbour, Opened, Terrain, compose};

use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::world::{A, B, C, End, HOST, NODE, NODE_2, NODE6, REMOTE, TO_NODE_2, TO_NODE_3, VIRTUAL, World};
use crate::cluster::{Cluster, Service};

/// How many frames are sent before what came out is looked at.
const BATCH: usize = 64;
/// How many are sent without `FRAMES`, in all modes together.
const USUAL: usize = 2000;

fn host(end: End) -> Host {
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (end.ip, end.ip6) else { panic!("an end has both families") };
    Host { mac: end.mac.0, v4, v6 }
}

/// B is closed but for DNS, C is not isolated.
fn terrain(mode: Mode) -> Terrain {
    let closed = Neighbour { host: host(B), allowed: Some(vec![(proto::UDP, 53)]) };
    Terrain {
        me: host(A),
        gateway: host(HOST),
        neighbours: vec![closed, Neighbour { host: host(C), allowed: None }],
        remotes: vec![REMOTE.ip, REMOTE.ip6, "10.10.3.11".parse().unwrap(), "fd00:10:3::11".parse().unwrap()],
        nodes: vec![NODE, NODE_2, NODE6],
        services: vec![CLUSTER_IP, VIRTUAL],
        ports: vec![53, 80, TARGET, 40000],
        tunnels: matches!(mode, Mode::Encap | Mode::Hybrid),
        egress: None,
        opened: BTreeSet::new(),
        foreign: Vec::new(),
    }
}

fn cluster(mode: Mode) -> impl FnOnce(&mut Cluster) {
    move |cluster| {
        cluster.node.mode = mode;
        isolate(cluster, Ingress, B);
        cluster.rules = vec![
            allow(1, Ingress, B).to_ports(Protocol::Udp, 53, 53),
            allow(2, Ingress, B).with_peer(C.ip).to_ports(Protocol::Tcp, 80, 80),
        ];
        let endpoints = [local(B), local(C), elsewhere(REMOTE.ip)];
        cluster.services.push(Service::of(BY_CLUSTER_IP, 80, &endpoints).with_affinity(300));
        if mode != Mode::Encap {
            let routed = if mode == Mode::Hybrid { cluster.peers.len() / 2 } else { 0 };
            cluster.peers.iter_mut().skip(routed).for_each(|peer| peer.path = PeerPath::Route);
        }
        if matches!(mode, Mode::NoEncap | Mode::NetworkPolicyOnly) {
            cluster.node.tunnels.clear();
        }
        if mode == Mode::NetworkPolicyOnly {
            cluster.peers.clear();
        }
    }
}

fn exit(port: &str) -> Exit {
    match port {
        "gw" => Exit::Gateway,
        "pod-b" => Exit::Neighbour(0),
        "pod-c" => Exit::Neighbour(1),
        TO_NODE_2 | TO_NODE_3 => Exit::Peer,
        _ => Exit::Elsewhere,
    }
}

/// A neighbour connects to the hostile Pod.
fn open(dice: &mut Dice, world: &mut World, terrain: &mut Terrain) {
    let opened = Opened {
        by: dice.below(terrain.neighbours.len()),
        v6: dice.percent(50),
        proto: dice.one(&[proto::TCP, proto::UDP]),
        theirs: 30000 + u16::try_from(dice.below(2000)).unwrap(),
        mine: dice.one(&[80, 53]),
    };
    let (from, port) = [(B, B.port), (C, C.port)][opened.by];
    let (src, dst) = if opened.v6 {
        (from.at6(opened.theirs), A.at6(opened.mine))
    } else {
        (from.at(opened.theirs), A.at(opened.mine))
    };
    let body = match opened.proto {
        proto::TCP => frames::tcp(src, dst, 2, (100, 0), b""),
        _ => frames::udp(src, dst, b"hello"),
    };
    let frame = frames::ethernet_ip(from.mac.0, A.mac.0, &frames::ip(src.ip(), dst.ip(), &body));
    let came = world.switch.send_batch(port, &[frame]);
    assert!(came.iter().any(|(port, _)| *port == A.port), "an honest connection to Pod A does not arrive: {came:02x?}");
    terrain.opened.insert(opened);
}

fn attack(mode: Mode, is_kept_in: bool, frames: usize, seed: u64) {
    let (mut world, mut terrain, mut dice) = (World::with(cluster(mode)), terrain(mode), Dice::new(seed));
    if is_kept_in {
        world.change(|cluster| {
            isolate(cluster, Egress, A);
            cluster.rules.push(allow(3, Egress, A).with_peer(C.ip).to_ports(Protocol::Udp, 53, 53));
        });
        terrain.egress = Some(vec![(C.ip, proto::UDP, 53)]);
    }
    for port in 41_000..41_004 {
        let (client, server) = (C.at(port), B.at(80));
        let packet = frames::ip(C.ip, B.ip, &frames::tcp(client, server, 2, (100, 0), b""));
        let came = world.switch.send_batch(C.port, &[frames::ethernet_ip(C.mac.0, B.mac.0, &packet)]);
        assert!(came.iter().any(|(port, _)| *port == B.port), "an allowed connection to Pod B does not arrive");
        terrain.foreign.push((client, server));
    }
    let (mut sent, mut delivered, mut forbidden) = (0, 0, Vec::new());
    while sent < frames && forbidden.is_empty() {
        open(&mut dice, &mut world, &mut terrain);
        let batch: Vec<_> = (0..BATCH).flat_map(|_| compose(&mut dice, &terrain)).collect();
        sent += batch.len();
        for (port, frame) in world.switch.send_batch(A.port, &batch).into_iter().filter(|(port, _)| *port != A.port) {
            delivered += 1;
            forbidden.extend(terrain.forbidden(exit(port), &frame).map(|why| format!("at {port}: {why}")));
        }
        if sent % 10_000 < batch.len() && frames > USUAL {
            println!("{mode:?}: {sent} frames, {delivered} delivered");
        }
    }
    println!("{mode:?}: {sent} frames from seed {seed}, {delivered} delivered, {} of them forbidden", forbidden.len());
    assert!(forbidden.is_empty(), "{mode:?}, SEED={} repeats it:\n{}", seed / 4, forbidden.join("\n"));
    assert!(delivered * if is_kept_in { 500 } else { 50 } > sent, "hardly anything passes: {delivered} of {sent}");
}

/// `FRAMES` makes it a long run; `SEED` repeats a failure.
fn attacked(mode: Mode, is_kept_in: bool) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let frames = number("FRAMES").map_or(USUAL, |frames| usize::try_from(frames).unwrap());
    let seed = number("SEED").unwrap_or_else(|| u64::from(std::process::id()));
    // Every mode has frames of its own.
    attack(mode, is_kept_in, frames / 5, seed * 4 + mode as u64);
}

#[test]
fn a_hostile_pod_delivers_nothing_forbidden_with_tunnels() {
    attacked(Mode::Encap, false);
}

#[test]
fn a_hostile_pod_delivers_nothing_forbidden_without_tunnels() {
    attacked(Mode::NoEncap, false);
}

#[test]
fn a_hostile_pod_delivers_nothing_forbidden_in_hybrid_mode() {
    attacked(Mode::Hybrid, false);
}

#[test]
fn a_hostile_pod_delivers_nothing_forbidden_with_policies_only() {
    attacked(Mode::NetworkPolicyOnly, false);
}

#[test]
fn a_hostile_pod_that_a_policy_keeps_in_delivers_nothing_else() {
    attacked(Mode::Encap, true);
}
