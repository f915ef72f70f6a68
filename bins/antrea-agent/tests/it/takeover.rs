//! A Node that Antrea has set up is taken over without a restart of its Pods.
//!
//! Antrea itself does not run in tests. The Node is made by hand in the state that Antrea leaves: bridge, ports and `external_ids`,
//! reservations of host-local, flows of a round, routes and iptables chains. Its pipeline is reduced to a few flows, which track
//! connections in the same zone.

mod antrea;

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};

use crate::controller::{Controller, allow, pod};
use crate::fixture::{OUTSIDE_IP, reaches, release};
use antrea::{AntreaNode, Conversation};

#[test]
fn pods_of_antrea_keep_addresses_connections_and_policies() {
    let controller = Controller::new();
    controller.policy(&allow("web", "web", &["client"]));
    let mut antrea = AntreaNode::start();
    let [web, client, stranger] = ["web", "client", "stranger"].map(|name| antrea.add_pod(name));
    antrea.deny(&stranger, &web);
    for it in [&web, &client, &stranger] {
        let mut object = pod(it.name, it.name);
        object["status"] = json!({"phase": "Running", "podIP": it.ip.to_string()});
        controller.pod(&object);
    }
    controller.announce(&antrea.node);
    let _served = controller.serve(&antrea.node);

    let within = Conversation::start(&client.netns, &web.netns, &web.ip.to_string());
    let outside = Conversation::start(&client.netns, &antrea.node.outside, OUTSIDE_IP);
    assert!(!reaches_once(&stranger.netns, &web.ip.to_string()), "Antrea denies it");
    let mut denied = stranger.netns.command("ping");
    denied.args(["-q", "-i", "0.01", &web.ip.to_string()]).stdout(Stdio::piped()).stderr(Stdio::null());
    let denied = denied.spawn().unwrap();

    antrea.node.start_agent();
    antrea.node.wait_ready();
    antrea.node.wait_log("taking over the Pods of Antrea");
    antrea.node.wait_log("removed the iptables rules of Antrea");
    let left = || antrea.traces().is_empty().then_some(());
    until("nothing of Antrea is left", TIMEOUT, left).unwrap_or_else(|error| panic!("{error}: {:#?}", antrea.traces()));
    within.goes_on();
    outside.goes_on();
    run(std::process::Command::new("kill").args(["-INT", &denied.id().to_string()]), None).unwrap();
    let denied = String::from_utf8(denied.wait_with_output().unwrap().stdout).unwrap();
    assert!(denied.contains(" 0 received"), "{denied}");
    assert!(reaches(&client.netns, web.ip), "the policy allows it");
    assert!(!reaches_once(&stranger.netns, &web.ip.to_string()), "the policy denies it");

    let interfaces = antrea.node.ask_json("/v1/podinterfaces");
    assert_eq!(interfaces.as_array().unwrap().len(), 3, "{interfaces}");
    let routes = antrea.node.netns.ip(["route", "show", "10.10.2.0/24"]).unwrap();
    assert!(routes.contains("via 10.10.2.1 dev antrea-gw0") && routes.contains("proto 167"), "{routes}");

    // A new Pod gets an address that no Pod and no Service connection has.
    controller.pod(&pod("new", "new"));
    let new = antrea.node.add("new");
    assert!([web.ip, client.ip, stranger.ip].iter().all(|taken| *taken != new.v4), "{}", new.v4);
    assert!(reaches(&client.netns, new.v4));

    // Pods of Antrea are deleted like others, and their addresses are free again.
    for it in [&client, &stranger, &web] {
        antrea.node.cni(&release(it.name)).unwrap();
    }
    antrea.node.del(&new);
    antrea.node.no_traces();
}

#[test]
fn an_agent_that_was_killed_during_the_takeover_finishes_it() {
    let mut antrea = AntreaNode::start();
    let [one, two] = ["one", "two"].map(|name| antrea.add_pod(name));
    let within = Conversation::start(&one.netns, &two.netns, &two.ip.to_string());
    for _ in 0..2 {
        antrea.node.start_agent();
        let log = antrea.node.log().len();
        let begun = || (antrea.node.log().len() > log).then_some(());
        until("the agent has begun", TIMEOUT, begun).unwrap();
        antrea.node.kill_agent();
    }
    antrea.node.start_agent();
    antrea.node.wait_ready();
    within.goes_on();
    assert!(reaches(&one.netns, two.ip) && reaches(&two.netns, "10.10.1.1".parse().unwrap()));
    for it in [&one, &two] {
        antrea.node.cni(&release(it.name)).unwrap();
    }
    antrea.node.no_traces();
}

/// Whether one ping is answered within a second.
fn reaches_once(from: &testkit::Netns, to: &str) -> bool {
    let mut ping = from.command("ping");
    ping.args(["-c1", "-W1", to]).stdout(Stdio::null()).stderr(Stdio::null());
    ping.status().unwrap().success()
}

/// The time without an echo after which a conversation counts as broken.
const BROKEN: Duration = Duration::from_secs(10);
