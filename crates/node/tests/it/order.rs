//! Desired state depends on the current objects, never on the order of events.

use node::{Change, Event, PortEvent};
use pipeline::model::Mode;
use proptest::prelude::*;
use types::ObjectName;

use crate::fixture::*;

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let gone_node = |n: u8| Event::Node(Change::Gone(ObjectName { namespace: String::new(), name: format!("n{n}") }));
    let overlapping = |n: u8| node_with(&format!("n{n}"), &format!("192.168.77.{n}"), &["10.10.0.0/20".to_owned()]);
    prop_oneof![
        (1..5u8).prop_map(|n| Event::Node(Change::Set(node(n)))),
        (1..5u8, 2020..2023u16).prop_map(|(n, year)| Event::Node(Change::Set(created(node(n), year)))),
        (2..5u8, 2020..2023u16, 2..5u8).prop_map(|(n, year, of)| {
            let subnet = format!("10.10.{of}.0/24");
            Event::Node(Change::Set(created(node_with(&format!("n{n}"), &format!("10.10.{of}.9"), &[subnet]), year)))
        }),
        (
            1..4u8,
            prop_oneof![
                Just("10.96.0.2"),
                Just("192.0.2.1"),
                Just("192.168.77.3"),
                Just("10.10.3.7"),
                Just("192.168.77.99")
            ]
        )
            .prop_map(|(n, ip)| {
                let mut claiming = service(n, 0);
                claiming.spec.external_ips = vec![ip.to_owned()];
                set_service(claiming)
            }),
        prop_oneof![Just("192.168.77.99"), Just("10.10.2.4")]
            .prop_map(|ip| Event::EndpointSlice(Change::Set(api_server("kubernetes", ip)))),
        (2..5u8).prop_map(move |n| Event::Node(Change::Set(overlapping(n)))),
        (2..5u8).prop_map(gone_node),
        (1..4u8, prop_oneof![Just(0), Just(30001), Just(30002)]).prop_map(|(n, port)| set_service(service(n, port))),
        (1..4u8).prop_map(|n| Event::Service(Change::Gone(name(&format!("s{n}"))))),
        (1..4u8, proptest::collection::vec(5..9u8, 0..4))
            .prop_map(|(n, pods)| Event::EndpointSlice(Change::Set(slice(n, &pods)))),
        // A slice moves to another Service: same slice name, another Service label.
        (1..4u8, 1..4u8).prop_map(|(n, of)| {
            let mut moved = slice(of, &[5]);
            moved.metadata.name = format!("s{n}-x");
            Event::EndpointSlice(Change::Set(moved))
        }),
        (1..4u8).prop_map(|n| Event::EndpointSlice(Change::Gone(name(&format!("s{n}-x"))))),
        (5..9u8).prop_map(|n| attached(interface(n))),
        (5..9u8).prop_map(|n| Event::Port(PortEvent::Gone(format!("pod{n}-abcdef")))),
    ]
}

/// The object that an event is about.
fn subject(event: &Event) -> String {
    match event {
        Event::Node(Change::Set(node)) => format!("node {}", node.metadata.name),
        Event::Node(Change::Gone(name)) => format!("node {}", name.name),
        Event::Service(Change::Set(service)) => format!("service {}", service.metadata.name),
        Event::Service(Change::Gone(name)) => format!("service {}", name.name),
        Event::EndpointSlice(Change::Set(slice)) => format!("slice {}", slice.metadata.name),
        Event::EndpointSlice(Change::Gone(name)) => format!("slice {}", name.name),
        Event::Port(PortEvent::Set(row)) => format!("interface {}", row.name),
        Event::Port(PortEvent::Gone(name)) => format!("interface {name}"),
        other => panic!("{other:?}"),
    }
}

fn handle(brain: &mut Agent, event: &Event) {
    match event {
        Event::Port(PortEvent::Gone(name)) => brain.handle(detached(name.clone())),
        event => brain.handle(event.clone()),
    }
}

proptest! {
    #[test]
    fn only_the_last_event_for_each_object_matters(events in proptest::collection::vec(event(), 0..60), syncs in 0..60usize) {
        let mut walked = Agent::new(own(Mode::Hybrid));
        for (index, event) in events.iter().enumerate() {
            if index == syncs {
                sync(&mut walked);
            }
            handle(&mut walked, event);
        }
        sync(&mut walked);

        // Only the last event for each object, in another order, before the initial sync.
        let mut direct = Agent::new(own(Mode::Hybrid));
        let last = events.iter().enumerate().filter(|(index, event)| {
            !events[index + 1..].iter().any(|later| subject(later) == subject(event))
        });
        let mut last: Vec<&Event> = last.map(|(_, event)| event).collect();
        last.sort_by_key(|event| subject(event));
        last.into_iter().for_each(|event| handle(&mut direct, event));
        sync(&mut direct);

        prop_assert_eq!(flows(&walked), flows(&direct));
        prop_assert_eq!(walked.host(), direct.host());
        prop_assert_eq!(walked.problems(), direct.problems());
    }
}
