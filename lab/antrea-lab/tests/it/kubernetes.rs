//! Labs with the real Kubernetes control plane, and its kubectl.

mod kubectl;
mod real_kubelet;
mod troubleshooting;

use serde_json::json;
use testkit::wait::until;

use crate::agent::network;
use crate::lab::{Lab, TIMEOUT, pause, server};
use crate::services::matrix::judge_all;
use crate::services::oracle::by_kube_proxy;
use crate::traces::until_only_pods_have_any;

#[test]
#[ignore = "needs make kubernetes"]
fn the_real_control_plane_schedules_pods_to_nodes_that_stay_ready() {
    let lab = Lab::start_with("real", 2, &["--network", "bridge", "--kubernetes", "real"]);
    let api = lab.api();
    // No Node is named, so it is kube-scheduler that binds it.
    api.pod("web", json!({"containers": [{"name": "c", "image": "nginx"}]}));
    let address = api.until_ready("web").remove(0);
    lab.node("node-1", &["ping", "-n", "-c", "1", "-w", "5", &address]).unwrap();
    // The account comes in a volume that the API server adds.
    let token = lab.exec("web", &["cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"]).unwrap();
    assert_eq!(token.split('.').count(), 3, "{token}");
    api.delete("web");
}

#[test]
#[ignore = "needs make kubernetes"]
fn the_real_kubernetes_lets_an_agent_read_what_it_needs_and_nothing_else() {
    let (lab, _) = crate::agent::network("real-account", 1, &["--kubernetes", "real"]);
    crate::accounts::an_agent_may_read_what_it_needs_and_nothing_else(&lab);
    crate::accounts::a_kubelet_is_its_node_and_not_the_administrator(&lab);
}

#[test]
#[ignore = "needs make kubernetes"]
fn agents_connect_pods_and_serve_services_of_the_real_kubernetes() {
    let (lab, api) = network("real-agent", 2, &["--kubernetes", "real"]);
    api.pod("client", pause("node-1"));
    for (name, node) in [("near", "node-1"), ("far", "node-2")] {
        let labels = json!({"labels": {"app": "web"}});
        api.apply("v1", "Pod", name, json!({"metadata": labels, "spec": server(node)}));
    }
    api.apply("v1", "Service", "web", json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}));
    api.until_ready("client");
    let get = |to: &str| lab.exec("client", &["curl", "-gs", "--max-time", "2", &format!("http://{to}/hostname")]);
    for name in ["near", "far"] {
        for address in api.until_ready(name) {
            lab.exec("client", &["ping", "-n", "-c", "1", "-w", "10", &address]).unwrap();
        }
    }
    // By DNS name; both Pods answer, each on its own Node.
    for name in ["near", "far"] {
        until(format_args!("{name} answers for the Service"), TIMEOUT, || {
            (get("web").ok()?.trim() == name).then_some(())
        })
        .unwrap();
    }
    api.delete("far");
    for node in ["node-1", "node-2"] {
        until_only_pods_have_any(&lab, &api, node);
    }
    until("only the other one answers", TIMEOUT, || {
        (0..10).all(|_| get("web").is_ok_and(|name| name.trim() == "near")).then_some(())
    })
    .unwrap();
    // A Node that joins is one of them.
    lab.join().unwrap();
    api.pod("newcomer", pause("node-3"));
    for address in api.until_ready("newcomer") {
        lab.exec("client", &["ping", "-n", "-c", "1", "-w", "10", &address]).unwrap();
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn kube_proxy_leads_to_services_where_agents_leave_them_to_it() {
    let rules = ["nft", "list", "table", "ip6", "kube-proxy"];
    judge_all("kube-proxy", &["--services", "kube-proxy"], &rules, by_kube_proxy);
}

#[test]
#[ignore = "needs make kubernetes"]
fn kube_proxy_leads_nodes_and_the_outside_to_services_where_agents_lead_pods() {
    let rules = ["nft", "list", "table", "ip6", "kube-proxy"];
    judge_all("both-proxies", &["--services", "both"], &rules, by_kube_proxy);
}
