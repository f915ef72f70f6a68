//! A lab whose API is the real one.

use serde_json::json;

use crate::lab::Lab;

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
