//! Streams to agents, and their reports.

use api::control::client::{Error, get};
use policy::Replica as NodePolicies;
use serde_json::{Value, json};
use types::control::{PolicyName, Report};

use crate::cluster::{Cluster, in_a_namespace, name, next, until};

#[test]
fn a_node_gets_its_policies_and_every_replica_serves_its_reports() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        let (one, two) = (cluster.replica().await, cluster.replica().await);
        cluster.announce(&[&one, &two]);
        let mut following = cluster.follow(&one, "n1").await;
        let snapshot = next(&mut following).await;
        let mut held = NodePolicies::default();
        held.apply(&snapshot).unwrap();
        let seen: Vec<_> = held.seen().keys().map(|pod| pod.name.as_str()).collect();
        assert!(snapshot.snapshot);
        assert_eq!((held.policies().len(), seen), (1, vec!["client-1", "web-1"]));

        // A change is not a snapshot.
        cluster.pod("client-3", "client", "n2", "10.10.2.9");
        let has_client_3 =
            |held: &NodePolicies| held.addresses().values().any(|members| members.contains_key(&name("client-3")));
        while !has_client_3(&held) {
            let batch = next(&mut following).await;
            assert!(!batch.snapshot);
            held.apply(&batch).unwrap();
        }

        // No report yet; then n1 reports to one replica, and the other one serves the status.
        let credentials = cluster.credentials(cluster.token("antrea-controller", None).await).await;
        let status = async || -> Value {
            let list =
                get(two.address, &credentials, "/apis/controlplane.antrea.io/v1beta2/networkpolicies").await.unwrap();
            serde_json::from_slice::<Value>(&list).unwrap()["items"][0]["status"].clone()
        };
        let before = status().await;
        assert_eq!((&before["phase"], &before["desiredNodesRealized"]), (&json!("Realizing"), &json!(2)), "{before}");
        let policy = held.policies()[&PolicyName::kubernetes(name("web"))].clone();
        let report = Report {
            policy: policy.name.clone(),
            uid: policy.uid.clone(),
            generation: policy.generation,
            problem: None,
        };
        following.reporter().report(vec![report.clone()]).await.unwrap();
        until("n1's report", async || (status().await["currentNodesRealized"] == 1).then_some(())).await;

        // n2 is connected to the other replica, and reports a problem; then it has none.
        let mut other = cluster.follow(&two, "n2").await;
        next(&mut other).await;
        let failed = Report { problem: Some("no switch".to_owned()), ..report.clone() };
        other.reporter().report(vec![failed]).await.unwrap();
        until("n2's problem", async || (status().await["phase"] == "Failed").then_some(())).await;
        assert_eq!(status().await["problems"], json!(["Node n2: no switch"]));
        other.reporter().report(vec![report]).await.unwrap();
        until("both", async || (status().await["phase"] == "Realized").then_some(())).await;
    });
}

#[test]
fn either_replica_can_fail_and_the_other_sends_the_same() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        let (mut one, two) = (cluster.replica().await, cluster.replica().await);
        let mut following = cluster.follow(&one, "n1").await;
        let (mut before, mut after) = (NodePolicies::default(), NodePolicies::default());
        before.apply(&next(&mut following).await).unwrap();
        one.process.kill().unwrap();
        let error = following.next().await.unwrap_err();
        assert!(matches!(error, Error::StreamEnded { .. }), "{error}");
        let mut following = cluster.follow(&two, "n1").await;
        after.apply(&next(&mut following).await).unwrap();
        assert_eq!(before, after);
        // A new replica uses the existing CA, and sends the same.
        let three = cluster.replica().await;
        let mut following = cluster.follow(&three, "n1").await;
        after.apply(&next(&mut following).await).unwrap();
        assert_eq!(before, after);
    });
}

#[test]
fn the_same_node_has_one_stream() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        let replica = cluster.replica().await;
        let mut first = cluster.follow(&replica, "n1").await;
        next(&mut first).await;
        let mut second = cluster.follow(&replica, "n1").await;
        assert!(next(&mut second).await.snapshot);
        let error = first.next().await.unwrap_err().to_string();
        assert!(error.contains("replaced by a newer stream of the same Node"), "{error}");
    });
}
