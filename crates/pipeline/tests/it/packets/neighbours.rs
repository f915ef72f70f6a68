//! ARP, neighbour discovery, spoofed sources, and invalid packets.

use std::net::IpAddr;

use openflow::flow::Flow;
use pipeline::model::{Mac, Mode};
use testkit::wait::{TIMEOUT, until};

use super::frame::Step::Syn;
use super::frame::{Arp, BROADCAST, Frame, NO_MAC, Nd, Packet};
use super::objects::{TARGET, local};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::world::{
    A, B, C, End, HOST, REMOTE, SNAT, SNAT6, VIRTUAL, VIRTUAL_MAC, VIRTUAL6, World, at, from_gateway, replace,
    to_gateway,
};
use crate::client::{add, remove};
use crate::cluster::Service;

const PEER_GATEWAYS: [&str; 2] = ["10.10.2.1", "10.10.3.1"];

fn who_has(asker: End, address: IpAddr) -> Arp {
    let (from_mac, sha, spa) = (asker.mac, asker.mac, asker.ip);
    Arp { from_mac, to_mac: BROADCAST, reply: false, sha, spa, tha: NO_MAC, tpa: address }
}

fn it_is_at(asker: End, address: IpAddr, mac: Mac) -> Arp {
    let (to_mac, tha, tpa) = (asker.mac, asker.mac, asker.ip);
    Arp { from_mac: mac, to_mac, reply: true, sha: mac, spa: address, tha, tpa }
}

#[test]
fn the_switch_answers_arp_for_peer_gateways_and_service_addresses_p5() {
    let mut w = World::new();
    let peers = PEER_GATEWAYS.map(|peer| peer.parse::<IpAddr>().unwrap());
    for address in peers.into_iter().chain([VIRTUAL, SNAT]) {
        w.passes(HOST.port, who_has(HOST, address), HOST.port, it_is_at(HOST, address, VIRTUAL_MAC));
    }
    // Endpoints reply to the SNAT address.
    w.passes(A.port, who_has(A, SNAT), A.port, it_is_at(A, SNAT, VIRTUAL_MAC));

    // The reference flow answers for the virtual address with another address, which is ignored.
    w.edit(|flows| {
        let actions = "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:aa:bb:cc:dd:ee:ff,load:0x2->NXM_OF_ARP_OP[],\
            move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0xaabbccddeeff->NXM_NX_ARP_SHA[],\
            move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:0xa0a0101->NXM_OF_ARP_SPA[],IN_PORT";
        replace(flows, &format!("table=20,priority=200,arp,arp_tpa=169.254.0.253,arp_op=1 actions={actions}"));
    });
    let wrong = it_is_at(HOST, "10.10.1.1".parse().unwrap(), VIRTUAL_MAC);
    w.passes(HOST.port, who_has(HOST, VIRTUAL), HOST.port, wrong);
}

#[test]
fn other_arp_requests_are_flooded_and_replies_are_unicast() {
    let mut w = World::new();
    let question: Frame = who_has(A, B.ip).into();
    let came = w.send(A.port, question.clone());
    assert_eq!(came, [HOST.port, B.port, C.port].map(|port| (port, question.clone())));
    w.passes(B.port, it_is_at(A, B.ip, B.mac), A.port, it_is_at(A, B.ip, B.mac));
    // The switch has learned A's port by now, but a request is flooded.
    let question: Frame = who_has(HOST, A.ip).into();
    let came = w.send(HOST.port, question.clone());
    assert_eq!(came, [A.port, B.port, C.port].map(|port| (port, question.clone())));
}

#[test]
fn arp_with_a_foreign_address_is_dropped() {
    let mut w = World::new();
    for (ip, mac) in [(B.ip, A.mac), (A.ip, B.mac), (HOST.ip, A.mac), (HOST.ip, HOST.mac)] {
        let spoofed = End { ip, mac, ..A };
        w.drops(A.port, who_has(spoofed, C.ip));
        w.drops(A.port, it_is_at(C, ip, mac));
    }
    w.drops(HOST.port, who_has(End { ip: REMOTE.ip, ..HOST }, A.ip));
}

