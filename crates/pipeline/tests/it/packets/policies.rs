//! Kubernetes policies: isolation, rules, and packets that bypass rules.

use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Datapath, IpBlock, Ports, Protocol, Rule};

use super::frame::Step::{Ack, Data, Reply, Syn, SynAck};
use super::frame::{About, Packet};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::world::{
    A, B, C, End, HOST, OUTSIDE, REMOTE, SNAT, TO_NODE_2, VIRTUAL, World, at, from_gateway, from_host, from_tunnel,
    to_gateway, tunnelled,
};
use crate::cluster::{Cluster, Service};

/// A packet from one Pod to another of this Node.
fn between(from: End, to: End, packet: Packet) -> Packet {
    packet.between(from.mac, to.mac)
}

/// A first packet from one Pod's port to another's.
fn syn(from: End, port: u16, to: End, to_port: u16) -> Packet {
    between(from, to, Packet::tcp(from.at(port), to.at(to_port), Syn))
}

fn isolated(direction: pipeline::model::Direction, pod: End, rules: Vec<Rule>) -> impl FnOnce(&mut Cluster) {
    move |cluster| {
        isolate(cluster, direction, pod);
        cluster.rules = rules;
    }
}

#[test]
fn ingress_isolation_drops_connections_to_the_pod_only() {
    let mut w = World::with(isolated(Ingress, B, vec![]));
    w.drops(A.port, syn(A, 40000, B, 80));
    w.drops(A.port, between(A, B, Packet::ping(A.ip, B.ip, 1)));
    w.drops(A.port, between(A, B, Packet::udp(A.at(40000), B.at(53))));
    w.drops(REMOTE.port, from_tunnel(Packet::tcp(REMOTE.at(40000), B.at(80), Syn)));
    w.drops(HOST.port, Packet::tcp(at(OUTSIDE, 50000), B.at(80), Syn).between(HOST.mac, B.mac));
    // Other Pods are not affected, and replies to its own connections pass.
    w.passes(A.port, syn(A, 40000, C, 80), C.port, syn(A, 40000, C, 80));
    w.passes(B.port, syn(B, 40000, C, 80), C.port, syn(B, 40000, C, 80));
    let answer = between(C, B, Packet::tcp(C.at(80), B.at(40000), SynAck));
    w.passes(C.port, answer.clone(), B.port, answer);
}

#[test]
fn egress_isolation_drops_connections_from_the_pod_only() {
    let mut w = World::with(isolated(Egress, A, vec![]));
    w.drops(A.port, syn(A, 40000, B, 80));
    w.drops(A.port, to_gateway(A, Packet::tcp(A.at(40000), REMOTE.at(80), Syn)));
    w.drops(A.port, to_gateway(A, Packet::udp(A.at(40000), at(OUTSIDE, 53))));
    w.passes(B.port, syn(B, 40000, A, 80), A.port, syn(B, 40000, A, 80));
    let answer = between(A, B, Packet::tcp(A.at(80), B.at(40000), SynAck));
    w.passes(A.port, answer.clone(), B.port, answer);
}

#[test]
fn an_ingress_rule_allows_its_peers_to_its_ports_from_any_node() {
    let rule = allow(1, Ingress, B).with_peer(A.ip).with_peer(REMOTE.ip).to_ports(Protocol::Tcp, 80, 80);
    let mut w = World::with(isolated(Ingress, B, vec![rule]));
    w.passes(A.port, syn(A, 40000, B, 80), B.port, syn(A, 40000, B, 80));
    w.drops(A.port, syn(A, 40001, B, 81));
    w.drops(A.port, between(A, B, Packet::udp(A.at(40000), B.at(80))));
    w.drops(C.port, syn(C, 40000, B, 80));
    let remote = from_tunnel(Packet::tcp(REMOTE.at(40000), B.at(80), Syn));
    w.passes(REMOTE.port, remote.clone(), B.port, from_gateway(B, remote));
    w.drops(REMOTE.port, from_tunnel(Packet::tcp(at("10.10.2.12".parse().unwrap(), 40000), B.at(80), Syn)));
}

