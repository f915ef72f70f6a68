//! Recordings and checkpoints: a replay ends with the same desired state.

use std::collections::BTreeSet;

use node::database::BridgeSpec;
use node::recording::{EntryRef, FORMAT, Header, InvalidRecording, Replay};
use node::{CniEvent, Effect, Event, PortEvent, SwitchEvent, Time};
use pipeline::model::Mode;
use proptest::prelude::*;
use serde_json::json;

use crate::fixture::*;
use crate::order;
use crate::policies::Controller;

fn header() -> Header {
    let bridge = BridgeSpec {
        bridge: "br-int".to_owned(),
        datapath: "netdev".to_owned(),
        gateway: "antrea-gw0".to_owned(),
        mtu: 1450,
        tunnel: None,
        transport: None,
    };
    Header { format: FORMAT, version: "test".to_owned(), own: own(Mode::Hybrid), bridge }
}

/// An agent that writes its recording.
struct Recorded {
    agent: Agent,
    lines: Vec<String>,
    ticks: u64,
}

impl Recorded {
    fn new() -> Self {
        Self { agent: Agent::new(own(Mode::Hybrid)), lines: Vec::new(), ticks: 0 }
    }

    /// Takes a step, records it, and answers requests to the switch and the kernel.
    fn go(&mut self, events: Vec<Event>) {
        let mut events = events;
        while !events.is_empty() {
            self.ticks += 1;
            let now = Time::from_millis(self.ticks);
            self.lines.push(serde_json::to_string(&EntryRef::new(now, &events)).unwrap());
            self.agent.step(now, events);
            events = self.agent.take_effects().into_iter().filter_map(answer).collect();
        }
    }

    fn attempt(&mut self, batch: types::control::Batch) {
        // The fixture's stream has attempt 1.
        self.go(vec![Event::Controller(node::ControllerEvent::Batch { attempt: 1, batch })]);
    }
}

fn answer(effect: Effect) -> Option<Event> {
    Some(match effect {
        Effect::List => Event::Switch(SwitchEvent::Listed(Ok(()))),
        Effect::Commit => Event::Switch(SwitchEvent::Committed(Ok(()))),
        Effect::Connect { attempt, .. } => Event::Controller(node::ControllerEvent::Connected { attempt }),
        Effect::DeleteVeth(name) => Event::Cni(CniEvent::VethDeleted { name, outcome: Ok(()) }),
        Effect::Release { id, .. } => Event::Cni(CniEvent::Released { id, outcome: Ok(()) }),
        _ => return None,
    })
}

fn replayed(lines: &[String]) -> Replay {
    let mut replay = Replay::new(header()).unwrap();
    for line in lines {
        replay.step(serde_json::from_str(line).unwrap());
    }
    replay
}

/// All desired state as lines.
fn state(brain: &node::Brain) -> BTreeSet<String> {
    let flows = brain.flows().map(|(flow, owners)| format!("{flow} {owners:?}"));
    let groups = brain.groups().map(|(group, owners)| format!("{group:?} {owners:?}"));
    let problems = brain.problems().into_iter().map(|problem| problem.to_string());
    let rest = [
        format!("{:?}", brain.host()),
        format!("{:?}", brain.database(header().bridge)),
        format!("settled: {}, due: {}", brain.is_settled(), brain.bundle().count()),
    ];
    flows.chain(groups).chain(problems).chain(rest).collect()
}

fn same(recorded: &Agent, replay: &mut Replay) -> Result<(), TestCaseError> {
    let (recorded, replayed) = (state(recorded), state(replay.brain()));
    let (missing, added): (Vec<_>, Vec<_>) =
        (recorded.difference(&replayed).collect(), replayed.difference(&recorded).collect());
    prop_assert!(missing.is_empty() && added.is_empty(), "missing: {missing:#?}\nadded: {added:#?}");
    Ok(())
}

/// A Node after its initial sync, connected to a controller with a policy for one of its Pods.
fn started() -> (Recorded, Controller) {
    let mut node = Recorded::new();
    node.go(vec![Event::Switch(SwitchEvent::Up(1))]);
    for source in [node::Source::Nodes, node::Source::Services, node::Source::EndpointSlices, node::Source::Interfaces]
    {
        node.go(vec![Event::Synced(source)]);
    }
    let mut controller = Controller::new();
    controller.policy("web", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}));
    (5..9).for_each(|n| controller.pod(n, "n1", json!({"app": "web"}), true));
    let addresses = vec![std::net::SocketAddr::from(([192, 0, 2, 1], 10349))];
    let discovery = node::Discovery { is_synced: true, is_deployed: true, has_snapshot: false, addresses };
    node.go(vec![Event::Controller(node::ControllerEvent::Discovered(discovery))]);
    let snapshot = controller.snapshot();
    node.attempt(snapshot);
    node.go(vec![Event::Cni(CniEvent::Open)]);
    (node, controller)
}

#[test]
fn a_recording_of_another_format_is_rejected_with_the_version_to_use() {
    let error = Replay::new(Header { format: FORMAT + 1, ..header() }).unwrap_err();
    assert_eq!(error, InvalidRecording::Format(FORMAT + 1, "test".to_owned()));
    assert!(error.to_string().contains("use an antctl of the agent's version, test"));
}

#[test]
fn a_recording_has_flows_of_the_switch_with_parts_that_are_not_understood() {
    let (node, _) = started();
    let mut flows: Vec<_> = node.agent.desired_flows().collect();
    flows[0].unknown = vec![vec![0xff, 0xee, 0, 8, 1, 2, 3, 4]];
    let event = Event::Switch(SwitchEvent::Flows(flows));
    let text = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
}

#[test]
fn there_is_no_checkpoint_while_a_commit_is_in_flight() {
    let (mut node, _) = started();
    assert!(node.agent.checkpoint().is_some());
    node.agent.step(Time::from_secs(1), [attached(interface(5))]);
    assert_eq!(node.agent.checkpoint(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_ends_with_the_same_state_also_from_a_checkpoint(
        events in proptest::collection::vec(order::event(), 0..60),
        cut in 0..60usize,
        policies in proptest::collection::vec((0..60usize, 1..5u8, any::<bool>()), 0..6),
    ) {
        let (mut node, mut controller) = started();
        let mut checkpoint = None;
        for (index, event) in events.into_iter().enumerate() {
            if index == cut {
                let events = node.agent.checkpoint().expect("nothing is in progress");
                let entry = EntryRef::new(Time::from_millis(node.ticks), &events);
                checkpoint = Some((node.lines.len(), serde_json::to_string(&entry).unwrap()));
            }
            for (_, n, is_set) in policies.iter().filter(|(at, ..)| *at == index) {
                let name = format!("policy{n}");
                match is_set {
                    true => controller.policy(&name, json!({"podSelector": {}, "ingress": [{"ports": [{"port": n}]}]})),
                    false => controller.policy_gone(&name),
                }
                if let Some(batch) = controller.take() {
                    node.attempt(batch);
                }
            }
            match event {
                Event::Port(PortEvent::Gone(name)) => detached(name).into_iter().for_each(|event| node.go(vec![event])),
                event => node.go(vec![event]),
            }
        }
        same(&node.agent, &mut replayed(&node.lines))?;
        if let Some((from, first)) = checkpoint {
            let lines: Vec<String> = std::iter::once(first).chain(node.lines[from..].iter().cloned()).collect();
            same(&node.agent, &mut replayed(&lines))?;
        }
    }
}
