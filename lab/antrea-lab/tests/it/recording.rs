//! Replays of the agents' recordings end with the state of their Nodes, after changes and killed daemons.
//!
//! Shortly in `make test`; `make record-long` sets `RECORD_EVENTS` for a long recording.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill as kill_process};
use nix::unistd::Pid;
use node::recording::{Entry, Replay};
use openflow::flow::Flow;
use openflow::group::Group;
use serde_json::{Value, json};
use testkit::wait::{rest, until};
use types::host::MAIN_TABLE;

use crate::agent::network;
use crate::endurance::{Stops, kill, times};
use crate::lab::{Lab, TIMEOUT, is_ready, pause, server};
use crate::traces::until_only_pods_have_any;

const NODES: [&str; 2] = ["node-1", "node-2"];
/// Pods that exist at the same time while Pods are added and removed.
const PODS: usize = 4;
const SERVICES: usize = 12;
const POLICIES: usize = 4;
/// Pause after each change of an endpoint or a policy: a busy cluster, and not a benchmark of the API.
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two kills.
const INTERVAL: Duration = Duration::from_millis(1500);
/// A replay of a long recording takes less than this part of the recorded time.
const SPEEDUP: u32 = 10;

/// A replayed recording: its end, and how long it took.
struct Replayed {
    state: [BTreeSet<String>; 4],
    events: usize,
    recorded: Duration,
    replayed: Duration,
}

/// Replays a recording. The agent may be writing its last line, or may have been killed while it wrote it.
fn replay(file: &Path) -> Replayed {
    let start = Instant::now();
    let bytes = fs::read(file).unwrap();
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').unwrap();
    let mut lines = bytes[..complete].split(|byte| *byte == b'\n');
    let mut replay = Replay::new(serde_json::from_slice(lines.next().unwrap()).unwrap()).unwrap();
    let (mut events, mut recorded) = (0, Duration::ZERO);
    for (number, line) in lines.enumerate() {
        let entry: Entry = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("{}, line {}: {error}", file.display(), number + 2));
        events += entry.events.len();
        recorded = entry.time();
        replay.step(entry);
        replay.brain().take_effects();
    }
    let replayed = start.elapsed();
    Replayed { state: desired(&mut replay), events, recorded, replayed }
}

/// Flows, groups, routes and Pod ports at the end of a replay.
fn desired(replay: &mut Replay) -> [BTreeSet<String>; 4] {
    let ports = replay.database().pods.into_values().map(|(port, _)| {
        let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
        let (addresses, mac) = (addresses.join(","), port.mac.to_string());
        port_text(&port.name, [&port.pod.namespace, &port.pod.name, &port.container, &addresses, &mac])
    });
    let ports = ports.collect();
    let brain = replay.brain();
    let host = brain.host();
    let routes = host.routes.iter().filter(|route| route.table == MAIN_TABLE).map(|route| {
        let destination = match route.destination.prefix_len() == route.destination.max_prefix_len() {
            true => route.destination.addr().to_string(),
            false => route.destination.to_string(),
        };
        let text = |address: Option<std::net::IpAddr>| address.map(|address| address.to_string());
        route_text(&destination, text(route.via).as_deref(), &route.device, text(route.source).as_deref())
    });
    [
        brain.desired_flows().map(|flow| flow.to_string()).collect(),
        brain.groups().map(|(group, _)| group.to_string()).collect(),
        routes.collect(),
        ports,
    ]
}