#[test]
fn an_egress_rule_allows_its_peers_and_ports() {
    let rule = allow(1, Egress, A).with_peer(B.ip).with_peer(REMOTE.ip).to_ports(Protocol::Tcp, 80, 80);
    let mut w = World::with(isolated(Egress, A, vec![rule]));
    w.passes(A.port, syn(A, 40000, B, 80), B.port, syn(A, 40000, B, 80));
    w.drops(A.port, syn(A, 40001, B, 81));
    w.drops(A.port, syn(A, 40002, C, 80));
    let remote = Packet::tcp(A.at(40000), REMOTE.at(80), Syn);
    w.passes(A.port, to_gateway(A, remote.clone()), TO_NODE_2, tunnelled(remote));
}

#[test]
fn rules_of_a_pod_add_up_without_mixing_their_clauses() {
    // A is allowed to port 80, C to 443. Conjunctions must not allow A to 443.
    let rules = vec![
        allow(1, Ingress, B).with_peer(A.ip).to_ports(Protocol::Tcp, 80, 80),
        allow(2, Ingress, B).with_peer(C.ip).to_ports(Protocol::Tcp, 443, 443),
    ];
    let mut w = World::with(isolated(Ingress, B, rules));
    for (from, port, allowed) in [(A, 80, true), (A, 443, false), (C, 80, false), (C, 443, true)] {
        let packet = syn(from, 40000, B, port);
        if allowed {
            w.passes(from.port, packet.clone(), B.port, packet);
        } else {
            w.drops(from.port, packet);
        }
    }
}

#[test]
fn a_port_range_matches_exactly_its_ports() {
    let rule = allow(1, Ingress, B).to_ports(Protocol::Tcp, 8001, 8006);
    let mut w = World::with(isolated(Ingress, B, vec![rule]));
    for port in 8001..=8006 {
        w.passes(A.port, syn(A, 40000, B, port), B.port, syn(A, 40000, B, port));
    }
    for port in [8000, 8007, 80, 0x8001] {
        w.drops(A.port, syn(A, 40000, B, port));
    }
}

#[test]
fn named_ports_may_differ_from_pod_to_pod() {
    // "web" is 80 in B and 8080 in C: two rules.
    let rules = vec![
        allow(1, Ingress, B).with_peer(A.ip).to_ports(Protocol::Tcp, 80, 80),
        allow(2, Ingress, C).with_peer(A.ip).to_ports(Protocol::Tcp, 8080, 8080),
    ];
    let mut w = World::with(|c| {
        isolate(c, Ingress, B);
        isolate(c, Ingress, C);
        c.rules = rules;
    });
    for (to, port, allowed) in [(B, 80, true), (B, 8080, false), (C, 80, false), (C, 8080, true)] {
        let packet = syn(A, 40000, to, port);
        if allowed {
            w.passes(A.port, packet.clone(), to.port, packet);
        } else {
            w.drops(A.port, packet);
        }
    }
}

#[test]
fn an_exception_of_one_block_may_be_allowed_by_another() {
    let from = |w: &mut World, address: &str, allowed: bool| {
        let packet = Packet::tcp(at(address.parse().unwrap(), 50000), B.at(80), Syn).between(HOST.mac, B.mac);
        if allowed {
            w.passes(HOST.port, packet.clone(), B.port, packet);
        } else {
            w.drops(HOST.port, packet);
        }
    };
    let rule = allow(1, Ingress, B).with_block("203.0.113.0/24", &["203.0.113.64/26", "203.0.113.7/32"]);
    let mut w = World::with(isolated(Ingress, B, vec![rule.clone()]));
    for (address, allowed) in [
        ("203.0.113.1", true),
        ("203.0.113.6", true),
        ("203.0.113.7", false),
        ("203.0.113.8", true),
        ("203.0.113.63", true),
        ("203.0.113.64", false),
        ("203.0.113.127", false),
        ("203.0.113.128", true),
        ("203.0.114.1", false),
    ] {
        from(&mut w, address, allowed);
    }
    w.change(|c| c.rules = vec![rule.with_block("203.0.113.96/28", &[])]);
    from(&mut w, "203.0.113.97", true);
    from(&mut w, "203.0.113.65", false);
}

