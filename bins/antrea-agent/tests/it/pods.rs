//! ADD, CHECK, DEL and GC with real traffic.

use std::net::IpAddr;
use std::sync::mpsc;
use std::thread;

use api::cni::Code;
use api::cni::request::Command;
use testkit::Netns;

use crate::fixture::{NODE_IP, Node, OUTSIDE_IP, PodNet, call, id, nowhere, reaches, release};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn pods_reach_each_other_their_node_and_the_outside_and_leave_nothing() {
    let node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    for pod in [&one, &two] {
        let other = if pod.name == "one" { &two } else { &one };
        for target in [other.v4, other.v6, ip("10.10.1.1"), ip("fd10:1::1"), ip(NODE_IP), ip("fd77::1")] {
            assert!(reaches(&pod.netns, target), "{} to {target}", pod.name);
        }
        assert!(reaches(&node.netns, pod.v4) && reaches(&node.netns, pod.v6), "the Node to {}", pod.name);
    }
    // There is no route from outside to Pods, so replies prove SNAT to the Node's address.
    assert!(reaches(&one.netns, ip(OUTSIDE_IP)) && reaches(&one.netns, ip("fd77::fe")));

    let interfaces = node.ask_json("/v1/podinterfaces");
    let names: Vec<&str> = interfaces.as_array().unwrap().iter().map(|pod| pod["podName"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(node.metric("antrea_agent_local_pod_count"), 2);
    assert_eq!(node.ask("/readyz"), (200, "ok\n".to_owned()));

    node.del(&one);
    node.del(&two);
    node.del(&two);
    node.no_traces();
    node.cni(&release("never-known")).unwrap();
}

#[test]
fn the_same_add_again_gives_the_same_answer_and_check_finds_what_changed() {
    let node = Node::start("");
    let pod = node.add("web");
    let again = node.cni(&Command::Add(call("web", &pod.netns.path()))).unwrap().unwrap();
    assert_eq!(again, pod.attachment);
    let check = || node.cni(&Command::Check(call("web", &pod.netns.path()), pod.attachment.clone()));
    check().unwrap();
    pod.netns.ip(["addr", "del", &format!("{}/24", pod.v4), "dev", "eth0"]).unwrap();
    let error = check().unwrap_err();
    assert_eq!(error.code, Code::Check);
    assert!(error.message.contains("default/web"), "{error}");
    // ADD repairs it.
    node.cni(&Command::Add(call("web", &pod.netns.path()))).unwrap();
    check().unwrap();
    assert!(reaches(&pod.netns, ip("10.10.1.1")));
}

#[test]
fn a_failed_add_leaves_nothing_and_reports_the_reason() {
    let node = Node::start("");
    let error = node.cni(&Command::Add(call("ghost", &nowhere()))).unwrap_err();
    assert_eq!(error.code, Code::Interface);
    assert!(error.to_string().contains("/var/run/netns/that-is-gone"), "{error}");
    node.no_traces();

    // The Pod has a device of this name already.
    let netns = Netns::new().unwrap();
    let mut other = call("two-cards", &netns.path());
    other.id.ifname = api::cni::InterfaceName::new("lo").unwrap();
    let error = node.cni(&Command::Add(other)).unwrap_err();
    assert_eq!(error.code, Code::Interface, "{error}");
    node.no_traces();
}

#[test]
fn gc_removes_what_the_runtime_does_not_know() {
    let node = Node::start("");
    let (kept, lost) = (node.add("kept"), node.add("lost"));
    node.cni(&Command::Gc(vec![id("kept")])).unwrap();
    let interfaces = node.ask_json("/v1/podinterfaces");
    assert_eq!(interfaces.as_array().unwrap().len(), 1);
    assert_eq!(interfaces[0]["podName"], "kept");
    assert!(reaches(&kept.netns, ip("10.10.1.1")));
    drop(lost);
    node.del(&kept);
    node.no_traces();
}

#[test]
fn many_pods_at_a_time_come_and_go() {
    // `make agent-long` sets PODS=500 and AT_A_TIME=32.
    let size = |name: &str, usual: usize| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (pods, at_a_time) = (size("PODS", 48), size("AT_A_TIME", 16));
    let node = Node::start("");
    let before = node.flows();
    let (done, results) = mpsc::channel();
    thread::scope(|scope| {
        for worker in 0..at_a_time {
            let (node, done) = (&node, done.clone());
            scope.spawn(move || {
                for number in (worker..pods).step_by(at_a_time) {
                    let pod = node.add(&format!("p{number}-many"));
                    done.send(pod.v4).unwrap();
                    node.del(&pod);
                }
            });
        }
    });
    drop(done);
    assert_eq!(results.iter().count(), pods);
    node.no_traces();
    testkit::wait::until("the switch forgets them", testkit::wait::TIMEOUT, || (node.flows() == before).then_some(()))
        .unwrap();
}

#[test]
fn a_pod_that_is_added_again_at_once_keeps_its_new_veth() {
    let node = Node::start("");
    let mut pod = node.add("web");
    for round in 0..5 {
        // DEL returns before the kernel has deleted the old veth.
        node.del(&pod);
        let name = if round % 2 == 0 { "web" } else { "other" };
        let attachment = node.cni(&Command::Add(call(name, &pod.netns.path()))).unwrap().unwrap();
        node.cni(&Command::Check(call(name, &pod.netns.path()), attachment.clone())).unwrap();
        pod = PodNet { name: name.to_owned(), attachment, ..pod };
    }
    assert!(reaches(&pod.netns, ip("10.10.1.1")));
    node.cni(&Command::Check(call(&pod.name, &pod.netns.path()), pod.attachment.clone())).unwrap();
    node.del(&pod);
    node.no_traces();
}
