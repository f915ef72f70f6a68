//! Two Nodes, each with a switch of its own: packets that one sends through the tunnel arrive at the other.

use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Mac, Peer, PeerPath};

use super::frame::Step::{Ack, Data, Reply, Syn, SynAck};
use super::frame::{Frame, Packet};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::world::{
    A, End, HOST, NODE, NODE_2, OUTSIDE, PEER_MAC, REMOTE, SNAT, TO_NODE_2, VIRTUAL, World, at, from_gateway,
    from_host, to_gateway,
};
use crate::cluster::{Cluster, Service};

/// The Pod on Node 2, as that Node knows it.
pub(super) const R: End = End { port: "pod-a", mac: Mac([0x0a, 0, 0, 0, 2, 1]), ..REMOTE };

/// Turns the Node of most tests into Node 2.
pub(super) fn node_2(cluster: &mut Cluster) {
    cluster.node.gateway.mac = PEER_MAC;
    let address = cluster.node.addresses.v4.as_mut().unwrap();
    (address.node, address.gateway, address.snat) =
        (NODE_2, "10.10.2.1".parse().unwrap(), "10.10.2.254".parse().unwrap());
    address.pod_cidr = "10.10.2.0/24".parse().unwrap();
    cluster.node.addresses.v6 = None;
    cluster.pods = vec![pipeline::model::Pod { addresses: vec![R.ip], ..R.pod() }];
    let path = PeerPath::Tunnel(NODE);
    cluster.peers = vec![Peer { pod_cidr: "10.10.0.0/24".parse().unwrap(), gateway: HOST.ip, path }];
}

/// The two Nodes and their switches.
struct Nodes {
    one: World,
    two: World,
}

impl Nodes {
    fn new() -> Self {
        Self { one: World::new(), two: World::with(node_2) }
    }

    /// The output at Node 2's Pod for a frame into a port of Node 1.
    fn there(&mut self, port: &str, packet: Packet) -> Vec<(&'static str, Frame)> {
        let tunnelled = self.one.send(port, packet);
        assert!(tunnelled.iter().all(|(port, _)| *port == TO_NODE_2), "{tunnelled:?}");
        tunnelled.into_iter().flat_map(|(_, frame)| self.two.send("tun", frame)).collect()
    }

    /// The output of Node 1 for a frame from Node 2's Pod.
    fn back(&mut self, packet: Packet) -> Vec<(&'static str, Frame)> {
        let tunnelled = self.two.send(R.port, packet);
        assert!(tunnelled.iter().all(|(port, _)| *port == "tun"), "{tunnelled:?}");
        tunnelled.into_iter().flat_map(|(_, frame)| self.one.send("tun", frame)).collect()
    }
}

/// The packet as it arrives at Node 2's Pod: both Nodes have routed it.
fn arrives(packet: Packet) -> [(&'static str, Frame); 1] {
    [(R.port, packet.between(PEER_MAC, R.mac).routed(2).into())]
}

#[test]
fn a_pod_talks_to_a_pod_on_the_other_node() {
    let mut nodes = Nodes::new();
    let (a, r) = (A.at(40000), R.at(80));
    for (step, from_a) in [(Syn, true), (SynAck, false), (Ack, true), (Data, true), (Reply, false)] {
        if from_a {
            assert_eq!(nodes.there(A.port, to_gateway(A, Packet::tcp(a, r, step))), arrives(Packet::tcp(a, r, step)));
        } else {
            let came = nodes.back(Packet::tcp(r, a, step).between(R.mac, PEER_MAC));
            assert_eq!(came, [(A.port, from_gateway(A, Packet::tcp(r, a, step)).routed(1).into())]);
        }
    }
}

#[test]
fn a_service_is_balanced_on_the_clients_node_and_policies_apply_on_both() {
    let mut nodes = Nodes::new();
    for world in [&mut nodes.one, &mut nodes.two] {
        world.change(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(R.ip)])));
    }
    nodes.one.change(|c| {
        isolate(c, Egress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(R.ip)];
    });
    nodes.two.change(|c| {
        c.isolated.push((Ingress, R.applied()));
        c.rules = vec![allow(1, Ingress, R).with_peer(A.ip)];
    });
    let (a, service, r) = (A.at(40000), at(CLUSTER_IP, 80), R.at(TARGET));
    for (step, from_a) in [(Syn, true), (SynAck, false), (Ack, true), (Data, true), (Reply, false)] {
        if from_a {
            let came = nodes.there(A.port, to_gateway(A, Packet::tcp(a, service, step)));
            assert_eq!(came, arrives(Packet::tcp(a, r, step)));
        } else {
            let came = nodes.back(Packet::tcp(r, a, step).between(R.mac, PEER_MAC));
            assert_eq!(came, [(A.port, from_gateway(A, Packet::tcp(service, a, step)).routed(1).into())]);
        }
    }
    nodes.two.change(|c| c.rules.clear());
    assert_eq!(nodes.there(A.port, to_gateway(A, Packet::tcp(A.at(40001), service, Syn))), []);
}

#[test]
fn replies_to_an_external_client_return_through_its_node() {
    let mut nodes = Nodes::new();
    nodes.one.change(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[elsewhere(R.ip)])));
    let (client, service, r, seen) = (at(OUTSIDE, 50000), at(VIRTUAL, NODE_PORT), R.at(TARGET), at(SNAT, 50000));
    for (step, from_client) in [(Syn, true), (Syn, true), (SynAck, false), (Ack, true), (Data, true), (Reply, false)] {
        if from_client {
            let came = nodes.there(HOST.port, from_host(Packet::tcp(client, service, step)));
            // The host of Node 1 has decremented the TTL already.
            let got = Packet::tcp(seen, r, step).between(PEER_MAC, R.mac).routed(1);
            assert_eq!(came, [(R.port, got.into())]);
        } else {
            let came = nodes.back(Packet::tcp(r, seen, step).between(R.mac, PEER_MAC));
            let got = Packet::tcp(service, client, step).between(PEER_MAC, HOST.mac).routed(2);
            assert_eq!(came, [(HOST.port, got.into())]);
        }
    }
}
