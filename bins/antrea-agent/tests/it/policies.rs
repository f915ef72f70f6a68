//! Policies on a Node: enforced before a Pod can be reached, and during restarts and outages of the agent and the controller.

use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use api::cni::request::Command;
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::{TIMEOUT, until};
use types::control::Change;

use crate::controller::{Controller, allow, pod};
use crate::fixture::{Node, PodNet, call, make, reaches};

/// The additional permission to read Pods.
const READ_PODS: &str = include_str!("../../../../deploy/kubernetes/optional/read-pods.yml");

/// A Node of a cluster with a controller that does not listen yet.
fn node(controller: &Controller) -> Node {
    let mut node = Node::without_agent("", &crate::fixture::SUBNETS);
    controller.announce(&node);
    node.start_agent();
    node
}

/// Whether a single ping is answered.
fn pings(from: &Netns, to: &PodNet) -> bool {
    let mut command = from.command("ping");
    command.args(["-c1", "-W1", &to.v4.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

/// The object with the address of the attached Pod.
fn with_address(mut object: Value, pod: &PodNet) -> Value {
    object["status"] = json!({"phase": "Running", "podIP": pod.v4.to_string()});
    object
}

#[test]
fn a_pod_waits_for_the_controller_and_no_packet_passes_before_its_policies() {
    let controller = Controller::new();
    controller.policy(&allow("web", "web", &["client"]));
    let node = node(&controller);
    let _served = controller.serve(&node);
    node.wait_ready();
    for name in ["client", "stranger"] {
        controller.pod(&pod(name, name));
    }
    let (client, stranger) = (node.add("client"), node.add("stranger"));
    controller.pod(&with_address(pod("client", "client"), &client));
    assert!(reaches(&client.netns, stranger.v4), "no policy selects it");

    // A Pod floods the address that the next Pod will have, from before it starts.
    let next = match client.v4.max(stranger.v4) {
        std::net::IpAddr::V4(ip) => std::net::Ipv4Addr::from(u32::from(ip) + 1),
        std::net::IpAddr::V6(_) => unreachable!(),
    };
    let mut flood = stranger.netns.command("ping");
    flood.args(["-i", "0.002", "-c", "3000", "-q", &next.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
    let flood = flood.spawn().unwrap();
    let web = thread::scope(|scope| {
        let adding = scope.spawn(|| node.add("web"));
        // The switch has the port, and the controller has not seen the Pod.
        let held = || node.ask_json("/v1/agentinfo")["podsThatWaitForPolicies"][0].as_str().map(str::to_owned);
        assert_eq!(until("the Pod waits", TIMEOUT, held).unwrap(), "default/web");
        thread::yield_now();
        assert!(!adding.is_finished());
        controller.pod(&pod("web", "web"));
        adding.join().unwrap()
    });
    assert_eq!(web.v4, next);
    assert!(reaches(&client.netns, web.v4), "it is allowed");
    let flooded = String::from_utf8(flood.wait_with_output().unwrap().stdout).unwrap();
    assert!(flooded.contains(" 0 received"), "{flooded}");
    let report = controller.wait_reported("web", 1);
    assert_eq!((report.uid.as_str(), report.problem), ("uid-of-web", None));
    assert_eq!(node.metric("antrea_agent_networkpolicy_count"), 1);
    assert_eq!(node.metric("antrea_agent_ingress_networkpolicy_rule_count"), 1);
}

#[test]
fn an_agent_that_starts_without_a_controller_enforces_its_last_snapshot() {
    let controller = Controller::new();
    let mut node = node(&controller);
    let made = |policy| node.api.local().create("networking.k8s.io/v1", "networkpolicies", "default", policy).unwrap();
    controller.policy(&made(allow("web", "web", &["client"])));
    let served = controller.serve(&node);
    node.wait_ready();
    for name in ["client", "stranger", "web"] {
        controller.pod(&pod(name, name));
    }
    let (client, stranger, web) = (node.add("client"), node.add("stranger"), node.add("web"));
    controller.pod(&with_address(pod("client", "client"), &client));
    assert!(reaches(&client.netns, web.v4) && !pings(&stranger.netns, &web));
    let snapshot = node.file("networkpolicy/policies");
    let written = || {
        let batch = api::control::decode(&std::fs::read(&snapshot).ok()?).ok()?;
        let seen = batch.changes.iter().filter(|change| matches!(change, Change::Pod(_))).count();
        let addressed = format!("{batch:?}").contains(&client.v4.to_string());
        (seen == 3 && addressed).then_some(())
    };
    until("the snapshot is written", TIMEOUT, written).unwrap();
    let before = node.flows();
    drop(served);
    node.wait_log("disconnected from antrea-controller");
    assert!(reaches(&client.netns, web.v4) && !pings(&stranger.netns, &web), "enforcement stays");

    node.kill_agent();
    node.start_agent();
    node.wait_log("enforcing the policy snapshot on disk");
    node.wait_ready();
    assert_eq!(node.flows(), before, "the agent sends no flows");
    assert_eq!(node.metric("antrea_agent_ovs_flow_ops_count{operation=\"add\"}"), 0);

    // With the permission to read Pods: new Pods under a policy that the agent has, and under one that it does not have.
    make(&node.api, READ_PODS);
    let api = node.api.local();
    for (name, app) in [("web2", "web"), ("db", "db")] {
        api.create("v1", "pods", "default", pod(name, app)).unwrap();
    }
    let policy = api.create("networking.k8s.io/v1", "networkpolicies", "default", allow("db", "db", &["client"]));
    let (web2, db) = (node.add("web2"), node.add("db"));
    assert!(!pings(&client.netns, &db) && !pings(&stranger.netns, &db), "its rules are not known");
    assert!(reaches(&client.netns, web2.v4) && !pings(&stranger.netns, &web2), "its rules are known");
    node.wait_log("enforcing the policies of the Pod's namespace");

    // The controller is available again: its policies replace the local evaluation.
    controller.policy(&policy.unwrap());
    for (name, app) in [("web2", "web"), ("db", "db")] {
        controller.pod(&pod(name, app));
    }
    let _served = controller.serve(&node);
    assert!(reaches(&client.netns, db.v4) && reaches(&client.netns, web2.v4));
    assert!(!pings(&stranger.netns, &db) && !pings(&stranger.netns, &web2));
}

#[test]
fn without_permission_to_read_pods_every_policy_that_may_select_a_new_pod_isolates_it() {
    let controller = Controller::new();
    let node = node(&controller);
    let served = controller.serve(&node);
    node.wait_ready();
    controller.pod(&pod("client", "client"));
    let client = node.add("client");
    drop(served);
    node.wait_log("disconnected from antrea-controller");
    let api = node.api.local();
    for name in ["early", "late", "all", "read"] {
        api.create("v1", "pods", "default", pod(name, "web")).unwrap();
    }
    let early = node.add("early");
    assert!(reaches(&client.netns, early.v4), "its namespace has no policies");
    // The policy does not select the Pod, but the agent does not know the labels.
    let of = |name: &str, app: &str| allow(name, app, &["client"]);
    api.create("networking.k8s.io/v1", "networkpolicies", "default", of("db", "db")).unwrap();
    let late = node.add("late");
    assert!(!pings(&client.netns, &late), "the policy may select it");
    assert!(reaches(&late.netns, client.v4), "no policy isolates it for egress");
    let hint = "deploy/kubernetes/optional/read-pods.yml";
    node.wait_log(hint);
    let all = node.add("all");
    assert!(!pings(&client.netns, &all));
    assert_eq!(node.log().matches(hint).count(), 1, "logged once");
    make(&node.api, READ_PODS);
    let read = node.add("read");
    assert!(reaches(&client.netns, read.v4), "the policy does not select it");
}

#[test]
fn a_node_without_a_snapshot_attaches_no_pod_while_the_controller_is_not_available() {
    let controller = Controller::new();
    let node = node(&controller);
    node.wait_log("cannot be reached");
    let netns = Netns::new().unwrap();
    let error = node.cni(&Command::Add(call("web", &netns.path()))).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    let _served = controller.serve(&node);
    node.wait_ready();
}

/// Path of the policy snapshot of an agent that is ready and has written it.
fn wait_for_snapshot(node: &Node) -> PathBuf {
    node.wait_ready();
    let snapshot = node.file("networkpolicy/policies");
    until("the snapshot is written", TIMEOUT, || snapshot.exists().then_some(())).unwrap();
    snapshot
}

#[test]
fn an_unreadable_snapshot_is_logged_and_pods_wait_for_the_controller() {
    let controller = Controller::new();
    let mut node = node(&controller);
    let served = controller.serve(&node);
    let snapshot = wait_for_snapshot(&node);
    drop(served);
    node.kill_agent();
    std::fs::write(&snapshot, b"\xff\xff nonsense").unwrap();
    node.start_agent();
    node.wait_log("cannot read the policy snapshot");
    let error = node.cni(&Command::Status).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    let _served = controller.serve(&node);
    node.wait_ready();
}

#[test]
fn an_outdated_snapshot_is_not_enforced_after_a_failed_write() {
    let controller = Controller::new();
    let mut node = node(&controller);
    let served = controller.serve(&node);
    let snapshot = wait_for_snapshot(&node);
    let older = std::fs::read(&snapshot).unwrap();
    // A directory at the path of the temporary file makes writes fail.
    let in_the_way = snapshot.with_file_name(".policies");
    until("nothing is being written", TIMEOUT, || std::fs::create_dir(&in_the_way).ok()).unwrap();
    controller.pod(&pod("web", "web"));
    node.wait_log("cannot write the policy snapshot");
    let truncated = until("the snapshot is truncated", TIMEOUT, || std::fs::read(&snapshot).ok().filter(Vec::is_empty));
    assert!(truncated.is_ok());
    drop(served);
    node.kill_agent();
    std::fs::remove_dir(&in_the_way).unwrap();
    let refused = "cannot read the policy snapshot";
    node.start_agent();
    node.wait_log(refused);
    node.kill_agent();
    // The snapshot could not even be truncated, and the directory is still not writable.
    std::fs::write(&snapshot, older).unwrap();
    let _ = std::fs::remove_file(&in_the_way);
    std::fs::create_dir(&in_the_way).unwrap();
    node.start_agent();
    let again = || (node.log().matches(refused).count() == 2).then_some(());
    until("the outdated snapshot is rejected", TIMEOUT, again).unwrap();
    let error = node.cni(&Command::Status).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    // A failed write is repeated without a new batch.
    let _served = controller.serve(&node);
    let failed = || (node.log().matches("cannot write the policy snapshot").count() == 2).then_some(());
    until("a write that fails", TIMEOUT, failed).unwrap();
    std::fs::remove_dir(&in_the_way).unwrap();
    let written = || api::control::decode(&std::fs::read(&snapshot).ok()?).ok().map(drop);
    until("the snapshot is written", TIMEOUT, written).unwrap();
}
