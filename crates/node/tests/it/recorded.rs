//! A recording that an agent of an earlier version wrote: `tests/recorded/v1/events.jsonl`, of a Node of the lab on which three Pods, a
//! Service and a policy were created, and one Pod deleted. Such files are kept for ever.

use node::recording::{Entry, Header, Replay};
use serde_json::Value;

fn lines() -> Vec<String> {
    include_str!("../recorded/v1/events.jsonl").lines().map(str::to_owned).collect()
}

/// The Pods, policies and frontends at the end of a replay.
fn ends_with(lines: &[String]) {
    let header: Header = serde_json::from_str(&lines[0]).unwrap();
    let mut replay = Replay::new(header).unwrap();
    for line in &lines[1..] {
        replay.step(serde_json::from_str::<Entry>(line).unwrap());
    }
    let database = replay.database();
    let pods: Vec<_> = database.pods.values().map(|(port, number)| (port.pod.name.clone(), *number)).collect();
    let expected = [("client", 18), ("dns-64r6fdnc-d9h7c", 16), ("web", 17)];
    assert_eq!(pods, expected.map(|(pod, number)| (pod.to_owned(), Some(number))));
    let brain = replay.brain();
    let flows: Vec<String> = brain.flows().map(|(flow, _)| flow.to_string()).collect();
    // The policy of Pod `web` has one rule, for TCP port 80 and packets from the OpenFlow port or address of `client`.
    let rule = |what: &str| flows.iter().any(|flow| flow.contains(what) && flow.contains("conjunction("));
    assert!(rule("tcp,tp_dst=80") && rule("nw_src=10.10.1.5") && rule("reg1=0x11"), "{flows:#?}");
    assert!(flows.iter().any(|flow| flow.contains("in_port=17") && flow.contains("10.10.1.4")), "{flows:#?}");
    assert!(brain.is_settled());
}

#[test]
fn a_recording_of_version_1_is_replayed() {
    ends_with(&lines());
}

#[test]
fn unknown_fields_of_a_newer_recording_are_ignored() {
    let newer = |line: String| {
        let mut line: Value = serde_json::from_str(&line).unwrap();
        line["added later"] = serde_json::json!({"a": 1});
        line.to_string()
    };
    ends_with(&lines().into_iter().map(newer).collect::<Vec<_>>());
}
