//! The controller behind the aggregation layer of a real Kubernetes.

use api::control::client::{Credentials, Following, follow};
use serde_json::{Value, json};
use testkit::Scratch;
use testkit::kubernetes::{ControlPlane, Options};
use types::control::Report;

use crate::cluster::{ADDRESSES, MANIFESTS, Replica, in_a_namespace, next, until};

const POLICIES: &str = "/apis/controlplane.antrea.io/v1beta2/networkpolicies";

fn apply(plane: &ControlPlane, manifest: &str) {
    plane.kubectl_stdin(["apply", "-f", "-"], manifest).unwrap();
}

fn get(plane: &ControlPlane, path: &str) -> Option<Value> {
    serde_json::from_str(&plane.kubectl(["get", "--raw", path]).ok()?).ok()
}

/// Nodes n1 and n2 with a `web` on each, under a policy.
fn populate(plane: &ControlPlane) {
    apply(plane, r#"{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}"#);
    for node in ["n1", "n2"] {
        apply(plane, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}).to_string());
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        let metadata = json!({"name": format!("web-{node}"), "labels": {"app": "web"}});
        apply(plane, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string());
    }
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]});
    let kind = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"});
    let mut policy = json!({"metadata": {"name": "web"}, "spec": spec});
    policy.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
    apply(plane, &policy.to_string());
}

/// The stream of the agent of a Node, and the reports that it enforces everything.
async fn agent(plane: &ControlPlane, replica: &Replica, node: &str) -> (Following, Vec<Report>) {
    let token = ["create", "token", "antrea-agent", "-n", "kube-system", "--bound-object-kind=Node"];
    let token = plane.kubectl(token.into_iter().map(str::to_owned).chain([format!("--bound-object-name={node}")]));
    let ca_bundle = async || {
        let map = get(plane, "/api/v1/namespaces/kube-system/configmaps/antrea-ca")?;
        map["data"]["ca.crt"].as_str().map(str::to_owned)
    };
    let ca_bundle = until("the CA certificate", ca_bundle).await;
    let server_name = "antrea.kube-system.svc".to_owned();
    let credentials = Credentials { ca_bundle, token: token.unwrap().trim().to_owned(), server_name };
    let mut following = follow(replica.address, &credentials, node).await.unwrap();
    let mut held = policy::Replica::default();
    held.apply(&next(&mut following).await).unwrap();
    let report = |policy: &types::control::Policy| Report {
        policy: policy.name.clone(),
        uid: policy.uid.clone(),
        generation: policy.generation,
        problem: None,
    };
    let reports = held.policies().values().map(|policy| report(policy)).collect();
    (following, reports)
}

#[test]
#[ignore = "needs make kubernetes"]
fn the_status_of_policies_is_served_through_the_real_api_server() {
    in_a_namespace(|netns| async move {
        let listen = ADDRESSES[3].parse().unwrap();
        let plane = ControlPlane::start(Options { listen, controllers: Vec::new(), ..Options::default() }).unwrap();
        for manifest in MANIFESTS {
            apply(&plane, manifest);
        }
        populate(&plane);
        let dir = Scratch::new().unwrap();
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(plane.kubeconfig()).unwrap()).unwrap();
        let token = plane.kubectl(["create", "token", "antrea-controller", "-n", "kube-system"]).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
        let address = ADDRESSES[0].parse().unwrap();
        let replica = Replica::start(&netns, dir.path(), address, json!({}), &kubeconfig).await;
        // Applying the manifest again keeps what the controller has written.
        let secret = || get(&plane, "/api/v1/namespaces/kube-system/secrets/antrea-ca-key").unwrap()["data"].clone();
        let filled = secret();
        assert!(filled["authorities.json"].is_string(), "{filled}");
        apply(&plane, MANIFESTS[0]);
        assert_eq!(secret(), filled);

        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "antrea-1", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "antrea"}},
            "ports": [{"name": "api", "port": 10349, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        });
        apply(&plane, &slice.to_string());
        let status = async || Some(get(&plane, POLICIES)?["items"].get(0)?["status"].clone());
        let initial = until("the aggregated API", status).await;
        assert_eq!(
            (&initial["phase"], &initial["desiredNodesRealized"]),
            (&json!("Realizing"), &json!(2)),
            "{initial}"
        );
        let reached = async |count: u64| {
            let so = async || status().await.filter(|status| status["currentNodesRealized"] == count);
            until("the report", so).await
        };
        let (one, reports) = agent(&plane, &replica, "n1").await;
        one.reporter().report(reports).await.unwrap();
        assert_eq!(reached(1).await["phase"], "Realizing");
        let (two, reports) = agent(&plane, &replica, "n2").await;
        two.reporter().report(reports).await.unwrap();
        assert_eq!(reached(2).await["phase"], "Realized");

        let table = plane.kubectl(["get", "networkpolicies.controlplane.antrea.io"]).unwrap();
        assert!(table.contains("default/web") && table.contains("2/2"), "{table}");
        // Roles apply there, too.
        let refused = plane.kubectl(["get", "networkpolicies.controlplane.antrea.io", "--as=intruder"]).unwrap_err();
        assert!(format!("{refused:#}").contains("intruder"), "{refused:#}");
    });
}
