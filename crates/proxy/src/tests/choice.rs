//! Tests of the selection of endpoints.

use types::service::{EndpointConditions, EndpointHints, Hint};

use super::*;

const THREE: [&str; 3] = ["10.0.0.1", "10.0.1.1", "10.0.2.1"];

/// The third octet of the endpoints' addresses: 0 is on this Node.
fn of(endpoints: &[Endpoint]) -> Vec<u8> {
    let octet = |endpoint: &Endpoint| match endpoint.address {
        IpAddr::V4(ip) => ip.octets()[2],
        IpAddr::V6(_) => unreachable!(),
    };
    endpoints.iter().map(octet).collect()
}

/// `R`eady, `E`nding (terminating but serving), `G`one (terminating and not serving), `N`ot ready.
fn conditions(slice: &mut EndpointSlice, written: &str) {
    for (endpoint, condition) in slice.endpoints.iter_mut().zip(written.chars()) {
        let (ready, serving, terminating) = match condition {
            'R' => (true, true, false),
            'E' => (false, true, true),
            'G' => (false, false, true),
            _ => (false, false, false),
        };
        endpoint.conditions =
            EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) };
    }
}

#[test]
fn terminating_endpoints_are_used_only_while_none_is_ready() {
    let mut service = service("NodePort");
    service.spec.external_traffic_policy = "Local".to_owned();
    // The first is on this Node.
    for (written, anywhere, here) in [
        ("RRR", &[0, 1, 2][..], &[0][..]),
        ("NRR", &[1, 2], &[]),
        ("ERR", &[1, 2], &[0]),
        ("EEN", &[0, 1], &[0]),
        ("GEN", &[1], &[]),
        ("REE", &[0], &[0]),
        ("NNN", &[], &[]),
        ("GGG", &[], &[]),
    ] {
        let mut slice = slice("IPv4", &THREE);
        conditions(&mut slice, written);
        let port = port(&service, &[slice]);
        assert_eq!(
            (of(&port.endpoints).as_slice(), of(&port.local_endpoints).as_slice()),
            (anywhere, here),
            "{written}"
        );
    }
}

#[test]
fn serving_endpoints_may_keep_their_connections() {
    let serving = |service: &Service, slice: &EndpointSlice| -> Vec<String> {
        port(service, std::slice::from_ref(slice)).serving.iter().map(ToString::to_string).collect()
    };
    let mut near = hinted([("b", ""), ("a", ""), ("a", "")]);
    let mut local = service("NodePort");
    local.spec.internal_traffic_policy = "Local".to_owned();
    local.spec.external_traffic_policy = "Local".to_owned();
    for service in [service("ClusterIP"), local] {
        assert_eq!(serving(&service, &near), ["10.0.0.1:8080", "10.0.1.1:8080", "10.0.2.1:8080"]);
    }
    for (written, kept) in [("RER", 3), ("RGR", 2), ("RNR", 2), ("EEE", 3), ("GGN", 0)] {
        conditions(&mut near, written);
        assert_eq!(serving(&service("ClusterIP"), &near).len(), kept, "{written}");
        assert_eq!(port(&service("ClusterIP"), &[near.clone()]).is_served(), kept > 0, "{written}");
    }
}

#[test]
fn missing_conditions_count_as_ready() {
    // publishNotReadyAddresses needs no code here: in the slices of such a Service all endpoints are ready.
    assert_eq!(of(&port(&service("ClusterIP"), &[slice("IPv4", &THREE)]).endpoints), [0, 1, 2]);
}

#[test]
fn local_endpoints_are_computed_only_for_policy_local() {
    let port = port(&service("NodePort"), &[slice("IPv4", &THREE)]);
    assert_eq!((of(&port.endpoints), of(&port.local_endpoints)), (vec![0, 1, 2], vec![]));
    let mut internal = service("ClusterIP");
    internal.spec.ports[0].node_port = 0;
    internal.spec.internal_traffic_policy = "Local".to_owned();
    let port = super::port(&internal, &[slice("IPv4", &THREE)]);
    assert_eq!((of(&port.endpoints), of(&port.local_endpoints)), (vec![], vec![0]));
}

#[test]
fn an_endpoint_in_two_slices_counts_once_in_its_better_condition() {
    let (mut old, new) = (slice("IPv4", &THREE[..1]), slice("IPv4", &THREE[..1]));
    conditions(&mut old, "E");
    for slices in [[old.clone(), new.clone()], [new, old]] {
        let port = port(&service("ClusterIP"), &slices);
        assert_eq!(of(&port.endpoints), [0]);
    }
}

#[test]
fn a_slice_without_the_port_or_with_another_protocol_has_no_endpoints_for_it() {
    let mut slice = slice("IPv4", &THREE);
    slice.ports[0].port = None;
    assert_eq!(of(&port(&service("ClusterIP"), &[slice.clone()]).endpoints), []);
    slice.ports[0].port = Some(8080);
    slice.ports[0].protocol = Protocol::Udp;
    assert_eq!(of(&port(&service("ClusterIP"), &[slice]).endpoints), []);
}

fn hinted(hints: [(&str, &str); 3]) -> EndpointSlice {
    let mut slice = slice("IPv4", &THREE);
    let names = |text: &str| text.split_whitespace().map(|name| Hint { name: name.to_owned() }).collect::<Vec<_>>();
    for (endpoint, (zones, nodes)) in slice.endpoints.iter_mut().zip(hints) {
        endpoint.hints = Some(EndpointHints { for_zones: names(zones), for_nodes: names(nodes) });
    }
    slice
}

#[test]
fn hints_count_if_every_endpoint_has_them_and_one_is_for_this_node() {
    // This is node1, in zone a. The EndpointSlice controller translates trafficDistribution into these hints.
    for (what, hints, chosen) in [
        ("zones", [("b", ""), ("a", ""), ("a", "")], &[1, 2][..]),
        ("no zone is ours", [("b", ""), ("c", ""), ("d", "")], &[0, 1, 2]),
        ("one without a zone", [("a", ""), ("", ""), ("b", "")], &[0, 1, 2]),
        ("Nodes before zones", [("a", "node1"), ("a", "node2"), ("b", "node3")], &[0]),
        ("zones where no Node is ours", [("a", "node4"), ("a", "node2"), ("b", "node3")], &[0, 1]),
        ("several", [("b a", ""), ("c a", ""), ("c", "")], &[0, 1]),
    ] {
        assert_eq!(of(&port(&service("ClusterIP"), &[hinted(hints)]).endpoints), chosen, "{what}");
    }
}

#[test]
fn hints_have_no_effect_on_a_node_without_a_zone_on_unready_endpoints_and_on_policy_local() {
    let hints = [("b", ""), ("a", ""), ("a", "")];
    let serving = Serving::default();
    let unplaced = Viewpoint { node: "node1", addresses: &BTreeSet::new(), zone: None, serving: &serving };
    let slices = [hinted(hints)];
    let nowhere = compute(&service("ClusterIP"), &slices, &unplaced).ports.pop_first().unwrap();
    assert_eq!(of(&nowhere.endpoints), [0, 1, 2]);
    // The only endpoints for this zone are not ready, so any other is used.
    let mut slice = hinted(hints);
    conditions(&mut slice, "RNN");
    assert_eq!(of(&port(&service("ClusterIP"), &[slice]).endpoints), [0]);
    let mut local = service("NodePort");
    local.spec.external_traffic_policy = "Local".to_owned();
    assert_eq!(of(&port(&local, &[hinted(hints)]).local_endpoints), [0]);
}