/// Flows, groups, routes and Pod ports of a Node.
fn actual(lab: &Lab, node: &str) -> [BTreeSet<String>; 4] {
    // The switch may be about to start.
    let run = |command: &str| lab.node(node, &command.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    let json = |command: &str| serde_json::from_str(&run(command)).unwrap_or(Value::Null);
    let flows = run("ovs-ofctl --no-stats -O OpenFlow15 dump-flows br-int");
    let flows = flows.lines().map(str::trim).filter(|line| line.contains("actions=") && !is_learned(line));
    let groups = run("ovs-ofctl -O OpenFlow15 dump-groups br-int");
    let groups = groups.lines().map(str::trim).filter(|line| line.starts_with("group_id="));
    let routes: Vec<Value> = ["-4", "-6"]
        .iter()
        .flat_map(|family| {
            json(&format!("ip -j {family} route show proto 167")).as_array().cloned().unwrap_or_default()
        })
        .collect();
    let routes = routes.iter().map(|route| {
        let field = |key: &str| route[key].as_str();
        route_text(field("dst").unwrap(), field("gateway"), field("dev").unwrap(), field("prefsrc"))
    });
    let interfaces = json("ovs-vsctl --format=json --columns=name,external_ids list Interface");
    let ports = interfaces["data"].as_array().into_iter().flatten().filter_map(|row| {
        let ids = row[1][1].as_array()?;
        let id = |key: &str| ids.iter().find(|pair| pair[0] == key).and_then(|pair| pair[1].as_str());
        let keys = ["pod-namespace", "pod-name", "container-id", "ip-address", "attached-mac"];
        id("container-id")?;
        Some(port_text(row[0].as_str().unwrap(), keys.map(|key| id(key).unwrap())))
    });
    [
        flows.map(|line| line.parse::<Flow>().unwrap().to_string()).collect(),
        groups.map(|line| line.parse::<Group>().unwrap().to_string()).collect(),
        routes.collect(),
        ports.collect(),
    ]
}

/// Whether the switch has learned a flow, for a Service with session affinity.
fn is_learned(flow: &str) -> bool {
    let (matches, _) = flow.split_once(" actions=").unwrap();
    matches.contains("table=40,") && matches.contains("_timeout=")
}

fn route_text(destination: &str, via: Option<&str>, device: &str, source: Option<&str>) -> String {
    format!("{destination} via {} dev {device} src {}", via.unwrap_or("-"), source.unwrap_or("-"))
}

fn port_text(name: &str, ids: [&str; 5]) -> String {
    format!("{name} {}", ids.join(" "))
}

/// Waits until a replay ends with the state of the Node, and returns it.
fn until_equal(lab: &Lab, node: &str) -> Replayed {
    let mut difference = String::new();
    let equal = || {
        let (replayed, actual) = (replay(&lab.recording(node, "events.jsonl")), actual(lab, node));
        difference.clear();
        for (desired, actual) in replayed.state.iter().zip(&actual) {
            let lines = |sign: char, lines: BTreeSet<String>| {
                lines.into_iter().take(20).map(|line| format!("{sign} {line}\n")).collect::<String>()
            };
            difference += &lines('-', actual - desired);
            difference += &lines('+', desired - actual);
        }
        difference.is_empty().then_some(replayed)
    };
    let found = until(format_args!("{node}: a replay ends with the state of the Node"), TIMEOUT, equal);
    found.unwrap_or_else(|error| panic!("{error:#}; the Node has -, the replay has +:\n{difference}"))
}

/// Adds and removes Pods.
fn change_pods(lab: &Lab, stop: &AtomicBool) -> usize {
    let (api, mut pods, mut added) = (lab.api(), VecDeque::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("churn-{added}");
        api.pod(&name, pause(NODES[added % NODES.len()]));
        pods.push_back(name.clone());
        added += 1;
        if pods.len() > PODS {
            api.wait(api.pods().delete(&pods.pop_front().unwrap(), &DeleteParams::default())).unwrap();
        }
        // Nodes whose switch was killed need longer, and get the next Pod meanwhile.
        let ready = || api.get(&name).is_some_and(|pod| is_ready(&pod)).then_some(());
        let _ = until("the newest Pod", Duration::from_millis(500), ready);
    }
    added
}

/// Changes endpoints of Services, of which every fourth has session affinity.
fn change_endpoints(lab: &Lab, stop: &AtomicBool) -> usize {
    let (api, mut changes) = (lab.api(), 0);
    for number in 0..SERVICES {
        let affinity = if number % 4 == 0 { "ClientIP" } else { "None" };
        let spec = json!({"ports": [{"port": 80}], "sessionAffinity": affinity});
        api.apply("v1", "Service", &format!("s{number}"), json!({"spec": spec}));
    }
    while !stop.load(Ordering::Relaxed) {
        let service = format!("s{}", changes % SERVICES);
        // From one to four endpoints, outside of the cluster and in a Pod subnet.
        let round = changes / SERVICES;
        let endpoints = (0..=round % 4).map(|number| {
            let host = 1 + (round * 7 + number) % 200;
            match number % 2 {
                0 => json!({"addresses": [format!("192.0.2.{host}")]}),
                _ => json!({"addresses": [format!("10.10.2.{host}")], "nodeName": "node-2"}),
            }
        });
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "endpoints": endpoints.collect::<Vec<_>>(), "ports": [{"port": 80 + round % 3}],
        });
        api.apply("discovery.k8s.io/v1", "EndpointSlice", &service, slice);
        changes += 1;
        rest(PAUSE);
    }
    changes
}

/// Adds, changes and removes policies for all Pods.
fn change_policies(lab: &Lab, stop: &AtomicBool) -> usize {
    let (api, mut changes) = (lab.api(), 0);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("churn-{}", changes % POLICIES);
        let from = json!([{"ipBlock": {"cidr": format!("10.10.{}.0/24", changes % 200)}}, {"podSelector": {}}]);
        let ports = json!([{"port": 80 + changes % 5}]);
        let spec = json!({
            "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": from, "ports": ports}], "egress": [{}],
        });
        api.apply("networking.k8s.io/v1", "NetworkPolicy", &name, json!({"spec": spec}));
        if changes % 7 == 6 {
            api.remove("default", "networking.k8s.io/v1", "NetworkPolicy", &name);
        }
        changes += 1;
        rest(PAUSE);
    }
    changes
}

