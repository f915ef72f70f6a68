//! Cluster IPs, from Pods and from the host.

use openflow::port::Port;

use super::{BY_CLUSTER_IP, CLUSTER_IP, Side, ask, converse};
use crate::cluster::Service;
use crate::packets::frame::Step::{Data, Reply, Syn, SynAck};
use crate::packets::frame::{Frame, Packet};
use crate::packets::objects::{TARGET, elsewhere, local};
use crate::packets::world::{
    A, B, C, HOST, NODE, NODE_2, PEER_MAC, REMOTE, SNAT, TO_NODE_2, VIRTUAL_MAC, World, at, from_gateway, from_host,
    from_tunnel, replace, to_gateway, tunnelled,
};

/// Pod A, which connects to the Service.
fn pod_a() -> Side {
    Side {
        sends_at: A.port,
        gets_at: A.port,
        own: A.at(40000),
        other: at(CLUSTER_IP, 80),
        sent: |packet| to_gateway(A, packet),
        got: |packet| from_gateway(A, packet),
    }
}

/// Pod B, which answers it.
fn pod_b() -> Side {
    Side {
        sends_at: B.port,
        gets_at: B.port,
        own: B.at(TARGET),
        other: A.at(40000),
        sent: |packet| packet.between(B.mac, A.mac),
        got: |packet| from_gateway(B, packet),
    }
}

#[test]
fn a_pod_reaches_an_endpoint_on_its_own_node() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    converse(&mut w, &pod_a(), &pod_b());
    w.change(|c| c.services.push(Service::of(BY_CLUSTER_IP, 53, &[local(B)]).udp()));
    ask(&mut w, &Side { other: at(CLUSTER_IP, 53), ..pod_a() }, &pod_b());
}

#[test]
fn without_reverting_nat_no_service_works_p1() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    w.edit(|flows| replace(flows, "table=30,priority=200,ip,actions=ct(table=31,zone=65520)"));
    let syn = to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn));
    w.passes(A.port, syn, B.port, from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), Syn)));
    // The client receives a reply from an unknown address.
    let reply = Packet::tcp(B.at(TARGET), A.at(40000), SynAck);
    w.passes(B.port, reply.clone().between(B.mac, A.mac), A.port, from_gateway(A, reply));
}

#[test]
fn a_pod_reaches_an_endpoint_on_another_node() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(REMOTE.ip)])));
    let remote = Side {
        sends_at: REMOTE.port,
        gets_at: TO_NODE_2,
        own: REMOTE.at(TARGET),
        other: A.at(40000),
        sent: from_tunnel,
        got: tunnelled,
    };
    // The other Node has routed the reply once, this one routes it again.
    converse(&mut w, &Side { got: |packet| from_gateway(A, packet).routed(1), ..pod_a() }, &remote);
}

#[test]
fn a_pod_reaches_host_network_endpoints() {
    for host in [NODE, NODE_2] {
        let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(host)])));
        let on_host = Side {
            sends_at: HOST.port,
            gets_at: HOST.port,
            own: at(host, TARGET),
            other: A.at(40000),
            sent: |packet| packet.between(HOST.mac, A.mac),
            got: |packet| packet.between(A.mac, HOST.mac).routed(1),
        };
        // The host has routed its packets itself.
        converse(&mut w, &Side { got: |packet| packet.between(HOST.mac, A.mac), ..pod_a() }, &on_host);
    }
}

#[test]
fn the_host_reaches_an_endpoint_on_its_own_node_with_its_own_address() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    for (own, port) in [(HOST.ip, 41000), (NODE, 41001)] {
        let host = Side {
            sends_at: HOST.port,
            gets_at: HOST.port,
            own: at(own, port),
            other: at(CLUSTER_IP, 80),
            sent: from_host,
            got: if own == HOST.ip {
                |packet| packet.between(B.mac, HOST.mac)
            } else {
                |packet| packet.between(B.mac, HOST.mac).routed(1)
            },
        };
        let server = Side {
            other: at(own, port),
            sent: |packet| to_gateway(B, packet),
            got: |packet| packet.between(HOST.mac, B.mac),
            ..pod_b()
        };
        converse(&mut w, &host, &server);
    }
}

