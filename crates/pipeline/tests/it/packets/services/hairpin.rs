//! Hairpin: Pods that are their own endpoint.

use pipeline::model::{Direction, RuleAction};

use super::{BY_CLUSTER_IP, CLUSTER_IP, Side, ask, converse};
use crate::cluster::Service;
use crate::packets::frame::Packet;
use crate::packets::objects::{TARGET, isolate, local, tiered};
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
fn policies_do_not_apply_to_a_pods_connection_to_itself_r3() {
    let (client, server) = both_sides();
    for tiers in [true, false] {
        let mut w = World::with(|c| {
            c.node.features.antrea_policy = tiers;
            c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(A)]));
            for (id, direction) in [(1, Direction::Egress), (2, Direction::Ingress)] {
                isolate(c, direction, A);
                if tiers {
                    c.rules.push(tiered(id, direction, A, 44900, RuleAction::Drop));
                }
            }
        });
        converse(&mut w, &client, &server);
    }
}
