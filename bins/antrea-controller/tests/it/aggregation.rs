//! `controlplane.antrea.io` as a part of the Kubernetes API.

use http::Request;
use serde_json::{Value, json};

use crate::cluster::{Cluster, in_a_namespace, until};

const PREFIX: &str = "/apis/controlplane.antrea.io/v1beta2";

async fn get(client: &kube::Client, path: &str, accept: &str) -> Result<Value, kube::Error> {
    let request = Request::get(path).header("accept", accept).body(Vec::new()).unwrap();
    client.request(request).await
}

#[test]
fn the_api_server_serves_policies_and_groups() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        let replica = cluster.replica().await;
        cluster.server.set_backend("kube-system/antrea", format!("https://{}", replica.address).parse().unwrap());
        let list = async |plural: &str| get(&cluster.client, &format!("{PREFIX}/{plural}"), "application/json").await;
        let policies = until("the aggregated API", async || list("networkpolicies").await.ok()).await;
        let policy = &policies["items"][0];
        assert_eq!((&policies["kind"], &policy["sourceRef"]["name"]), (&json!("NetworkPolicyList"), &json!("web")));
        assert_eq!(policy["rules"][0]["direction"], "In");
        let group = list("addressgroups").await.unwrap()["items"][0].clone();
        assert_eq!(policy["rules"][0]["from"]["addressGroups"][0], group["metadata"]["name"]);
        let members: Vec<_> = group["groupMembers"].as_array().unwrap().iter().map(|it| &it["pod"]["name"]).collect();
        assert_eq!(members, ["client-1", "client-2"]);
        let one = format!("appliedtogroups/{}", policy["appliedToGroups"][0].as_str().unwrap());
        assert_eq!(list(&one).await.unwrap()["groupMembers"].as_array().unwrap().len(), 2);
        let missing = list("addressgroups/missing").await.unwrap_err().to_string();
        assert!(missing.contains("not found"), "{missing}");

        let as_table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = get(&cluster.client, &format!("{PREFIX}/networkpolicies"), as_table).await.unwrap();
        assert_eq!((&table["kind"], &table["rows"][0]["cells"][1]), (&json!("Table"), &json!("default/web")));
        assert_eq!(table["rows"][0]["cells"][3], "0/2");

        // The API server authenticates the user, and roles apply.
        let intruder = cluster.server.kubeconfig("intruder", None).unwrap();
        let intruder = kube::config::Kubeconfig::from_yaml(&intruder).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(intruder, &kube::config::KubeConfigOptions::default()).await.unwrap();
        let intruder = kube::Client::try_from(config).unwrap();
        let refused =
            get(&intruder, &format!("{PREFIX}/networkpolicies"), "application/json").await.unwrap_err().to_string();
        assert!(refused.contains("intruder") && refused.contains("Forbidden"), "{refused}");
    });
}
