//! Clients without valid credentials get nothing, and do not disturb others.

use std::time::{SystemTime, UNIX_EPOCH};

use api::control::client::{Credentials, Error, follow, get};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, in_a_namespace, next};

#[test]
fn an_agent_without_valid_credentials_is_refused_with_the_reason() {
    in_a_namespace(|netns| async {
        let cluster = Cluster::start(netns).await;
        let replica = cluster.replica().await;
        let good = cluster.token("antrea-agent", Some("n1")).await;

        // A token becomes invalid with the object that it is bound to.
        cluster.create("v1", "nodes", "", json!({"metadata": {"name": "gone"}}));
        let ended = cluster.token("antrea-agent", Some("gone")).await;
        cluster.server.local().delete("v1", "nodes", "", "gone", None).unwrap();
        // Or when it expires; a token that is signed again with the same expiry is valid.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let signed_again = cluster.forge(&good, json!({"iat": now - 3600}));
        let over = cluster.forge(&good, json!({"iat": now - 3600, "nbf": now - 3600, "exp": now - 1}));
        drop(follow(replica.address, &cluster.credentials(signed_again).await, "n1").await.unwrap());
        let mut following = cluster.follow(&replica, "n1").await;
        next(&mut following).await;
        let (head, signature) = good.rsplit_once('.').unwrap();
        let tampered = format!("{head}.{}", signature.chars().rev().collect::<String>());
        for (token, why) in [
            (cluster.token("antrea-agent", Some("n2")).await, "the token is bound to Node n2, not to Node n1"),
            (cluster.token("antrea-agent", None).await, "names no Node"),
            (cluster.token("antrea-controller", Some("n1")).await, "cannot watch networkpolicies"),
            (ended, "the token is invalid or has expired"),
            (over, "the token is invalid or has expired"),
            (tampered, "the token is invalid or has expired"),
            (String::new(), "the token is invalid or has expired"),
            ("nonsense".to_owned(), "the token is invalid or has expired"),
        ] {
            let error = follow(replica.address, &cluster.credentials(token).await, "n1").await.unwrap_err();
            assert!(matches!(&error, Error::Refused { problem, .. } if problem.contains(why)), "{why}: {error}");
        }
        // HTTP requests need a token, too.
        let group = "/apis/controlplane.antrea.io/v1beta2";
        let objects = ["networkpolicies", "addressgroups", "appliedtogroups"].map(|plural| format!("{group}/{plural}"));
        for path in ["/metrics", "/v1/reports"].into_iter().chain(objects.iter().map(String::as_str)) {
            let invalid = cluster.credentials("nonsense".to_owned()).await;
            let error = get(replica.address, &invalid, path).await.unwrap_err().to_string();
            assert!(error.contains("401"), "{path}: {error}");
            let agent = Credentials { token: good.clone(), ..invalid };
            // An agent gets its policies by its stream, and must not read those of other Nodes.
            let error = get(replica.address, &agent, path).await.unwrap_err().to_string();
            assert!(error.contains("403"), "{path}: {error}");
        }

        for nonsense in [&b"GET /readyz HTTP/1.1\r\n\r\n"[..], &[0xff; 200_000], b"\x16\x03\x01\x40\x00\x01"] {
            let mut stream = TcpStream::connect(replica.address).await.unwrap();
            let _ = stream.write_all(nonsense).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.len() < 16, "{answer:?}");
        }
        // The connected agent is not affected.
        cluster.pod("client-9", "client", "n2", "10.10.2.9");
        assert!(!next(&mut following).await.snapshot);
        let health = get(replica.address, &cluster.credentials("nonsense".to_owned()).await, "/readyz").await.unwrap();
        assert_eq!(&health[..], b"ok\n");
    });
}
