//! What a watch tells.

use std::time::Duration;

use apiserver::{ApiServer, Options};
use k8s::{Client, Timeouts, WatchEvent, WatchFilter};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use types::ObjectName;
use types::config_map::ConfigMap;
use types::node::Node;
use types::service::Service;

struct Cluster {
    server: ApiServer,
    client: Client,
    directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig).unwrap();
        let client = Client::new(Some(&kubeconfig), None).await.unwrap();
        Self { server, client, directory }
    }

    fn add_node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"for": name}}, "spec": {"podCIDR": "10.10.1.0/24"}});
        self.server.local().create("v1", "nodes", "", node).unwrap();
    }
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it takes too long")
}

fn node_name(name: &str) -> ObjectName {
    ObjectName { namespace: String::new(), name: name.to_owned() }
}

fn name(node: WatchEvent<Node>) -> String {
    match node {
        WatchEvent::Applied(node) => node.metadata.name,
        WatchEvent::Deleted(name) => format!("-{name}"),
        WatchEvent::Synced => "synced".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_lists_objects_and_reports_changes() {
    let cluster = Cluster::start().await;
    cluster.add_node("a");
    let mut watch = cluster.client.watch::<Node>(&WatchFilter::default());
    assert_eq!(name(soon(watch.next()).await), "a");
    assert_eq!(name(soon(watch.next()).await), "synced");
    cluster.add_node("b");
    assert_eq!(name(soon(watch.next()).await), "b");
    cluster.server.local().delete("v1", "nodes", "", "a", None).unwrap();
    assert_eq!(name(soon(watch.next()).await), "-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_applied_by_the_server() {
    let cluster = Cluster::start().await;
    for node in ["a", "b", "c"] {
        cluster.add_node(node);
    }
    let fields = WatchFilter { fields: "metadata.name=b".to_owned(), ..WatchFilter::default() };
    let labels = WatchFilter { labels: "for=c".to_owned(), ..WatchFilter::default() };
    for (filter, expected) in [(fields, "b"), (labels, "c")] {
        let mut watch = cluster.client.watch::<Node>(&filter);
        assert_eq!(name(soon(watch.next()).await), expected);
        assert_eq!(name(soon(watch.next()).await), "synced");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_read_by_name() {
    let cluster = Cluster::start().await;
    cluster.add_node("a");
    let found = soon(cluster.client.get::<Node>(&node_name("a"))).await.unwrap().unwrap();
    assert_eq!(found.spec.pod_cidr, "10.10.1.0/24");
    assert_eq!(soon(cluster.client.get::<Node>(&node_name("b"))).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_can_be_limited_to_a_namespace() {
    let cluster = Cluster::start().await;
    for namespace in ["a", "b"] {
        cluster.server.local().create("v1", "namespaces", "", json!({"metadata": {"name": namespace}})).unwrap();
        let map = json!({"metadata": {"name": "m"}, "data": {"in": namespace}});
        cluster.server.local().create("v1", "configmaps", namespace, map).unwrap();
    }
    let filter =
        WatchFilter { namespace: "b".to_owned(), fields: "metadata.name=m".to_owned(), ..WatchFilter::default() };
    let mut watch = cluster.client.watch::<ConfigMap>(&filter);
    let WatchEvent::Applied(found) = soon(watch.next()).await else { panic!("nothing is there") };
    assert_eq!(found.data["in"], "b");
    assert_eq!(soon(watch.next()).await, WatchEvent::Synced);
    let all = soon(cluster.client.all::<ConfigMap>("a")).await.unwrap();
    assert!(all.iter().any(|map| map.data.get("in").is_some_and(|text| text == "a")) && !all.contains(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_deleted_while_disconnected_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { data_dir: Some(directory.path().join("data")), ..Options::default() };
    let server = ApiServer::start(options()).await.unwrap();
    let listen: std::net::SocketAddr = server.url().trim_start_matches("https://").parse().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    server.write_kubeconfig(&kubeconfig).unwrap();
    let client = Client::new(Some(&kubeconfig), None).await.unwrap();
    for index in 0..3 {
        let service = json!({"metadata": {"name": format!("s{index}")}, "spec": {"ports": [{"port": 80}]}});
        server.local().create("v1", "services", "default", service).unwrap();
    }
    let mut watch = client.watch::<Service>(&WatchFilter::default());
    let mut known = Vec::new();
    loop {
        match soon(watch.next()).await {
            WatchEvent::Applied(service) => known.push(service.metadata.name),
            WatchEvent::Deleted(name) => panic!("{name} is there"),
            WatchEvent::Synced => break,
        }
    }
    assert_eq!(known, ["kubernetes", "s0", "s1", "s2"]);
    server.stop().await.unwrap();

    // Another server with the same objects but one, and a history that begins later.
    let server = ApiServer::start(Options { listen, ..options() }).await.unwrap();
    server.local().delete("v1", "services", "default", "s1", None).unwrap();
    server.compact();
    loop {
        match soon(watch.next()).await {
            WatchEvent::Deleted(name) => {
                assert_eq!(name.name, "s1");
                break;
            }
            WatchEvent::Applied(service) => assert_ne!(service.metadata.name, "s1"),
            WatchEvent::Synced => panic!("synced without deleting s1"),
        }
    }
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named_in_the_error() {
    let missing = std::path::Path::new("/nowhere/kubeconfig");
    let error = Client::new(Some(missing), None).await.err().unwrap().to_string();
    assert!(error.starts_with("kubeconfig /nowhere/kubeconfig: "), "{error}");
}

/// A proxy to an API server that can be silenced: connections stay open, but nothing passes. New ones are not answered until
/// the silence ends.
async fn fragile_path(server: &ApiServer) -> (String, watch::Sender<bool>) {
    let to = server.url().trim_start_matches("https://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (silence, silent) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (to, mut silent) = (to.clone(), silent.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                let fell_silent = tokio::select! {
                    _ = silent.wait_for(|silent| *silent) => true,
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
                };
                if fell_silent {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    (url, silence)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_detected_and_an_idle_one_is_not() {
    let cluster = Cluster::start().await;
    let (path, silence) = fragile_path(&cluster.server).await;
    let kubeconfig = cluster.directory.path().join("kubeconfig");
    let timeouts = Timeouts { answer: Duration::from_millis(300), renew: Duration::from_secs(1) };
    let client = Client::new(Some(&kubeconfig), Some(&path)).await.unwrap().with_timeouts(timeouts);
    cluster.add_node("a");
    let mut watch = client.watch::<Node>(&WatchFilter::default());
    let mut last_answer = watch.last_answer();
    assert_eq!(name(soon(watch.next()).await), "a");
    assert_eq!(name(soon(watch.next()).await), "synced");
    let (sender, mut events) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move { while sender.send(watch.next().await).await.is_ok() {} });
    // No object changes, and the watch is renewed all the same.
    last_answer.mark_unchanged();
    for _ in 0..3 {
        soon(last_answer.changed()).await.unwrap();
    }

    silence.send(true).unwrap();
    let error = soon(client.get::<Node>(&node_name("a"))).await.unwrap_err().to_string();
    assert!(error.contains("Node a: ") && error.contains("did not answer within 0.3 s"), "{error}");
    cluster.add_node("b");
    let before = *last_answer.borrow_and_update();
    assert!(
        tokio::time::timeout(timeouts.renew * 2, last_answer.changed()).await.is_err(),
        "an answer of a silent server"
    );
    silence.send(false).unwrap();
    while name(soon(events.recv()).await.unwrap()) != "b" {}
    assert!(*last_answer.borrow() > before);
}
