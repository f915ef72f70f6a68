//! NodePorts, load balancer addresses and external IPs: from external clients, Pods and the host.
//!
//! The host has DNATed packets for a NodePort to the virtual address, and routes external addresses to the gateway
//! unchanged.

use std::net::{IpAddr, SocketAddr};

use openflow::field::Field;
use pipeline::model::FrontendKind;

use super::{BY_EXTERNAL_IP, BY_NODE_PORT, EXTERNAL_IP, NODE_PORT, Side, ask, converse};
use crate::cluster::{Flows, Service, key};
use crate::packets::frame::Step::{Syn, SynAck};
use crate::packets::frame::{Frame, Packet};
use crate::packets::objects::{TARGET, elsewhere, local};
use crate::packets::world::{
    A, B, HOST, NODE, OUTSIDE, PEER_MAC, REMOTE, SNAT, TO_NODE_2, VIRTUAL, VIRTUAL_MAC, World, at, from_gateway,
    from_host, from_tunnel, replace, to_gateway,
};

/// Every kind of frontend of external clients: its port, and its address on the gateway.
const FRONTENDS: [(FrontendKind, u16, IpAddr); 2] =
    [(BY_NODE_PORT, NODE_PORT, VIRTUAL), (BY_EXTERNAL_IP, 80, EXTERNAL_IP)];

/// An external client that connects to `to`.
fn client(to: SocketAddr) -> Side {
    Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: at(OUTSIDE, 50000),
        other: to,
        sent: from_host,
        got: |packet| packet.between(B.mac, HOST.mac).routed(1),
    }
}

/// Pod B, which sees a client with this address.
fn pod_b(seen: SocketAddr) -> Side {
    let next_hop: fn(Packet) -> Packet = match seen.ip() {
        SNAT => |packet| packet.between(B.mac, VIRTUAL_MAC),
        _ => |packet| packet.between(B.mac, HOST.mac),
    };
    Side {
        sends_at: B.port,
        gets_at: B.port,
        own: B.at(TARGET),
        other: seen,
        sent: next_hop,
        got: |packet| packet.between(HOST.mac, B.mac),
    }
}

/// The Pod on Node 2.
fn remote(seen: SocketAddr) -> Side {
    Side {
        sends_at: REMOTE.port,
        gets_at: TO_NODE_2,
        own: REMOTE.at(TARGET),
        other: seen,
        sent: from_tunnel,
        got: |packet| packet.between(HOST.mac, VIRTUAL_MAC),
    }
}

#[test]
fn an_external_client_reaches_local_endpoints_with_the_snat_address() {
    for (kind, port, address) in FRONTENDS {
        let mut w = World::with(|c| c.services.push(Service::of(kind, port, &[local(B)])));
        converse(&mut w, &client(at(address, port)), &pod_b(at(SNAT, 50000)));
        w.change(|c| c.services[0] = Service::of(kind, port, &[local(B)]).udp());
        ask(&mut w, &client(at(address, port)), &pod_b(at(SNAT, 50000)));
    }
}

#[test]
fn an_external_client_reaches_endpoints_on_other_nodes() {
    for (kind, port, address) in FRONTENDS {
        let mut w = World::with(|c| c.services.push(Service::of(kind, port, &[elsewhere(REMOTE.ip)])));
        let client = Side { got: |packet| packet.between(PEER_MAC, HOST.mac).routed(2), ..client(at(address, port)) };
        converse(&mut w, &client, &remote(at(SNAT, 50000)));
        w.change(|c| c.services[0] = Service::of(kind, port, &[elsewhere(REMOTE.ip)]).udp());
        ask(&mut w, &client, &remote(at(SNAT, 50000)));
    }
}

#[test]
fn an_external_client_reaches_host_network_endpoints_through_the_gateway() {
    for (kind, port, address) in FRONTENDS {
        let mut w = World::with(|c| c.services.push(Service::of(kind, port, &[elsewhere(NODE)])));
        let client = Side { got: |packet| packet.between(HOST.mac, HOST.mac), ..client(at(address, port)) };
        let on_host = Side {
            sends_at: HOST.port,
            gets_at: HOST.port,
            own: at(NODE, TARGET),
            other: at(VIRTUAL, 50000),
            sent: from_host,
            got: |packet| packet.between(HOST.mac, HOST.mac),
        };
        converse(&mut w, &client, &on_host);
    }
}

