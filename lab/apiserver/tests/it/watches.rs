use apiserver::Options;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::client::start;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_list_ends_with_a_bookmark() {
    let (_server, client) = start(Options::default()).await;
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    );
    let body = client.open("GET", &path, "application/json", "").await.into_body().collect().await.unwrap().to_bytes();
    let lines: Vec<Value> =
        body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(lines[0]["object"]["metadata"]["name"], "kube-root-ca.crt");
    assert_eq!(lines[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}
