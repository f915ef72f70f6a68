//! The credentials of a Node's agent and kubelet allow only the required requests.

use antrea_lab::plan::{API, API_PORT};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};

use crate::lab::Lab;

/// Status code of a request with the token of the Node's agent.
fn ask(lab: &Lab, path: &str) -> String {
    let kubeconfig = std::fs::read_to_string(lab.home.kubeconfig_of("antrea-agent", "node-1")).unwrap();
    assert!(kubeconfig.contains("tokenFile") && !kubeconfig.contains("client-key"), "{kubeconfig}");
    let token = std::fs::read_to_string(lab.home.token_of("antrea-agent", "node-1")).unwrap();
    let header = format!("Authorization: Bearer {token}");
    let url = format!("https://{API}:{API_PORT}{path}");
    lab.node(
        "node-1",
        &["curl", "-sk", "--max-time", "10", "-w", "%{http_code}", "-o", "/dev/null", "-H", &header, &url],
    )
    .unwrap()
}

/// Holds for the embedded and the real API.
pub(crate) fn an_agent_may_read_what_it_needs_and_nothing_else(lab: &Lab) {
    for path in ["/api/v1/nodes", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"] {
        assert_eq!(ask(lab, path), "200", "{path}");
    }
    let pod = "/api/v1/namespaces/default/pods/any";
    for path in ["/api/v1/pods", pod, "/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets"] {
        assert_eq!(ask(lab, path), "403", "{path}");
    }
}

fn is_refused<T: std::fmt::Debug>(answer: kube::Result<T>) {
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
}

/// Holds for the embedded and the real API. All other tests show that a kubelet has the rights that it needs.
pub(crate) fn a_kubelet_is_its_node_and_not_the_administrator(lab: &Lab) {
    let api = lab.api_as_kubelet("node-1");
    let review: Api<SelfSubjectReview> = Api::all(api.client.clone());
    let me = api.wait(review.create(&PostParams::default(), &SelfSubjectReview::default())).unwrap();
    let me = me.status.unwrap().user_info.unwrap();
    assert_eq!(me.username.as_deref(), Some("system:node:node-1"));
    assert!(me.groups.unwrap().contains(&"system:nodes".to_owned()));
    let (nodes, secrets) = (Api::<Node>::all(api.client.clone()), Api::<Secret>::all(api.client.clone()));
    is_refused(api.wait(secrets.list(&ListParams::default())));
    is_refused(api.wait(nodes.delete("node-1", &DeleteParams::default())));
    is_refused(api.wait(api.pods().create(&PostParams::default(), &Pod::default())));
    // The administrator's credentials are not visible in the Node.
    let found =
        lab.node("node-1", &["find", lab.home.path().to_str().unwrap(), "-name", "kubeconfig", "-o", "-name", "*.key"]);
    assert_eq!(found.as_deref(), Ok(""));
}

#[test]
fn the_embedded_api_lets_an_agent_read_what_it_needs_and_nothing_else() {
    let (lab, _) = crate::agent::network("account", 1, &[]);
    an_agent_may_read_what_it_needs_and_nothing_else(&lab);
    a_kubelet_is_its_node_and_not_the_administrator(&lab);
}