#[test]
fn with_policy_local_the_endpoint_sees_the_client() {
    for (kind, port, address) in FRONTENDS {
        let all = [local(B), elsewhere(REMOTE.ip)];
        let mut w = World::with(|c| c.services.push(Service::of(kind, port, &all).local_only(&[local(B)])));
        // Never to the other Node, whatever the source port.
        for own in (50000..50008).map(|own| at(OUTSIDE, own)) {
            converse(&mut w, &Side { own, ..client(at(address, port)) }, &pod_b(own));
        }
    }
}

#[test]
fn with_policy_local_and_no_local_endpoint_only_cluster_clients_are_served_s1() {
    for (kind, port, address) in FRONTENDS {
        let service = || Service::of(kind, port, &[elsewhere(REMOTE.ip)]).local_only(&[]);
        let mut w = World::with(|c| c.services.push(service()));
        let syn = |own: SocketAddr, to: IpAddr| Packet::tcp(own, at(to, port), Syn);
        w.drops(HOST.port, from_host(syn(at(OUTSIDE, 50000), address)));

        let from_pod = if kind == BY_NODE_PORT { NODE } else { address };
        let there = Packet::tcp(A.at(40000), REMOTE.at(TARGET), Syn).between(HOST.mac, VIRTUAL_MAC).routed(1);
        w.passes(A.port, to_gateway(A, syn(A.at(40000), from_pod)), TO_NODE_2, there);
        for own in [HOST.at(40001), at(NODE, 40002)] {
            let there = Packet::tcp(at(SNAT, own.port()), REMOTE.at(TARGET), Syn).between(HOST.mac, VIRTUAL_MAC);
            w.passes(HOST.port, from_host(syn(own, address)), TO_NODE_2, there);
        }

        // The reference has one group for all clients.
        w.edit(|flows| flows.retain(|(table, priority, _), _| (*table, *priority) != (41, 210)));
        w.drops(A.port, to_gateway(A, syn(A.at(40003), from_pod)));
    }
}

#[test]
fn a_pod_reaches_node_ports_and_external_addresses_with_its_own_address() {
    for (kind, port, addresses) in
        [(BY_NODE_PORT, NODE_PORT, [NODE, HOST.ip].as_slice()), (BY_EXTERNAL_IP, 80, &[EXTERNAL_IP])]
    {
        let mut w = World::with(|c| c.services.push(Service::of(kind, port, &[local(B)])));
        for (own, address) in (40000..).map(|port| A.at(port)).zip(addresses) {
            let pod_a = Side {
                sends_at: A.port,
                gets_at: A.port,
                own,
                other: at(*address, port),
                sent: |packet| to_gateway(A, packet),
                got: |packet| from_gateway(A, packet),
            };
            let sent = |packet: Packet| packet.between(B.mac, A.mac);
            let got = |packet| from_gateway(B, packet);
            converse(&mut w, &pod_a, &Side { sent, got, ..pod_b(own) });
        }
    }
}

#[test]
fn a_port_that_is_not_a_node_port_goes_to_the_host() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)])));
    let syn = to_gateway(A, Packet::tcp(A.at(40000), at(NODE, NODE_PORT + 1), Syn));
    w.passes(A.port, syn.clone(), HOST.port, syn);
    // The NodePort is not open on a Pod's address.
    let syn = Packet::tcp(A.at(40000), B.at(NODE_PORT), Syn).between(A.mac, B.mac);
    w.passes(A.port, syn.clone(), B.port, syn);
}