/// The host, which connects from the Node's address to an endpoint on another Node, and that endpoint.
fn host_and_remote() -> (Side, Side) {
    let host = Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: at(NODE, 41000),
        other: at(CLUSTER_IP, 80),
        sent: from_host,
        got: |packet| packet.between(PEER_MAC, HOST.mac).routed(2),
    };
    let remote = Side {
        sends_at: REMOTE.port,
        gets_at: TO_NODE_2,
        own: REMOTE.at(TARGET),
        other: at(SNAT, 41000),
        sent: from_tunnel,
        got: |packet| packet.between(HOST.mac, VIRTUAL_MAC),
    };
    (host, remote)
}

#[test]
fn the_host_reaches_an_endpoint_on_another_node_with_snat_d10() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(REMOTE.ip)])));
    let (host, remote) = host_and_remote();
    converse(&mut w, &host, &remote);

    // Without SNAT the endpoint would reply to the Node directly, bypassing the tunnel and the NAT.
    w.edit(|flows| flows.retain(|(table, priority, _), _| (*table, *priority) != (106, 205)));
    let syn = from_host(Packet::tcp(at(NODE, 41001), at(CLUSTER_IP, 80), Syn));
    let leaked = Packet::tcp(at(NODE, 41001), REMOTE.at(TARGET), Syn).between(HOST.mac, VIRTUAL_MAC);
    w.passes(HOST.port, syn, TO_NODE_2, leaked);
}

#[test]
fn connections_spread_over_all_endpoints_udp_too_g1() {
    let endpoints = [local(B), local(C), elsewhere(REMOTE.ip)];
    let mut w = World::with(|c| {
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &endpoints));
        let mut dns = Service::of(BY_CLUSTER_IP, 53, &endpoints).udp();
        (dns.groups[0].id, dns.frontends[0].group) = (7, Some(7));
        c.services.push(dns);
    });
    for udp in [false, true] {
        let mut hits = std::collections::BTreeMap::new();
        for client in 40000..40060 {
            let (own, other) = (A.at(client), at(CLUSTER_IP, if udp { 53 } else { 80 }));
            let packet = if udp { Packet::udp(own, other) } else { Packet::tcp(own, other, Syn) };
            let came = w.send(A.port, to_gateway(A, packet));
            assert_eq!(came.len(), 1, "{came:?}");
            *hits.entry(came[0].0).or_insert(0) += 1;
        }
        assert_eq!(hits.keys().copied().collect::<Vec<_>>(), [B.port, C.port, TO_NODE_2], "{hits:?}");
    }
}

#[test]
fn established_connections_keep_their_endpoint_when_the_endpoints_change() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    converse(&mut w, &pod_a(), &pod_b());
    // The endpoint may be terminating gracefully: established connections are kept.
    w.change(|c| c.services[0].set_endpoints(&[local(C)]));
    let data = |step| Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), step);
    w.passes(A.port, to_gateway(A, data(Data)), B.port, from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), Data)));
    let reply = Packet::tcp(B.at(TARGET), A.at(40000), Reply).between(B.mac, A.mac);
    w.passes(B.port, reply, A.port, from_gateway(A, Packet::tcp(at(CLUSTER_IP, 80), A.at(40000), Reply)));
    // A new connection goes to the new endpoint.
    let syn = to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn));
    w.passes(A.port, syn, C.port, from_gateway(C, Packet::tcp(A.at(40001), C.at(TARGET), Syn)));
}

#[test]
fn packets_for_a_service_without_endpoints_go_to_the_agent() {
    let mut w = World::with(|c| {
        let mut service = Service::of(BY_CLUSTER_IP, 80, &[]);
        service.frontends[0].group = None;
        c.services.push(service);
    });
    let syn = to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn));
    w.drops(A.port, syn.clone());
    let asked = w.switch.client.packet_ins();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((asked[0].in_port(), &asked[0].userdata[..]), (Some(Port(3)), &[2][..]));
    assert_eq!(Frame::read(&asked[0].packet), Frame::Ip(syn));
}
