//! Recordings of an agent: their replay ends with the flows, groups, routes and ports of the Node.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use node::recording::{Entry, Replay};
use openflow::flow::Flow;
use serde_json::json;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::Node;

const CONFIG: &str = "eventRecording: {enable: true, maxSizeMB: 1}\nantreaProxy: {proxyAll: true}";

/// A replay of the recording in a file, and its number of events.
fn replay(node: &Node, file: &str) -> (Replay, usize) {
    let text = fs::read_to_string(node.file("recording").join(file)).unwrap();
    // The agent may be writing the last line.
    let complete = text.rfind('\n').unwrap();
    let mut lines = text[..complete].lines();
    let mut replay = Replay::new(serde_json::from_str(lines.next().unwrap()).unwrap()).unwrap();
    let mut events = 0;
    for line in lines {
        let entry: Entry = serde_json::from_str(line).unwrap();
        events += entry.events.len();
        replay.step(entry);
    }
    (replay, events)
}

/// What the Node has: flows, groups, routes and ports of Pods.
fn actual(node: &Node) -> [BTreeSet<String>; 4] {
    let flows = node.flows().iter().map(|line| line.trim().parse::<Flow>().unwrap().to_string()).collect();
    let groups = node.ovs.ofctl(["-O", "OpenFlow15", "dump-groups", "br-int"]).unwrap();
    let id = |line: &str| line.split("group_id=").nth(1).map(|rest| rest.split(',').next().unwrap().to_owned());
    let routes = ["-4", "-6"].map(|family| node.netns.ip([family, "route", "show", "proto", "167"]).unwrap());
    let destination = |line: &str| line.split(' ').next().unwrap().to_owned();
    let routes = routes.iter().flat_map(|text| text.lines()).map(destination).collect();
    let ports = node.ovs.vsctl(["list-ports", "br-int"]).unwrap();
    let ports = ports.lines().filter(|name| !name.starts_with("antrea-")).map(str::to_owned).collect();
    [flows, groups.lines().filter_map(id).collect(), routes, ports]
}

fn desired(replay: &mut Replay) -> [BTreeSet<String>; 4] {
    let ports = replay.database().pods.into_keys().collect();
    let brain = replay.brain();
    let route = |route: &types::host::Route| match route.destination.prefix_len() {
        32 | 128 => route.destination.addr().to_string(),
        _ => route.destination.to_string(),
    };
    [
        brain.desired_flows().map(|flow| flow.to_string()).collect(),
        brain.groups().map(|(group, _)| group.id.to_string()).collect(),
        brain.host().routes.iter().map(route).collect(),
        ports,
    ]
}

fn change_services(node: &Node, round: u32) {
    for n in 0..150 {
        let name = format!("s{n}");
        let spec = json!({"clusterIP": format!("10.96.9.{n}"), "ports": [{"port": 80}]});
        if round == 0 {
            node.api
                .local()
                .create("v1", "services", "default", json!({"metadata": {"name": name}, "spec": spec}))
                .unwrap();
        }
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [format!("192.0.2.{}", 1 + (n + round) % 200)]}], "ports": [{"port": 80}],
        });
        let (group, kind) = ("discovery.k8s.io/v1", "endpointslices");
        if round == 0 {
            node.api.local().create(group, kind, "default", slice).unwrap();
        } else {
            let merge = apiserver::Patch::Merge;
            node.api.local().patch(group, kind, "default", &name, "", merge, &slice).unwrap();
        }
    }
}

#[test]
fn a_replay_ends_with_the_state_of_the_node_also_after_the_recording_began_again() {
    let node = Node::start(CONFIG);
    let (one, two) = (node.add("one"), node.add("two"));
    node.del(&one);
    // Without endpoints elsewhere, they are outside of the cluster.
    change_services(&node, 0);
    node.ovs.kill_vswitchd().unwrap();
    node.ovs.start_vswitchd().unwrap();
    let old = node.file("recording").join("events.old.jsonl");
    let mut round = 0;
    until("the recording begins again", TIMEOUT, || {
        round += 1;
        change_services(&node, round);
        old.exists().then_some(())
    })
    .unwrap();
    let three = node.add("three");
    change_services(&node, round + 1);
    let same = || {
        let (mut replay, _) = replay(&node, "events.jsonl");
        (desired(&mut replay) == actual(&node)).then_some(())
    };
    until("the replay equals the Node", TIMEOUT, same).unwrap_or_else(|error| {
        let (mut replay, events) = replay(&node, "events.jsonl");
        let difference = desired(&mut replay).into_iter().zip(actual(&node)).map(|(replayed, actual)| {
            let lines = replayed.symmetric_difference(&actual).cloned().collect::<Vec<_>>();
            lines.into_iter().take(20).collect::<Vec<_>>()
        });
        panic!("{error}, {events} events: {:#?}", difference.collect::<Vec<_>>())
    });
    assert!(replay(&node, "events.old.jsonl").1 > 300);
    // Only root may read it.
    assert_eq!(fs::metadata(old).unwrap().mode() & 0o777, 0o600);
    drop((two, three));
}

#[test]
fn a_recording_has_no_token_and_no_key() {
    let node = Node::start(CONFIG);
    let _pod = node.add("one");
    let token = fs::read_to_string(node.file("loopback-client-token")).unwrap();
    let kubeconfig = fs::read_to_string(node.file("kubeconfig")).unwrap();
    let recorded = || fs::read_to_string(node.file("recording/events.jsonl")).unwrap();
    until("the Pod is recorded", TIMEOUT, || recorded().contains("VethAttached").then_some(())).unwrap();
    let secrets = kubeconfig.split_whitespace().filter(|word| word.len() > 40).chain([token.trim()]);
    let secrets: Vec<&str> = secrets.collect();
    assert!(secrets.len() > 1, "{kubeconfig}");
    for secret in secrets {
        assert!(!recorded().contains(secret.trim_matches('"')), "{secret}");
    }
}
