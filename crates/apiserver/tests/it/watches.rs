use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apiserver::Options;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::client::{Client, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Lists and watches as clients do, with connections that break after some lines, until `done` and up to date.
async fn follow(client: Client, selector: &str, breaks: usize, done: Arc<AtomicBool>) -> BTreeMap<String, Value> {
    let mut cache = BTreeMap::new();
    let mut revision = String::new();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let (mut lists, mut finished) = (0, false);
    while !finished {
        if revision.is_empty() {
            lists += 1;
            assert!(lists < 1000, "lists for ever");
            let (code, list) = client.get(&format!("{MAPS}?{selector}")).await;
            assert_eq!(code, 200);
            cache = list["items"].as_array().unwrap().iter().map(|item| (name(item), item["data"].clone())).collect();
            revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        }
        let last = done.load(Ordering::SeqCst);
        let path = format!(
            "{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={revision}&{selector}"
        );
        let response = client.open("GET", &path, "application/json", "").await;
        let (mut body, mut text, mut lines) = (response.into_body(), String::new(), 0);
        'connection: while let Some(Ok(frame)) = body.frame().await {
            text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
            while let Some((line, rest)) = text.split_once('\n') {
                let event: Value = serde_json::from_str(line).unwrap();
                text = rest.to_owned();
                let object = &event["object"];
                match event["type"].as_str().unwrap() {
                    "ADDED" | "MODIFIED" => drop(cache.insert(name(object), object["data"].clone())),
                    "DELETED" => drop(cache.remove(&name(object))),
                    "BOOKMARK" => {}
                    _ => {
                        assert_eq!(object["code"], 410, "{event}");
                        revision.clear();
                        break 'connection;
                    }
                }
                revision = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                lines += 1;
                if !last && lines >= breaks {
                    break 'connection;
                }
            }
        }
        // A watch that began after the last write and ran its time has seen everything.
        finished = last && !revision.is_empty();
    }
    cache
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_equal_the_state_whatever_breaks_and_is_forgotten() {
    let (server, client) = start(Options { history: 40, ..Options::default() }).await;
    let done = Arc::new(AtomicBool::new(false));
    let watchers: Vec<_> = (0..6)
        .map(|index| {
            let selector = if index % 2 == 0 { "" } else { "labelSelector=odd%3Dyes" };
            (selector, tokio::spawn(follow(client.clone(), selector, 3 + index * 7, done.clone())))
        })
        .collect();
    let local = server.local();
    for round in 0..600u32 {
        let name = format!("m{}", round * 7 % 23);
        let odd = if round % 3 == 0 { "yes" } else { "no" };
        let object = json!({"metadata": {"name": name, "labels": {"odd": odd}}, "data": {"round": round.to_string()}});
        match local.get("v1", "configmaps", "default", &name) {
            Ok(_) if round % 5 == 0 => local.delete("v1", "configmaps", "default", &name, None).unwrap(),
            Ok(_) => drop(local.update("v1", "configmaps", "default", &name, "", object).unwrap()),
            Err(_) => drop(local.create("v1", "configmaps", "default", object).unwrap()),
        }
        if round % 50 == 0 {
            server.compact();
        }
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::SeqCst);
    for (selector, watcher) in watchers {
        let (_, list) = client.get(&format!("{MAPS}?{selector}")).await;
        let items = list["items"].as_array().unwrap();
        let state: BTreeMap<_, _> = items
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item["data"].clone()))
            .collect();
        assert_eq!(watcher.await.unwrap(), state, "{selector}");
    }
}

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