#[test]
fn with_the_reference_flow_a_load_balancer_client_gets_no_snat_p4() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_EXTERNAL_IP, 80, &[elsewhere(REMOTE.ip)])));
    w.edit(|flows| {
        let matches = "table=41,priority=200,tcp,reg4=0x10000/0x70000,nw_dst=198.51.100.1,tp_dst=80,cookie=1";
        let actions = "load:0x2->NXM_NX_REG4[16..18],load:0x1->NXM_NX_REG0[19],group:1";
        replace(flows, &format!("{matches} actions={actions}"));
        // The reference has no flow for packets to the tunnel either (D10).
        flows.retain(|(table, priority, _), _| (*table, *priority) != (106, 205));
    });
    // The endpoint sees the client's address, and would reply without passing this Node.
    let syn = from_host(Packet::tcp(at(OUTSIDE, 50000), at(EXTERNAL_IP, 80), Syn));
    let leaked = Packet::tcp(at(OUTSIDE, 50000), REMOTE.at(TARGET), Syn).between(HOST.mac, VIRTUAL_MAC);
    w.passes(HOST.port, syn, TO_NODE_2, leaked);
}

/// The reference keeps the need for SNAT in a register of the first packet only.
fn forget_who_is_translated(flows: &mut Flows) {
    let snat = |flow: &&mut openflow::flow::Flow| flow.table == 106 && flow.matches.get(Field::CtMark).is_some();
    for flow in flows.values_mut().filter(snat) {
        flow.matches.set(Field::CtMark, 0, 0);
        flow.matches.set(Field::Reg4, 0x10_0000, 0x10_0000);
    }
}

#[test]
fn a_retransmitted_first_packet_gets_snat_too_d6() {
    for (kind, port, address) in FRONTENDS {
        let services = |udp: bool| {
            let service = Service::of(kind, port, &[local(B)]);
            if udp { service.udp() } else { service }
        };
        for udp in [false, true] {
            let mut w = World::with(|c| c.services.push(services(udp)));
            let packet = |own, other| if udp { Packet::udp(own, other) } else { Packet::tcp(own, other, Syn) };
            let sent = from_host(packet(at(OUTSIDE, 50000), at(address, port)));
            let got = packet(at(SNAT, 50000), B.at(TARGET)).between(HOST.mac, B.mac);
            for _ in 0..3 {
                w.passes(HOST.port, sent.clone(), B.port, got.clone());
            }

            w.edit(forget_who_is_translated);
            let sent = from_host(packet(at(OUTSIDE, 50001), at(address, port)));
            let got = packet(at(SNAT, 50001), B.at(TARGET)).between(HOST.mac, B.mac);
            w.passes(HOST.port, sent.clone(), B.port, got);
            let leaked = packet(at(OUTSIDE, 50001), B.at(TARGET)).between(HOST.mac, B.mac);
            w.passes(HOST.port, sent, B.port, leaked);
        }
    }
}

#[test]
fn snat_does_not_collide_with_connections_of_the_host_d11() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)])));
    converse(&mut w, &client(at(VIRTUAL, NODE_PORT)), &pod_b(at(SNAT, 50000)));
    // The same source port of the host, to the same port of the same Pod.
    let own = HOST.at(50000);
    let host = Side {
        own,
        other: B.at(TARGET),
        sent: |packet| packet.between(HOST.mac, B.mac),
        got: |packet| packet.between(B.mac, HOST.mac),
        ..client(B.at(TARGET))
    };
    converse(&mut w, &host, &pod_b(own));

    // With the reference flows clients are SNATed to the gateway's address, and one receives a reply for the host.
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)])));
    w.edit(translate_to_the_gateway);
    w.send(HOST.port, from_host(Packet::tcp(at(OUTSIDE, 50000), at(VIRTUAL, NODE_PORT), Syn)));
    w.send(HOST.port, Packet::tcp(own, B.at(TARGET), Syn).between(HOST.mac, B.mac));
    let answer = Packet::tcp(B.at(TARGET), own, SynAck).between(B.mac, HOST.mac);
    let came = w.send(B.port, answer.clone());
    assert!(!came.contains(&(HOST.port, Frame::Ip(answer))), "{came:?}");
}

/// SNAT of the reference: to the gateway's address.
fn translate_to_the_gateway(flows: &mut Flows) {
    let as_seed = |flow: &openflow::flow::Flow| flow.to_string().replace("10.10.0.254", "10.10.0.1");
    let texts: Vec<String> = flows.values().filter(|flow| [24, 106].contains(&flow.table)).map(as_seed).collect();
    flows.retain(|(table, _, _), _| ![24, 106].contains(table));
    for text in texts {
        let flow: openflow::flow::Flow = text.parse().unwrap();
        flows.insert(key(&flow), flow);
    }
}