#[test]
fn a_rule_without_peers_and_ports_allows_everything_l9() {
    let rules = vec![allow(1, Ingress, A), allow(2, Egress, A)];
    let mut w = World::with(|c| {
        isolate(c, Ingress, A);
        isolate(c, Egress, A);
        c.rules = rules;
    });
    w.passes(A.port, syn(A, 40000, B, 80), B.port, syn(A, 40000, B, 80));
    w.passes(C.port, syn(C, 40000, A, 9999), A.port, syn(C, 40000, A, 9999));
    let ping = between(A, C, Packet::ping(A.ip, C.ip, 1));
    w.passes(A.port, ping.clone(), C.port, ping);
}

#[test]
fn a_rule_with_an_empty_list_of_peers_allows_nothing() {
    let nobody = Rule { peers: Some([].into()), ..allow(1, Ingress, B) };
    let mut w = World::with(isolated(Ingress, B, vec![nobody]));
    w.drops(A.port, syn(A, 40000, B, 80));
    let all_udp = Ports { protocol: Protocol::Udp, range: None };
    let only_udp = Rule { ports: Some([all_udp].into()), ..allow(1, Ingress, B) };
    w.change(|c| c.rules = vec![only_udp]);
    w.drops(A.port, syn(A, 40000, B, 80));
    let udp = between(A, B, Packet::udp(A.at(40000), B.at(4242)));
    w.passes(A.port, udp.clone(), B.port, udp);
}

#[test]
fn egress_rules_match_the_endpoint_of_a_service() {
    let to_service = |port| to_gateway(A, Packet::tcp(A.at(port), at(CLUSTER_IP, 80), Syn));
    let allowed = |endpoint: End| allow(1, Egress, A).with_peer(endpoint.ip).to_ports(Protocol::Tcp, TARGET, TARGET);
    let mut w = World::with(isolated(Egress, A, vec![allowed(B)]));
    w.change(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    w.passes(A.port, to_service(40000), B.port, from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), Syn)));
    w.change(|c| c.rules = vec![allowed(C)]);
    w.drops(A.port, to_service(40001));
    // A rule with the cluster IP has no effect.
    let by_address = Rule { peers: Some([IpBlock::from(CLUSTER_IP)].into()), ..allow(1, Egress, A) };
    w.change(|c| c.rules = vec![by_address]);
    w.drops(A.port, to_service(40002));
}

#[test]
fn a_denied_service_connection_stays_denied_until_a_rule_allows_it() {
    let mut w = World::with(isolated(Egress, A, vec![]));
    w.change(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    let syn = to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn));
    for _ in 0..3 {
        w.drops(A.port, syn.clone());
    }
    w.change(|c| c.rules = vec![allow(1, Egress, A).with_peer(B.ip)]);
    w.passes(A.port, syn, B.port, from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), Syn)));
    let answer = between(B, A, Packet::tcp(B.at(TARGET), A.at(40000), SynAck));
    w.passes(B.port, answer, A.port, from_gateway(A, Packet::tcp(at(CLUSTER_IP, 80), A.at(40000), SynAck)));
}

