//! The CA is rotated while agents are connected.

use std::time::{SystemTime, UNIX_EPOCH};

use api::control::client::{Credentials, get};
use apiserver::Patch;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::cluster::{Cluster, in_a_namespace, next, until};

const DAY: u64 = 24 * 3600;

/// A CA as in the Secret, created at a time in seconds since 1970.
fn ca(made: u64) -> Value {
    let moment = |at: u64| OffsetDateTime::from_unix_timestamp(at as i64).unwrap();
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, format!("antrea-ca {made}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (parameters.not_before, parameters.not_after) = (moment(made), moment(made + 365 * DAY));
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    json!({"certificate": certificate, "key": key.serialize_pem(), "made": made})
}

#[test]
fn a_ca_is_rotated_while_agents_stay_connected_and_can_reconnect() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        // The next CA signs when it is a day old. It is recorded as younger than its certificate until all agents are connected.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (old, new) = (ca(now - 276 * DAY), ca(now - DAY));
        let know = |next: &Value| {
            let state = json!({"signing": old, "since": old["made"], "next": next}).to_string();
            let data = json!({"data": {"authorities.json": STANDARD.encode(state)}});
            let local = cluster.server.local();
            local.patch("v1", "secrets", "kube-system", "antrea-ca-key", "", Patch::Merge, &data).unwrap();
        };
        let mut young = new.clone();
        young["made"] = json!(now);
        know(&young);
        let text = |ca: &Value| ca["certificate"].as_str().unwrap().to_owned();
        let (old_one, new_one) = (text(&old), text(&new));

        let replicas = [cluster.replica().await, cluster.replica().await];
        let mut agents = [cluster.follow(&replicas[0], "n1").await, cluster.follow(&replicas[1], "n2").await];
        for agent in &mut agents {
            assert!(next(agent).await.snapshot);
        }
        // A client that trusts only one of them can tell which one signs.
        let published = cluster.credentials(String::new()).await;
        let only = |ca: &str| Credentials { ca_bundle: ca.to_owned(), ..published.clone() };
        for replica in &replicas {
            get(replica.address, &only(&old_one), "/readyz").await.unwrap();
            get(replica.address, &only(&new_one), "/readyz").await.unwrap_err();
        }

        know(&new);
        let both_sign_with_the_new_one = async || {
            let published = cluster.credentials(String::new()).await;
            let both = published.ca_bundle.contains(&old_one) && published.ca_bundle.contains(&new_one);
            assert!(both, "agents have to trust both: {}", published.ca_bundle);
            let mut done = true;
            for replica in &replicas {
                get(replica.address, &published, "/readyz").await.expect("an agent could not reconnect");
                done &= get(replica.address, &only(&new_one), "/readyz").await.is_ok();
            }
            done.then_some(())
        };
        until("both replicas sign with the new one", both_sign_with_the_new_one).await;
        for replica in &replicas {
            get(replica.address, &only(&old_one), "/readyz").await.unwrap_err();
        }

        // Open streams continue, and agents can reconnect.
        cluster.pod("client-9", "client", "n2", "10.10.2.9");
        for agent in &mut agents {
            assert!(!next(agent).await.snapshot, "an agent was disconnected");
        }
        let mut again = cluster.follow(&replicas[1], "n1").await;
        assert!(next(&mut again).await.snapshot);
    });
}
