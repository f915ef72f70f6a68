//! Policies on a Node: enforced before a Pod can be reached, and whatever becomes of the agent or of the controller.

use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use api::cni::request::Command;
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::{PATIENCE, until};
use types::control::Change;

use crate::controller::{Controller, allow, pod};
use crate::fixture::{Node, PodNet, call, reaches};

/// A Node whose cluster has a controller, which is away.
fn node(controller: &Controller) -> Node {
    let mut node = Node::without_agent("", &crate::fixture::SUBNETS);
    controller.announce(&node);
    node.start_agent();
    node
}

/// Whether one ping comes through, without a second chance.
fn pings(from: &Netns, to: &PodNet) -> bool {
    let mut command = from.command("ping");
    command.args(["-c1", "-W1", &to.v4.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

/// The object with the address that its Pod has.
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
    assert!(reaches(&client.netns, stranger.v4), "no policy is about it");

    // Somebody floods the address that the next Pod will have, from before it starts.
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
        assert_eq!(until("the Pod waits", PATIENCE, held).unwrap(), "default/web");
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
fn an_agent_that_starts_while_the_controller_is_away_enforces_what_it_last_knew() {
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
    let memory = node.file("networkpolicy/policies");
    let remembered = || {
        let batch = api::control::decode(&std::fs::read(&memory).ok()?).ok()?;
        let seen = batch.changes.iter().filter(|change| matches!(change, Change::Pod(_))).count();
        let addressed = format!("{batch:?}").contains(&client.v4.to_string());
        (seen == 3 && addressed).then_some(())
    };
    until("everything is remembered", PATIENCE, remembered).unwrap();
    let before = node.flows();
    drop(served);
    node.wait_log("no longer followed");
    assert!(reaches(&client.netns, web.v4) && !pings(&stranger.netns, &web), "enforcement stays");

    node.kill_agent();
    node.start_agent();
    node.wait_log("what it said last is enforced");
    node.wait_ready();
    assert_eq!(node.flows(), before, "and nothing was sent");
    assert_eq!(node.metric("antrea_agent_ovs_flow_ops_count{operation=\"add\"}"), 0);

    // A Pod that nobody has told it of, under a policy that it holds and one that it does not.
    let api = node.api.local();
    for (name, app) in [("web2", "web"), ("db", "db")] {
        api.create("v1", "pods", "default", pod(name, app)).unwrap();
    }
    let policy = api.create("networking.k8s.io/v1", "networkpolicies", "default", allow("db", "db", &["client"]));
    let (web2, db) = (node.add("web2"), node.add("db"));
    assert!(!pings(&client.netns, &db) && !pings(&stranger.netns, &db), "its rules are not known");
    assert!(reaches(&client.netns, web2.v4) && !pings(&stranger.netns, &web2), "its rules are known");
    node.wait_log("judged by the policies of its namespace");

    // The controller is back: all is as it says.
    controller.policy(&policy.unwrap());
    for (name, app) in [("web2", "web"), ("db", "db")] {
        controller.pod(&pod(name, app));
    }
    let _served = controller.serve(&node);
    assert!(reaches(&client.netns, db.v4) && reaches(&client.netns, web2.v4));
    assert!(!pings(&stranger.netns, &db) && !pings(&stranger.netns, &web2));
}

#[test]
fn a_node_that_never_heard_of_policies_attaches_no_pod_while_the_controller_is_away() {
    let controller = Controller::new();
    let node = node(&controller);
    node.wait_log("cannot be reached");
    let netns = Netns::new().unwrap();
    let error = node.cni(&Command::Add(call("web", &netns.path()))).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    let _served = controller.serve(&node);
    node.wait_ready();
}

/// The file of an agent that is ready and has remembered what it was told.
fn remembered(node: &Node) -> PathBuf {
    node.wait_ready();
    let memory = node.file("networkpolicy/policies");
    until("policies are remembered", PATIENCE, || memory.exists().then_some(())).unwrap();
    memory
}

#[test]
fn memory_that_cannot_be_read_is_told_and_keeps_pods_waiting() {
    let controller = Controller::new();
    let mut node = node(&controller);
    let served = controller.serve(&node);
    let memory = remembered(&node);
    drop(served);
    node.kill_agent();
    std::fs::write(&memory, b"\xff\xff nonsense").unwrap();
    node.start_agent();
    node.wait_log("what is remembered cannot be read");
    let error = node.cni(&Command::Status).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    let _served = controller.serve(&node);
    node.wait_ready();
}

#[test]
fn what_was_said_before_is_not_enforced_if_what_came_after_could_not_be_written() {
    let controller = Controller::new();
    let mut node = node(&controller);
    let served = controller.serve(&node);
    let memory = remembered(&node);
    let older = std::fs::read(&memory).unwrap();
    // What is written first is in the way of itself, unless it is being written just now.
    let in_the_way = memory.with_file_name(".policies");
    until("nothing is being written", PATIENCE, || std::fs::create_dir(&in_the_way).ok()).unwrap();
    controller.pod(&pod("web", "web"));
    node.wait_log("cannot remember policies");
    let said = until("nothing is remembered", PATIENCE, || std::fs::read(&memory).ok().filter(Vec::is_empty));
    assert!(said.is_ok());
    drop(served);
    node.kill_agent();
    std::fs::remove_dir(&in_the_way).unwrap();
    let refused = "what is remembered cannot be read";
    node.start_agent();
    node.wait_log(refused);
    node.kill_agent();
    // Or not even that could be written, and still nothing can be.
    std::fs::write(&memory, older).unwrap();
    let _ = std::fs::remove_file(&in_the_way);
    std::fs::create_dir(&in_the_way).unwrap();
    node.start_agent();
    let again = || (node.log().matches(refused).count() == 2).then_some(());
    until("what is older is refused", PATIENCE, again).unwrap();
    let error = node.cni(&Command::Status).unwrap_err();
    assert!(error.details.contains("antrea-controller"), "{error:?}");
    // It is remembered again as soon as that is possible, though nothing new is said.
    let _served = controller.serve(&node);
    let failed = || (node.log().matches("cannot remember policies").count() == 2).then_some(());
    until("a write that fails", PATIENCE, failed).unwrap();
    std::fs::remove_dir(&in_the_way).unwrap();
    let written = || api::control::decode(&std::fs::read(&memory).ok()?).ok().map(drop);
    until("policies are remembered", PATIENCE, written).unwrap();
}