#[test]
fn established_connections_survive_a_new_policy() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(C)])));
    let direct = |step| between(A, B, Packet::tcp(A.at(40000), B.at(80), step));
    let answer = between(B, A, Packet::tcp(B.at(80), A.at(40000), SynAck));
    w.passes(A.port, direct(Syn), B.port, direct(Syn));
    w.passes(B.port, answer.clone(), A.port, answer);
    let service = |step| to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), step));
    let arrives = |step| from_gateway(C, Packet::tcp(A.at(40001), C.at(TARGET), step));
    w.passes(A.port, service(Syn), C.port, arrives(Syn));
    let answer = between(C, A, Packet::tcp(C.at(TARGET), A.at(40001), SynAck));
    w.passes(C.port, answer, A.port, from_gateway(A, Packet::tcp(at(CLUSTER_IP, 80), A.at(40001), SynAck)));

    w.change(|c| {
        isolate(c, Egress, A);
        isolate(c, Ingress, A);
        isolate(c, Ingress, B);
        isolate(c, Ingress, C);
    });
    for step in [Ack, Data] {
        w.passes(A.port, direct(step), B.port, direct(step));
        w.passes(A.port, service(step), C.port, arrives(step));
    }
    let reply = between(B, A, Packet::tcp(B.at(80), A.at(40000), Reply));
    w.passes(B.port, reply.clone(), A.port, reply);
    w.drops(A.port, syn(A, 40002, B, 80));
}

#[test]
fn only_icmp_errors_about_established_connections_pass_p35() {
    let mut w = World::with(|c| {
        c.services.push(Service::of(BY_CLUSTER_IP, 53, &[elsewhere(REMOTE.ip)]).udp());
        isolate(c, Ingress, A);
    });
    // An ICMP error of a router, which is no end of the connection.
    let router = "192.0.2.1".parse().unwrap();
    let error = |about| Packet::unreachable(router, A.ip, about).between(HOST.mac, A.mac);
    let about = |port, dst| About { protocol: Protocol::Udp, src: A.at(port), dst };
    let asked = to_gateway(A, Packet::udp(A.at(40000), at(OUTSIDE, 53)));
    w.passes(A.port, asked.clone(), HOST.port, asked);
    let told = error(about(40000, at(OUTSIDE, 53)));
    w.passes(HOST.port, told.clone(), A.port, told);
    w.drops(HOST.port, error(about(40009, at(OUTSIDE, 53))));

    // For a connection to a Service: the error has the endpoint's address, which NAT reverts for the client.
    let asked = Packet::udp(A.at(40001), at(CLUSTER_IP, 53));
    w.passes(A.port, to_gateway(A, asked), TO_NODE_2, tunnelled(Packet::udp(A.at(40001), REMOTE.at(TARGET))));
    let told = from_tunnel(Packet::unreachable(REMOTE.ip, A.ip, about(40001, REMOTE.at(TARGET))));
    let heard = Packet::unreachable(CLUSTER_IP, A.ip, about(40001, at(CLUSTER_IP, 53)));
    w.passes(REMOTE.port, told, A.port, from_gateway(A, heard).routed(1));

    // The reference flows do not match related packets, so an isolated Pod receives no errors.
    w.edit(|flows| {
        let related = |flow: &openflow::flow::Flow| {
            flow.matches.get(openflow::field::Field::CtState).is_some_and(|(set, _)| set & 0x04 != 0)
        };
        flows.retain(|_, flow| !related(flow));
    });
    w.drops(HOST.port, error(about(40000, at(OUTSIDE, 53))));
}

