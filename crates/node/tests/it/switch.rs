//! Desired state of the switch.

use node::{Change, Event, Source};
use pipeline::model::Mode;

use crate::fixture::*;

fn holds(brain: &Agent, text: &str) -> bool {
    flows(brain).iter().any(|flow| flow.contains(text))
}

#[test]
fn a_peer_is_reached_when_all_nodes_are_known_and_no_longer_when_it_is_gone() {
    let mut brain = Agent::new(own(Mode::Encap));
    brain.handle(Event::Node(Change::Set(node(1))));
    brain.handle(Event::Node(Change::Set(node(2))));
    assert!(!holds(&brain, "nw_dst=10.10.2.0/24"), "another Node may still claim the subnet");
    brain.handle(Event::Synced(Source::Nodes));
    assert!(holds(&brain, "nw_dst=10.10.2.0/24"));
    assert!(!holds(&brain, "nw_dst=10.10.1.0/24 actions=set_field"), "the Node itself is not a peer");
    brain.handle(Event::Node(Change::Set(node_with("n2", "192.168.77.9", &["10.10.9.0/24".to_owned()]))));
    assert!(holds(&brain, "nw_dst=10.10.9.0/24") && !holds(&brain, "nw_dst=10.10.2.0/24"));
    brain.handle(Event::Node(Change::Gone(types::ObjectName { namespace: String::new(), name: "n2".to_owned() })));
    assert!(!holds(&brain, "nw_dst=10.10.9.0/24"));
    assert_eq!(brain.problems(), []);
}

#[test]
fn transport_addresses_of_a_peer_are_used() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(2))));
    let leads_to = |brain: &Agent, hex: &str| holds(brain, &format!("set_field:{hex}->tun_dst"));
    assert!(leads_to(&brain, "192.168.77.2"));
    let mut moved = node(2);
    moved.metadata.annotations.insert(types::node::TRANSPORT_ADDRESSES.to_owned(), "192.168.99.2".to_owned());
    brain.handle(Event::Node(Change::Set(moved)));
    assert!(leads_to(&brain, "192.168.99.2") && !leads_to(&brain, "192.168.77.2"));
}

/// A Node with an additional address.
fn node_also_at(index: u8, kind: &str, address: &str) -> types::node::Node {
    let mut node = node(index);
    node.status.addresses.push(types::node::NodeAddress { kind: kind.to_owned(), address: address.to_owned() });
    node
}

#[test]
fn tunnels_are_accepted_from_every_address_of_a_peer_and_not_from_one_that_is_a_pods() {
    let mut brain = synced(Mode::Encap);
    let accepted = |brain: &Agent, outer: &str, inner: &str| {
        holds(brain, &format!("tun_src={outer},nw_src={inner} actions=resubmit"))
    };
    brain.handle(Event::Node(Change::Set(node_also_at(2, "ExternalIP", "198.51.100.2"))));
    for outer in ["192.168.77.2", "198.51.100.2"] {
        for inner in ["10.10.2.0/24", "192.168.77.2", "198.51.100.2"] {
            assert!(accepted(&brain, outer, inner), "{inner} in a tunnel from {outer}");
        }
        assert!(holds(&brain, &format!("nw_dst={outer} actions=resubmit(,65)")), "{outer}");
    }
    // A Node that claims the address of an older Node's Pod is not a peer.
    brain.handle(Event::Node(Change::Set(node_also_at(3, "InternalIP", "10.10.2.7"))));
    assert!(!accepted(&brain, "192.168.77.3", "10.10.3.0/24"));
    assert!(!flows(&brain).iter().any(|flow| flow.contains("10.10.2.7")));
    // Nor is a younger Node whose Pod subnet contains the address of an older Node.
    brain.handle(Event::Node(Change::Set(node_also_at(3, "InternalIP", "10.10.4.7"))));
    brain.handle(Event::Node(Change::Set(node(4))));
    assert!(accepted(&brain, "192.168.77.3", "10.10.4.7"));
    assert!(!accepted(&brain, "192.168.77.4", "10.10.4.0/24"));
    brain.handle(Event::Node(Change::Gone(types::ObjectName { namespace: String::new(), name: "n2".to_owned() })));
    assert!(!flows(&brain).iter().any(|flow| flow.contains("tun_src=198.51.100.2")));
}

