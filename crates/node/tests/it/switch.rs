//! What the switch should hold.

use node::{Brain, Change, Event, Source};
use pipeline::model::Mode;

use crate::fixture::*;

fn holds(brain: &mut Brain, text: &str) -> bool {
    flows(brain).iter().any(|flow| flow.contains(text))
}

#[test]
fn a_peer_is_reached_when_all_nodes_are_known_and_no_longer_when_it_is_gone() {
    let mut brain = Brain::new(own(Mode::Encap));
    brain.handle(Event::Node(Change::Set(node(1))));
    brain.handle(Event::Node(Change::Set(node(2))));
    assert!(!holds(&mut brain, "nw_dst=10.10.2.0/24"), "another Node may yet claim the subnet");
    brain.handle(Event::Synced(Source::Nodes));
    assert!(holds(&mut brain, "nw_dst=10.10.2.0/24"));
    assert!(!holds(&mut brain, "nw_dst=10.10.1.0/24"), "the Node itself is no peer");
    brain.handle(Event::Node(Change::Set(node_with("n2", "192.168.77.9", &["10.10.9.0/24".to_owned()]))));
    assert!(holds(&mut brain, "nw_dst=10.10.9.0/24") && !holds(&mut brain, "nw_dst=10.10.2.0/24"));
    brain.handle(Event::Node(Change::Gone(types::ObjectName { namespace: String::new(), name: "n2".to_owned() })));
    assert!(!holds(&mut brain, "nw_dst=10.10.9.0/24"));
    assert_eq!(brain.problems(), []);
}

#[test]
fn a_peer_that_says_where_it_is_reached_is_followed() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(2))));
    let leads_to = |brain: &mut Brain, hex: &str| holds(brain, &format!("set_field:{hex}->tun_dst"));
    assert!(leads_to(&mut brain, "192.168.77.2"));
    let mut moved = node(2);
    moved.metadata.annotations.insert(types::node::TRANSPORT_ADDRESSES.to_owned(), "192.168.99.2".to_owned());
    brain.handle(Event::Node(Change::Set(moved)));
    assert!(leads_to(&mut brain, "192.168.99.2") && !leads_to(&mut brain, "192.168.77.2"));
}

#[test]
fn services_wait_for_their_endpoints_so_that_a_restart_leads_nobody_astray() {
    let mut brain = Brain::new(own(Mode::Encap));
    let before = flows(&mut brain);
    brain.handle(Event::Synced(Source::Nodes));
    brain.handle(set_service(service(1, 0)));
    brain.handle(Event::Synced(Source::Services));
    brain.handle(Event::EndpointSlice(Change::Set(slice(1, &[5]))));
    assert_eq!(flows(&mut brain), before, "a second slice may be on its way");
    brain.handle(Event::Synced(Source::EndpointSlices));
    assert!(holds(&mut brain, "nw_dst=10.96.0.1"));
    brain.handle(Event::Service(Change::Gone(name("s1"))));
    assert_eq!(flows(&mut brain), before);
}

#[test]
fn nothing_is_swept_before_every_source_is_in_sync() {
    let mut brain = Brain::new(own(Mode::Encap));
    let stale: openflow::flow::Flow = "table=0,priority=7,actions=drop".parse().unwrap();
    let sends_a_delete = |brain: &mut Brain| {
        brain.switch().begin_resync();
        let wanted: Vec<_> = brain.switch().desired_flows().collect();
        for flow in &wanted {
            brain.switch().observe_flow(flow);
        }
        brain.switch().observe_flow(&stale);
        brain.switch().end_resync();
        brain.switch().patch().is_some()
    };
    for source in Source::ALL {
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
        flows(&mut brain)
    };
    let one = [set_service(service(1, 0)), Event::EndpointSlice(Change::Set(slice(1, &[5])))];
    let other = [set_service(service(2, 0)), Event::EndpointSlice(Change::Set(slice(2, &[6])))];
    let forth: Vec<Event> = one.iter().chain(&other).cloned().collect();
    let back: Vec<Event> = other.iter().chain(&one).cloned().collect();
    assert_eq!(groups(&forth), groups(&back));
}

#[test]
fn a_subnet_that_two_nodes_claim_belongs_to_the_first_and_is_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(2))));
    brain.handle(Event::Node(Change::Set(node_with("n3", "192.168.77.3", &["10.10.2.128/25".to_owned()]))));
    brain.handle(Event::Node(Change::Set(node_with("n4", "192.168.77.4", &["10.10.0.0/16".to_owned()]))));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "Node n3: spec.podCIDRs: 10.10.2.128/25 overlaps 10.10.2.0/24 of Node n2, which keeps it",
            "Node n4: spec.podCIDRs: 10.10.0.0/16 overlaps 10.10.1.0/24 of Node n1, which keeps it",
        ]
    );
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n2"]);
}

#[test]
fn a_node_that_makes_no_sense_is_named_and_the_others_work() {
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
            "Node n2: spec.podCIDRs: `10.10.2.0/33` is not a range of addresses, as 10.10.1.0/24 is",
            "Node n3: status.addresses: has no InternalIP, so there is no way to its Pods",
            "Node n4: spec.podCIDRs: 10.10.4.0/31 has no room for a gateway and a Pod",
            "Node n6: metadata.annotations[node.antrea.io/transport-addresses]: `eth1` is not an address, as 192.168.1.1 is",
        ]
    );
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n5"]);
}

#[test]
fn a_node_that_becomes_another_one_has_to_start_again() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Node(Change::Set(node(1))));
    assert_eq!(brain.problems(), []);
    brain.handle(Event::Node(Change::Set(node_with("n1", "192.168.77.1", &["10.10.7.0/24".to_owned()]))));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["Node n1: its addresses have changed: the agent has to be restarted"]);
}

#[test]
fn two_interfaces_with_one_address_are_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(Event::Attached(interface(5)));
    let mut other = interface(6);
    other.addresses = interface(5).addresses;
    brain.handle(Event::Attached(other));
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["interface pod6-abcdef: its address 10.10.1.5 is that of pod5-abcdef, which keeps it"]);
}