#[test]
fn packets_with_a_foreign_source_are_dropped() {
    let mut w = World::new();
    let honest = Packet::tcp(A.at(40000), C.at(80), Syn).between(A.mac, C.mac);
    for address in [B.ip, HOST.ip, REMOTE.ip, VIRTUAL, SNAT] {
        w.drops(A.port, Packet { src: address, ..honest.clone() });
    }
    for address in [B.ip6, HOST.ip6, VIRTUAL6, SNAT6] {
        w.drops(A.port, Packet::tcp(at(address, 40000), C.at6(80), Syn).between(A.mac, C.mac));
    }
    w.drops(A.port, honest.clone().between(B.mac, C.mac));
    // Nor through an unused port.
    w.drops("to-node-3", honest.clone());
    w.passes(A.port, honest.clone(), C.port, honest);
}

#[test]
fn invalid_packets_are_dropped_in_any_order_of_installation_p2() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    let corrupt = |packet: Packet| {
        let mut bytes = Frame::from(packet).bytes();
        // A bit of the TCP window, which the checksum covers.
        bytes[14 + 20 + 14] ^= 1;
        bytes
    };
    let packet = Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac);
    let to_service = to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn));
    let state: Vec<Flow> = w.flows().filter(|flow| flow.table == 31).cloned().collect();
    for reversed in [false, true] {
        let order: Vec<_> = if reversed { state.iter().rev().collect() } else { state.iter().collect() };
        let again = order.iter().map(|flow| remove(flow)).chain(order.iter().map(|flow| add(flow)));
        w.switch.change(&again.collect::<Vec<_>>());
        assert_eq!(w.switch.send(A.port, &corrupt(packet.clone())), []);
        assert_eq!(w.switch.send(A.port, &corrupt(to_service.clone())), []);
    }
    w.passes(A.port, packet.clone(), B.port, packet.clone());
    let arrives = from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), Syn));
    w.passes(A.port, to_service, B.port, arrives);

    // The reference flows have equal priority, so the result depends on the order of installation.
    let drop: Flow = "table=31,priority=190,ct_state=+inv+trk,ip actions=drop".parse().unwrap();
    let known: Flow = "table=31,priority=190,ct_state=-new+trk,ip actions=resubmit(,45)".parse().unwrap();
    w.switch.change(&state.iter().filter(|flow| flow.priority > 180).map(remove).collect::<Vec<_>>());
    let mut order = [drop, known];
    let let_through = || {
        order.reverse();
        // One after the other, as the switch keeps removed flows for a moment.
        for flow in &order {
            w.switch.change(&[remove(flow)]);
        }
        for flow in &order {
            w.switch.change(&[add(flow)]);
        }
        (w.switch.send_unread(A.port, &corrupt(packet.clone())) == 1).then_some(())
    };
    until("an order in which the seed's flows let it through", TIMEOUT, let_through).unwrap();
}

const SOLICITED_OVERRIDE: u32 = 0x6000_0000;

/// The solicited-node multicast address, and its MAC.
fn solicited_node(target: IpAddr) -> (IpAddr, Mac) {
    let IpAddr::V6(target) = target else { panic!("{target} is no IPv6 address") };
    let [.., a, b, c] = target.octets();
    let group = format!("ff02::1:ff{a:02x}:{b:02x}{c:02x}").parse().unwrap();
    (group, Mac([0x33, 0x33, 0xff, a, b, c]))
}

fn solicit(asker: End, target: IpAddr) -> Nd {
    let (dst, to_mac) = solicited_node(target);
    let (from_mac, src, link) = (asker.mac, asker.ip6, Some(asker.mac));
    Nd { from_mac, to_mac, src, dst, advertisement: false, flags: 0, target, link }
}

fn advertise(asker: End, target: IpAddr, mac: Mac) -> Nd {
    let (to_mac, dst) = (asker.mac, asker.ip6);
    let flags = SOLICITED_OVERRIDE;
    Nd { from_mac: mac, to_mac, src: target, dst, advertisement: true, flags, target, link: Some(mac) }
}

/// The switch's answer. The kernel's datapath cannot write an advertisement, so it is a solicitation there.
fn answer(asker: End, target: IpAddr) -> Nd {
    if !testkit::ovs::in_kernel() {
        return advertise(asker, target, VIRTUAL_MAC);
    }
    let (from_mac, to_mac, src, dst, link) = (VIRTUAL_MAC, asker.mac, target, asker.ip6, Some(VIRTUAL_MAC));
    Nd { from_mac, to_mac, src, dst, advertisement: false, flags: 0, target: asker.ip6, link }
}

