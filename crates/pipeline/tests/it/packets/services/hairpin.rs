//! Pods that are their own endpoint.

use pipeline::model::Direction;

use super::{BY_CLUSTER_IP, CLUSTER_IP, Side, ask, converse};
use crate::cluster::Service;
use crate::packets::frame::Packet;
use crate::packets::objects::{TARGET, isolate, local};
use crate::packets::world::{A, HAIRPIN, World, at, from_gateway, to_gateway};

/// Pod A as the client, and as the server.
fn both_sides() -> (Side, Side) {
    let sent = |packet: Packet| to_gateway(A, packet);
    let got = |packet: Packet| from_gateway(A, packet);
    let client = Side { sends_at: A.port, gets_at: A.port, own: A.at(40000), other: at(CLUSTER_IP, 80), sent, got };
    let server = Side { own: A.at(TARGET), other: at(HAIRPIN, 40000), ..client };
    (client, server)
}

#[test]
fn a_pod_reaches_itself_through_a_service() {
    let (client, server) = both_sides();
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(A)])));
    converse(&mut w, &client, &server);
    w.change(|c| c.services[0] = Service::of(BY_CLUSTER_IP, 80, &[local(A)]).udp());
    ask(&mut w, &client, &server);
}

#[test]
fn no_isolation_keeps_a_pod_from_itself() {
    let (client, server) = both_sides();
    let mut w = World::with(|c| {
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(A)]));
        isolate(c, Direction::Egress, A);
        isolate(c, Direction::Ingress, A);
    });
    converse(&mut w, &client, &server);
}
