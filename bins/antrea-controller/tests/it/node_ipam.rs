//! Subnets for Nodes that have none.

use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::cluster::{Cluster, in_a_namespace, until};

#[test]
fn nodes_get_subnets_and_a_node_without_one_gets_an_event() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        cluster.create("v1", "nodes", "", json!({"metadata": {"name": "old"}, "spec": {"podCIDR": "10.20.0.0/24"}}));
        let networks = json!(["10.20.0.0/22", "fd00:20::/56"]);
        let ipam =
            json!({"nodeIPAM": {"enableNodeIPAM": true, "clusterCIDRs": networks, "serviceCIDR": "10.20.3.0/24"}});
        let replicas = (cluster.replica_with(ipam.clone()).await, cluster.replica_with(ipam).await);
        // The role in antrea-controller.yml does not allow to change Nodes; the log names the missing one.
        let is_logged = async || {
            let logs = [&replicas.0, &replicas.1].map(|replica| cluster.log(replica));
            logs.iter()
                .any(|log| log.contains("the controller needs the role in deploy/kubernetes/optional/node-ipam.yml"))
                .then_some(())
        };
        until("a log line about the missing role", is_logged).await;
        cluster.apply(include_str!("../../../../deploy/kubernetes/optional/node-ipam.yml"));
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let subnets = async |node: &str| nodes.get(node).await.unwrap().spec.unwrap_or_default().pod_cidrs;
        let first = until("subnets of n1", async || subnets("n1").await).await;
        let second = until("subnets of n2", async || subnets("n2").await).await;
        assert_eq!(first, ["10.20.1.0/24", "fd00:20::/64"]);
        assert_eq!(second, ["10.20.2.0/24", "fd00:20:0:1::/64"]);
        // No subnet is left for the next Node.
        cluster.create("v1", "nodes", "", json!({"metadata": {"name": "late"}}));
        let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
        let find_event = async || {
            let events = events.list(&ListParams::default()).await.unwrap();
            events.into_iter().find(|event| event.reason.as_deref() == Some("CIDRNotAvailable"))
        };
        let event = until("an Event on the Node", find_event).await;
        assert_eq!(event.involved_object.name.as_deref(), Some("late"));
        let message = event.message.unwrap();
        assert!(message.contains("no free /24 subnet in 10.20.0.0/22"), "{message}");
        assert_eq!(subnets("late").await, None);
        // When another Node is deleted, it gets its subnet.
        cluster.server.local().delete("v1", "nodes", "", "n2", None).unwrap();
        let late = until("subnets of late", async || subnets("late").await).await;
        assert_eq!(late[0], "10.20.2.0/24");
    });
}