/// The number of events in the recording of a Node so far.
fn events(lab: &Lab, node: &str) -> usize {
    #[derive(serde::Deserialize)]
    struct Events {
        events: Vec<serde::de::IgnoredAny>,
    }
    let bytes = fs::read(lab.recording(node, "events.jsonl")).unwrap();
    // The header and an incomplete line have no events.
    let entries = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Events>(line).ok());
    entries.map(|entry| entry.events.len()).sum()
}

fn kill_controller(lab: &Lab) {
    let running = || lab.controllers().first().copied();
    let pid = until("a controller", TIMEOUT, running).unwrap();
    kill_process(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    until("another controller", TIMEOUT, || running().filter(|other| *other != pid)).unwrap();
}

/// A Pod that uses a Service with session affinity, so that its switch learns a flow.
fn use_affinity(lab: &Lab) {
    let ready = || lab.exec("client", &["curl", "-sS", "--max-time", "2", "http://web.default.svc.cluster.local"]).ok();
    until("a response of the Service", TIMEOUT, ready).unwrap();
}

#[test]
fn a_replay_equals_the_node_after_changes_and_killed_switches_and_controllers() {
    let (at_least, is_long) = (times("RECORD_EVENTS", 300), std::env::var_os("RECORD_EVENTS").is_some());
    let (lab, api) = network("replayed", 2, &[]);
    api.pod("client", pause("node-1"));
    api.put("default", "v1", "Pod", "web", json!({"metadata": {"labels": {"app": "web"}}, "spec": server("node-2")}));
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}], "sessionAffinity": "ClientIP"});
    api.apply("v1", "Service", "web", json!({"spec": spec}));
    ["client", "web"].iter().for_each(|pod| drop(api.until_ready(pod)));

    // The recording of a killed agent is kept.
    let written = events(&lab, "node-1");
    kill(&lab, "node-1", "antrea-agent");
    let kept = lab.recording("node-1", "events.old.jsonl");
    until("a new recording", TIMEOUT, || kept.exists().then_some(())).unwrap();
    let kept = replay(&kept).events;
    assert!(written > 0 && kept >= written, "{kept} of {written} events");

    let stop = AtomicBool::new(false);
    let (changes, kills) = std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let pods = scope.spawn(|| change_pods(&lab, &stop));
        let endpoints = scope.spawn(|| change_endpoints(&lab, &stop));
        let policies = scope.spawn(|| change_policies(&lab, &stop));
        let mut kills = 0;
        while kills < 4 || NODES.iter().all(|node| events(&lab, node) < at_least) {
            match kills % 4 {
                0 | 2 => drop(kill(&lab, NODES[kills / 2 % 2], "ovs-vswitchd")),
                _ => kill_controller(&lab),
            }
            kills += 1;
            let next = Instant::now() + INTERVAL;
            until("the time of the next kill", INTERVAL * 2, || (Instant::now() >= next).then_some(())).unwrap();
            let ended = pods.is_finished() || endpoints.is_finished() || policies.is_finished();
            assert!(!ended, "a change has failed");
        }
        drop(stops);
        ([pods, endpoints, policies].map(|thread| thread.join().unwrap()), kills)
    });
    let [pods, endpoints, policies] = changes;
    println!("{kills} kills; {pods} Pods added, {endpoints} changes of endpoints, {policies} of policies");

    // Policies stay, but the client may connect.
    let all = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]});
    api.apply("networking.k8s.io/v1", "NetworkPolicy", "all", json!({"spec": all}));
    NODES.iter().for_each(|node| until_only_pods_have_any(&lab, &api, node));
    use_affinity(&lab);
    let replayed = NODES.map(|node| until_equal(&lab, node));
    for Replayed { state: [flows, groups, routes, ports], .. } in &replayed {
        let counts = [flows, groups, routes, ports].map(BTreeSet::len);
        println!("equal: {counts:?} flows, groups, routes and Pod ports");
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
    let longest = replayed.iter().max_by_key(|replayed| replayed.events).unwrap();
    let Replayed { events, recorded, replayed, .. } = longest;
    let (recorded_s, replayed_s) = (recorded.as_secs_f64(), replayed.as_secs_f64());
    println!("replay: {events} events recorded in {recorded_s:.1} s replayed in {replayed_s:.2} s");
    assert!(*events >= at_least);
    assert!(!is_long || *replayed < *recorded / SPEEDUP, "slower than a {SPEEDUP}th of the recorded time");
}