#[test]
fn the_switch_answers_neighbour_solicitations_p17() {
    let mut w = World::new();
    let peers = ["fd00:10:2::1", "fd00:10:3::1"].map(|peer| peer.parse().unwrap());
    for address in peers.into_iter().chain([VIRTUAL6, SNAT6]) {
        w.passes(HOST.port, solicit(HOST, address), HOST.port, answer(HOST, address));
    }
    w.passes(A.port, solicit(A, SNAT6), A.port, answer(A, SNAT6));
}

#[test]
fn isolated_pods_and_the_host_resolve_each_other_by_ipv6() {
    let mut w = World::with(|c| {
        for direction in [pipeline::model::Direction::Ingress, pipeline::model::Direction::Egress] {
            super::objects::isolate(c, direction, A);
        }
    });
    let all_but = |from: &str, frame: &Nd| -> Vec<(&'static str, Frame)> {
        let others = [HOST.port, A.port, B.port, C.port].into_iter().filter(|port| *port != from);
        others.map(|port| (port, frame.clone().into())).collect()
    };
    for (asker, asked) in [(A, B), (A, HOST), (HOST, A)] {
        let question = solicit(asker, asked.ip6);
        assert_eq!(w.send(asker.port, question.clone()), all_but(asker.port, &question));
        let answer = advertise(asker, asked.ip6, asked.mac);
        w.passes(asked.port, answer.clone(), asker.port, answer);
    }
    // Duplicate address detection, from `::`.
    let probe = Nd { src: "::".parse().unwrap(), link: None, ..solicit(A, A.ip6) };
    assert_eq!(w.send(A.port, probe.clone()), all_but(A.port, &probe));
}

#[test]
fn advertisements_of_a_foreign_ipv6_address_are_dropped() {
    let mut w = World::new();
    w.drops(A.port, advertise(C, B.ip6, A.mac));
    w.drops(A.port, Nd { src: A.ip6, ..advertise(C, B.ip6, A.mac) });
    w.drops(A.port, Nd { src: A.ip6, ..advertise(C, HOST.ip6, A.mac) });
    w.drops(A.port, solicit(End { mac: B.mac, ..A }, C.ip6));
    w.drops(A.port, solicit(End { ip6: B.ip6, ..A }, C.ip6));
}

#[test]
fn in_policy_only_mode_all_arp_requests_but_for_the_own_address_are_answered_o5() {
    let mut w = World::with(|c| {
        c.node.mode = Mode::NetworkPolicyOnly;
        c.node.tunnels.clear();
        c.peers.clear();
    });
    for address in ["169.254.1.1", "10.10.0.12", "8.8.8.8"] {
        let address = address.parse().unwrap();
        w.passes(A.port, who_has(A, address), A.port, it_is_at(A, address, VIRTUAL_MAC));
    }
    // An answer to a Pod's probe or announcement of its own address would look like a duplicate address.
    let probe = Arp { spa: "0.0.0.0".parse().unwrap(), ..who_has(A, A.ip) };
    let announcement = who_has(A, A.ip);
    for question in [probe, announcement] {
        let came = w.send(A.port, question);
        assert!(!came.iter().any(|(port, _)| *port == A.port), "{came:?}");
    }
}

#[test]
fn in_policy_only_mode_all_neighbour_solicitations_are_answered() {
    let mut w = World::with(|c| {
        c.node.mode = Mode::NetworkPolicyOnly;
        c.node.tunnels.clear();
        c.peers.clear();
    });
    for address in ["fe80::1", "fd00:10::12", "2001:db8::8", "fc01::aabb:ccdd"] {
        let address = address.parse().unwrap();
        w.passes(A.port, solicit(A, address), A.port, answer(A, address));
        w.passes(HOST.port, solicit(HOST, address), HOST.port, answer(HOST, address));
    }
    // A unicast probe of a known neighbour.
    let again = Nd { dst: B.ip6, to_mac: VIRTUAL_MAC, ..solicit(A, B.ip6) };
    w.passes(A.port, again, A.port, answer(A, B.ip6));
    for target in [A.ip6, "fe80::a".parse().unwrap()] {
        let probe = Nd { src: "::".parse().unwrap(), link: None, ..solicit(A, target) };
        let came = w.send(A.port, probe);
        assert!(!came.iter().any(|(port, _)| *port == A.port), "{came:?}");
    }
}

#[test]
fn duplicate_address_detection_gets_no_unicast_answer() {
    let mut w = World::new();
    let probe = Nd { src: "::".parse().unwrap(), link: None, ..solicit(A, VIRTUAL6) };
    let came = w.send(A.port, probe.clone());
    assert_eq!(came, [HOST.port, B.port, C.port].map(|port| (port, probe.clone().into())));
}