#[test]
fn services_wait_for_their_endpoints_so_that_a_restart_breaks_no_connection() {
    let mut brain = Agent::new(own(Mode::Encap));
    let before = flows(&brain);
    brain.handle(Event::Synced(Source::Nodes));
    brain.handle(set_service(service(1, 0)));
    brain.handle(Event::Synced(Source::Services));
    brain.handle(Event::EndpointSlice(Change::Set(slice(1, &[5]))));
    assert_eq!(flows(&brain), before, "a second slice may follow");
    brain.handle(Event::Synced(Source::EndpointSlices));
    assert!(holds(&brain, "nw_dst=10.96.0.1"));
    brain.handle(Event::Service(Change::Gone(name("s1"))));
    assert_eq!(flows(&brain), before);
}

#[test]
fn nothing_is_swept_before_every_source_is_in_sync() {
    let mut brain = Agent::new(own(Mode::Encap));
    let stale: openflow::flow::Flow = "table=0,priority=7,actions=drop".parse().unwrap();
    let sends_a_delete = |brain: &mut Agent| {
        let flows = brain.desired_flows().chain([stale.clone()]).collect();
        brain.connect_switch(flows) > 0
    };
    // Each list of the switch syncs that source.
    for source in Source::ALL.into_iter().filter(|source| *source != Source::Switch) {
        assert!(!sends_a_delete(&mut brain), "before {source:?} is in sync");
        brain.handle(Event::Synced(source));
    }
    assert!(brain.is_synced() && sends_a_delete(&mut brain));
}

#[test]
fn a_service_keeps_its_groups_and_cookies_across_a_restart() {
    let groups = |events: &[Event]| {
        let mut brain = synced(Mode::Encap);
        events.iter().for_each(|event| brain.handle(event.clone()));
        flows(&brain)
    };
    let one = [set_service(service(1, 0)), Event::EndpointSlice(Change::Set(slice(1, &[5])))];
    let other = [set_service(service(2, 0)), Event::EndpointSlice(Change::Set(slice(2, &[6])))];
    let forth: Vec<Event> = one.iter().chain(&other).cloned().collect();
    let back: Vec<Event> = other.iter().chain(&one).cloned().collect();
    assert_eq!(groups(&forth), groups(&back));
}

#[test]
fn a_subnet_that_two_nodes_claim_belongs_to_the_first_by_name_if_both_are_as_old_and_is_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(2))));
    brain.handle(Event::Node(Change::Set(node_with("n3", "192.168.77.3", &["10.10.2.128/25".to_owned()]))));
    brain.handle(Event::Node(Change::Set(node_with("n4", "192.168.77.4", &["10.10.0.0/16".to_owned()]))));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    let fix = "its Pods are unreachable until the Node is recreated with another podCIDR";
    assert_eq!(
        problems,
        [
            format!("Node n3: spec.podCIDRs: 10.10.2.128/25 overlaps 10.10.2.0/24 of Node n2, which keeps it; {fix}"),
            format!("Node n4: spec.podCIDRs: 10.10.0.0/16 overlaps 10.10.1.0/24 of Node n1, which keeps it; {fix}"),
        ]
    );
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n2"]);
}

#[test]
fn an_invalid_node_is_reported_and_the_others_work() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node_with("n2", "192.168.77.2", &["10.10.2.0/33".to_owned()]))));
    brain.handle(Event::Node(Change::Set(node_with("n3", "", &["10.10.3.0/24".to_owned()]))));
    brain.handle(Event::Node(Change::Set(node_with("n4", "192.168.77.4", &["10.10.4.0/31".to_owned()]))));
    let mut lost = node(6);
    lost.metadata.annotations.insert(types::node::TRANSPORT_ADDRESSES.into(), "192.168.77.6,eth1".into());
    brain.handle(Event::Node(Change::Set(lost)));
    brain.handle(Event::Node(Change::Set(node(5))));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "Node n2: spec.podCIDRs: `10.10.2.0/33` is not a range of addresses such as 10.10.1.0/24",
            "Node n3: status.addresses: has no InternalIP, so its Pods are unreachable",
            "Node n4: spec.podCIDRs: 10.10.4.0/31 is too small for a gateway and a Pod",
            "Node n6: metadata.annotations[node.antrea.io/transport-addresses]: `eth1` is not an IP address such as 192.168.1.1",
        ]
    );
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n5"]);
}

#[test]
fn changed_addresses_of_this_node_require_a_restart() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(1))));
    assert_eq!(brain.problems(), []);
    brain.handle(Event::Node(Change::Set(node_with("n1", "192.168.77.1", &["10.10.7.0/24".to_owned()]))));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["Node n1: addresses have changed: restart the agent"]);
}

#[test]
fn two_interfaces_with_one_address_are_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(attached(interface(5)));
    let mut other = interface(6);
    other.addresses = interface(5).addresses;
    brain.handle(attached(other));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["interface pod6-abcdef: address 10.10.1.5 is in use by interface pod5-abcdef, which keeps it"]
    );
}
