//! Nodes join a running lab, and leave it.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use testkit::wait::until;

use crate::agent::network;
use crate::lab::{Kube, Lab, TIMEOUT, pause};

/// Whether a Pod reaches a Pod that is made on a Node for that.
fn reaches_a_new_pod(lab: &Lab, api: &Kube, node: &str) {
    let name = format!("on-{node}");
    api.pod(&name, pause(node));
    for address in api.until_ready(&name) {
        lab.exec("client", &["ping", "-n", "-c", "1", "-w", "10", &address]).unwrap();
    }
}

/// Waits until an agent has led a way to a Node's Pods, or has removed it.
fn until_way(lab: &Lab, net: &str, there: bool) {
    let routes = || lab.node("node-1", &["ip", "route"]).unwrap();
    until(format_args!("node-1 has a way to {net}: {there}"), TIMEOUT, || {
        (routes().contains(net) == there).then_some(())
    })
    .unwrap();
}

#[test]
fn a_node_that_leaves_takes_its_pods_routes_and_files_with_it() {
    let (lab, api) = network("joined", 2, &[]);
    api.pod("client", pause("node-1"));
    api.until_ready("client");
    // The third is in the other subnet, the fourth in that of the first.
    for node in ["node-3", "node-4"] {
        let said = lab.join().unwrap();
        assert!(said.contains(&format!("{node}: ready")), "{said}");
        until_way(&lab, &format!("10.10.{}.0/24", &node[5..]), true);
        reaches_a_new_pod(&lab, &api, node);
        lab.node("node-1", &["getent", "hosts", node]).unwrap();
    }
    let unknown = lab.leave("node-9").unwrap_err();
    assert!(unknown.contains("there is no Node node-9: there are node-1, node-2, node-3, node-4"), "{unknown}");

    lab.leave("node-4").unwrap();
    let nodes: Api<Node> = Api::all(api.client.clone());
    assert!(api.wait(nodes.get_opt("node-4")).unwrap().is_none());
    assert!(api.get("on-node-4").is_none());
    assert!(!lab.home.node("node-4").exists());
    until_way(&lab, "10.10.4.0/24", false);
    assert!(lab.node("node-4", &["true"]).unwrap_err().contains("there is no Node node-4"));
    // The place is free for another.
    lab.join().unwrap();
    reaches_a_new_pod(&lab, &api, "node-4");
}

#[test]
fn without_an_agent_the_lab_adds_and_removes_routes_between_nodes() {
    let lab = Lab::start("joined-routes", 1);
    let api = lab.api();
    api.pod("client", pause("node-1"));
    api.until_ready("client");
    for node in ["node-2", "node-3"] {
        lab.join().unwrap();
        reaches_a_new_pod(&lab, &api, node);
    }
    for node in ["node-3", "node-2"] {
        lab.leave(node).unwrap();
    }
    assert!(!lab.node("router", &["ip", "route"]).unwrap().contains("10.10.2.0/24"));
    until_way(&lab, "10.10.2.0/24", false);
    let last = lab.leave("node-1").unwrap_err();
    assert!(last.contains("node-1 is the last Node"), "{last}");
}