#[test]
fn a_pod_may_send_icmp_errors_about_its_own_connections_only_r22() {
    let mut w = World::with(|c| {
        c.services.push(Service::of(BY_CLUSTER_IP, 53, &[local(B)]).udp());
        isolate(c, Ingress, A);
    });
    let about = |port, dst| About { protocol: Protocol::Udp, src: A.at(port), dst };
    let error =
        |from: End, port| Packet::unreachable(from.ip, A.ip, about(port, B.at(TARGET))).between(from.mac, A.mac);
    let asked = Packet::udp(A.at(40000), B.at(TARGET)).between(A.mac, B.mac);
    w.passes(A.port, asked.clone(), B.port, asked);
    w.passes(B.port, error(B, 40000), A.port, error(B, 40000));
    w.drops(C.port, error(C, 40000));

    // The endpoint of a Service is an end of the connection too.
    let asked = to_gateway(A, Packet::udp(A.at(40001), at(CLUSTER_IP, 53)));
    w.passes(A.port, asked, B.port, from_gateway(B, Packet::udp(A.at(40001), B.at(TARGET))));
    let heard = Packet::unreachable(CLUSTER_IP, A.ip, about(40001, at(CLUSTER_IP, 53)));
    w.passes(B.port, to_gateway(B, error(B, 40001)), A.port, from_gateway(A, heard));
    w.drops(C.port, to_gateway(C, error(C, 40001)));
    let mut unguarded = World::with(|c| isolate(c, Ingress, A));
    unguarded.edit(|flows| flows.retain(|_, flow| !(flow.table == 31 && flow.priority == 205)));
    let asked = Packet::udp(A.at(40000), B.at(TARGET)).between(A.mac, B.mac);
    unguarded.passes(A.port, asked.clone(), B.port, asked);
    unguarded.passes(C.port, error(C, 40000), A.port, error(C, 40000));

    // An error of the client about a reply, to an isolated server.
    w.change(|c| isolate(c, Ingress, B));
    let answer = Packet::udp(B.at(TARGET), A.at(40000)).between(B.mac, A.mac);
    w.passes(B.port, answer.clone(), A.port, answer);
    let about = About { protocol: Protocol::Udp, src: B.at(TARGET), dst: A.at(40000) };
    let closed = Packet::unreachable(A.ip, B.ip, about).between(A.mac, B.mac);
    w.passes(A.port, closed.clone(), B.port, closed);
}

#[test]
fn the_host_may_probe_isolated_pods_but_snated_clients_may_not_l7() {
    let mut w = World::with(isolated(Ingress, B, vec![]));
    w.change(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)])));
    let probe = Packet::tcp(HOST.at(40000), B.at(80), Syn).between(HOST.mac, B.mac);
    w.probes(probe, B);
    let answer = to_gateway(B, Packet::tcp(B.at(80), HOST.at(40000), SynAck));
    w.passes(B.port, answer.clone(), HOST.port, answer);
    w.drops(HOST.port, from_host(Packet::tcp(at(OUTSIDE, 50000), at(VIRTUAL, NODE_PORT), Syn)));
    w.drops(REMOTE.port, from_tunnel(Packet::tcp(HOST.at(40001), B.at(80), Syn)));
    // Ingress rules match the client's address, before SNAT.
    w.change(|c| c.rules = vec![allow(1, Ingress, B).with_peer(OUTSIDE)]);
    let client = from_host(Packet::tcp(at(OUTSIDE, 50001), at(VIRTUAL, NODE_PORT), Syn));
    let got = Packet::tcp(at(SNAT, 50001), B.at(TARGET), Syn).between(HOST.mac, B.mac);
    w.passes(HOST.port, client, B.port, got);
}

#[test]
fn with_the_system_datapath_the_mark_identifies_the_host_l7() {
    let mut w = World::with(isolated(Ingress, B, vec![]));
    w.change(|c| c.node.datapath = Datapath::System);
    let packet = |own: std::net::SocketAddr| Packet::tcp(own, B.at(80), Syn).between(HOST.mac, B.mac);
    w.drops(HOST.port, packet(HOST.at(40000)));
    for (mark, own, passes) in [(1, HOST.at(40001), true), (5, HOST.at(40002), true), (4, HOST.at(40003), false)] {
        let came = w.send_marked(HOST.port, mark, packet(own));
        let expected = passes.then(|| (B.port, packet(own).into()));
        assert_eq!(came, expected.into_iter().collect::<Vec<_>>(), "mark {mark}");
    }
}
