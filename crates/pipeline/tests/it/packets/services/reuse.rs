//! A client that uses one port for a Service, and for its endpoint directly.

use pipeline::model::FrontendKind;

use super::{BY_CLUSTER_IP, CLUSTER_IP, Side, ask, converse};
use crate::cluster::Service;
use crate::packets::frame::Step::{Reply, Syn};
use crate::packets::frame::{Frame, Packet, Payload};
use crate::packets::objects::{TARGET, local, local6};
use crate::packets::world::{A, B, World, at, from_gateway, to_gateway};

const PORT: u16 = 40000;

/// The client and the endpoint, by the Service.
fn by_service(ipv6: bool) -> (Side, Side) {
    let service = if ipv6 { at("fd00:96::10".parse().unwrap(), 80) } else { at(CLUSTER_IP, 80) };
    let (client, server) = if ipv6 { (A.at6(PORT), B.at6(TARGET)) } else { (A.at(PORT), B.at(TARGET)) };
    let a = Side {
        sends_at: A.port,
        gets_at: A.port,
        own: client,
        other: service,
        sent: |packet| to_gateway(A, packet),
        got: |packet| from_gateway(A, packet),
    };
    let b = Side {
        sends_at: B.port,
        gets_at: B.port,
        own: server,
        other: client,
        sent: |packet| packet.between(B.mac, A.mac),
        got: |packet| from_gateway(B, packet),
    };
    (a, b)
}

/// The same ends without the Service; the endpoint sees this port of the client.
fn directly(ipv6: bool, seen: u16) -> (Side, Side) {
    let (a, b) = by_service(ipv6);
    let other = at(b.other.ip(), seen);
    let a = Side {
        other: b.own,
        sent: |packet| packet.between(A.mac, B.mac),
        got: |packet| packet.between(B.mac, A.mac),
        ..a
    };
    (a, Side { other, got: |packet| packet.between(A.mac, B.mac), ..b })
}

fn world(udp: bool, all_zero_snat: bool) -> World {
    World::with(|c| {
        c.node.all_zero_snat = all_zero_snat;
        let over_ipv6 = FrontendKind::ClusterIp("fd00:96::10".parse().unwrap());
        for (id, kind, endpoint) in [(1, BY_CLUSTER_IP, local(B)), (2, over_ipv6, local6(B))] {
            let mut service = Service::of(kind, 80, &[endpoint]);
            (service.groups[0].id, service.frontends[0].group) = (id, Some(id));
            c.services.push(if udp { service.udp() } else { service });
        }
    })
}

/// All of it with TCP, or with UDP.
fn talk(w: &mut World, udp: bool, (client, server): &(Side, Side)) {
    if udp { ask(w, client, server) } else { converse(w, client, server) }
}

/// The client's port as the endpoint sees it, from a first packet.
fn seen(w: &mut World, udp: bool, client: &Side) -> u16 {
    let first = if udp { Packet::udp(client.own, client.other) } else { Packet::tcp(client.own, client.other, Syn) };
    let came = w.send(client.sends_at, (client.sent)(first));
    match &came[..] {
        [(_, Frame::Ip(Packet { payload: Payload::Tcp { src, .. } | Payload::Udp { src, .. }, .. }))] => *src,
        _ => panic!("{came:?}"),
    }
}

#[test]
fn a_port_that_a_service_connection_uses_is_replaced_in_a_direct_one() {
    for (udp, ipv6) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut w = world(udp, true);
        talk(&mut w, udp, &by_service(ipv6));
        let port = seen(&mut w, udp, &directly(ipv6, PORT).0);
        assert_ne!(port, PORT);
        talk(&mut w, udp, &directly(ipv6, port));
        // Both go on.
        let (client, server) = by_service(ipv6);
        let reply = |own, other| if udp { Packet::udp(own, other) } else { Packet::tcp(own, other, Reply) };
        let got = from_gateway(A, reply(client.other, client.own));
        w.passes(B.port, (server.sent)(reply(server.own, server.other)), A.port, got);
        let (client, server) = directly(ipv6, port);
        let got = (client.got)(reply(client.other, client.own));
        w.passes(B.port, (server.sent)(reply(server.own, server.other)), A.port, got);
    }
}

#[test]
fn a_port_that_no_other_connection_uses_is_kept() {
    let mut w = world(false, true);
    talk(&mut w, false, &directly(false, PORT));
    // The Service connection is the second one now, and gets another port.
    let (client, server) = by_service(false);
    let port = seen(&mut w, false, &client);
    assert_ne!(port, PORT);
    talk(&mut w, false, &(client, Side { other: A.at(port), ..server }));
}

#[test]
fn without_the_feature_replies_of_both_connections_look_alike() {
    if testkit::ovs::in_kernel() {
        // The kernel does not commit a second connection with the same reply.
        let mut w = world(false, false);
        talk(&mut w, false, &by_service(false));
        let (client, _) = directly(false, PORT);
        w.drops(A.port, (client.sent)(Packet::tcp(client.own, client.other, Syn)));
        return;
    }
    let mut w = world(true, false);
    talk(&mut w, true, &by_service(false));
    talk(&mut w, true, &directly(false, PORT));
    // A reply of the Service connection now comes from the endpoint's own address.
    let reply = Packet::udp(B.at(TARGET), A.at(PORT)).between(B.mac, A.mac);
    w.passes(B.port, reply.clone(), A.port, reply);
}
