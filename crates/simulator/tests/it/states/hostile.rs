//! The first Pod of a random Node is hostile: simulator and switch agree on what becomes of its frames, and the judge on that.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::matching::ip_proto;
use openflow::port::Port;
use pipeline::model::{Families, Pod};
use simulator::{Arrival, Packet};
use testkit::dice::Dice;
use testkit::hostile::{Exit, Host, Neighbour, Terrain, compose};

use super::scene::{self, GATEWAY, GATEWAY_MAC, UPLINK};
use super::{from_env, promises};
use crate::cluster::Cluster;
use crate::compare::Twins;

/// How many frames without `FRAMES`.
const USUAL: u64 = 2000;

/// The address of a family, or an unused one.
fn host(mac: [u8; 6], addresses: &[IpAddr]) -> Host {
    let v4 = addresses.iter().find_map(|address| if let IpAddr::V4(v4) = address { Some(*v4) } else { None });
    let v6 = addresses.iter().find_map(|address| if let IpAddr::V6(v6) = address { Some(*v6) } else { None });
    Host { mac, v4: v4.unwrap_or([192, 0, 2, mac[5]].into()), v6: v6.unwrap_or("2001:db8::99".parse().unwrap()) }
}

/// Policies are random, too, and not the judge's business here.
fn terrain(cluster: &Cluster) -> Terrain {
    let Families { v4, v6 } = cluster.node.addresses;
    let own: Vec<_> = v4.into_iter().chain(v6).collect();
    let pod = |pod: &Pod| host(pod.mac.0, &pod.addresses);
    let gateways: Vec<IpAddr> = own.iter().map(|address| address.gateway).collect();
    let peers = cluster.peers.iter().map(|peer| peer.gateway);
    Terrain {
        me: pod(&cluster.pods[0]),
        gateway: host(GATEWAY_MAC.0, &gateways),
        neighbours: cluster.pods[1..].iter().map(|it| Neighbour { host: pod(it), allowed: None }).collect(),
        remotes: peers.collect(),
        nodes: own.iter().map(|address| address.node).collect(),
        services: own.iter().flat_map(|address| [address.virtual_service, address.hairpin, address.snat]).collect(),
        ports: vec![53, 80, 8080, 1000],
        tunnels: !cluster.node.tunnels.is_empty(),
        egress: None,
        opened: BTreeSet::new(),
        foreign: Vec::new(),
    }
}

fn exit(cluster: &Cluster, port: Port, packet: &Packet) -> Exit {
    // All ports are flooded here, the tunnels' too.
    let flooded = packet.get(Field::EthType) == 0x806 || matches!(packet.get(Field::Icmpv6Type), 135 | 136);
    match cluster.pods.iter().position(|pod| pod.port == port) {
        Some(number) => Exit::Neighbour(number - 1),
        None if flooded || port.0 == GATEWAY || port.0 == UPLINK => Exit::Gateway,
        None if port.0 > UPLINK => Exit::Peer,
        None => Exit::Elsewhere,
    }
}

/// What the simulator does not do as the switch does: it does not take off a tag without a VLAN, put parts together, or write
/// neighbours' messages that are behind extension headers.
fn is_beyond(packet: &Packet) -> bool {
    let hidden = packet.as_bytes().get(20).is_some_and(|next| *next != ip_proto::ICMPV6);
    let neighbours = matches!(packet.get(Field::Icmpv6Type), 135 | 136);
    packet.get(Field::VlanVid) == 0x1000 || packet.get(Field::IpFrag) != 0 || (neighbours && hidden)
}

/// One Node and the frames that its first Pod sends, which follow from the seed.
fn attack(twins: &mut Twins, seed: u64) -> Result<usize> {
    let dice = &mut Dice::new(seed);
    let cluster = scene::scene(dice);
    let mut flows: Vec<Flow> = cluster.flows().into_values().collect();
    flows.extend(scene::far_ends(&cluster.node));
    let groups: Vec<Group> = cluster.groups().into_values().collect();
    twins.install(&flows, &groups)?;
    let (terrain, port, mut delivered) = (terrain(&cluster), cluster.pods[0].port, 0);
    for _ in 0..60 {
        for frame in compose(dice, &terrain) {
            let packet = Packet::from_bytes(frame);
            if is_beyond(&packet) {
                continue;
            }
            let trace = twins.run(&Arrival::new(port, packet))?;
            let Some(trace) = trace else { return Ok(delivered) };
            promises(&cluster, &trace).with_context(|| trace.to_string())?;
            for (to, packet) in trace.outputs().filter(|(to, _)| *to != port) {
                delivered += 1;
                let wrong = terrain.forbidden(exit(&cluster, to, packet), packet.as_bytes());
                ensure!(wrong.is_none(), "port {to}: {}\n{trace}\n{cluster:#?}", wrong.unwrap_or_default());
            }
        }
    }
    Ok(delivered)
}

/// `FRAMES` makes it a long run; `SEED` repeats the Node of a failure.
#[test]
fn a_hostile_pod_of_a_random_node_delivers_nothing_forbidden_and_the_simulator_knows() {
    let frames = usize::try_from(from_env("FRAMES").unwrap_or(USUAL)).unwrap();
    let mut twins = Twins::new(&scene::PORTS).unwrap();
    let only = from_env("SEED");
    let first = only.unwrap_or_else(|| u64::from(std::process::id()) << 16);
    let (mut nodes, mut delivered) = (0, 0);
    while twins.packets < frames && (only.is_none() || nodes == 0) {
        let seed = first + nodes;
        match attack(&mut twins, seed) {
            Ok(count) => delivered += count,
            Err(error) => panic!("Node {seed} after {} frames (SEED={seed} repeats it): {error:?}", twins.packets),
        }
        nodes += 1;
        if nodes % 100 == 0 {
            println!("{} frames of hostile Pods on {nodes} Nodes", twins.packets);
        }
    }
    println!(
        "{} frames of hostile Pods on {nodes} Nodes from seed {first}: {delivered} delivered, 0 of them forbidden; \
         {} Nodes left before the switch would have aborted; no difference",
        twins.packets, twins.spared
    );
}
