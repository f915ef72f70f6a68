//! What a Node's agent may do with what it has been given: read what it needs.

use crate::lab::Lab;

/// What the API answers when the Node's agent asks for something.
fn ask(lab: &Lab, path: &str) -> String {
    let directory = lab.home().join("nodes/node-1");
    let kubeconfig = std::fs::read_to_string(directory.join("antrea-agent.kubeconfig")).unwrap();
    assert!(kubeconfig.contains("tokenFile") && !kubeconfig.contains("client-key"), "{kubeconfig}");
    let token = std::fs::read_to_string(directory.join("antrea-agent.token")).unwrap();
    let header = format!("Authorization: Bearer {token}");
    let url = format!("https://192.168.1.2:6443{path}");
    lab.node(
        "node-1",
        &["curl", "-sk", "--max-time", "10", "-w", "%{http_code}", "-o", "/dev/null", "-H", &header, &url],
    )
    .unwrap()
}

/// Whoever serves the API.
pub(crate) fn an_agent_may_read_what_it_needs_and_nothing_else(lab: &Lab) {
    for path in ["/api/v1/nodes", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"] {
        assert_eq!(ask(lab, path), "200", "{path}");
    }
    for path in ["/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets"] {
        assert_eq!(ask(lab, path), "403", "{path}");
    }
}

#[test]
fn the_embedded_api_lets_an_agent_read_what_it_needs_and_nothing_else() {
    let (lab, _) = crate::agent::network("account", 1, &[]);
    an_agent_may_read_what_it_needs_and_nothing_else(&lab);
}
