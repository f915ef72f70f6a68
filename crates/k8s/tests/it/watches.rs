//! What a watch tells.

use std::time::Duration;

use apiserver::{ApiServer, Options};
use k8s::{Client, Notice, Only, Patience};
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

fn name(node: Notice<Node>) -> String {
    match node {
        Notice::Set(node) => node.metadata.name,
        Notice::Gone(name) => format!("-{name}"),
        Notice::Synced => "synced".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_says_what_is_there_and_what_comes_and_goes() {
    let cluster = Cluster::start().await;
    cluster.add_node("a");
    let mut watch = cluster.client.watch::<Node>(&Only::default());
    assert_eq!(name(soon(watch.next()).await), "a");
    assert_eq!(name(soon(watch.next()).await), "synced");
    cluster.add_node("b");
    assert_eq!(name(soon(watch.next()).await), "b");
    cluster.server.local().delete("v1", "nodes", "", "a", None).unwrap();
    assert_eq!(name(soon(watch.next()).await), "-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_are_the_servers() {
    let cluster = Cluster::start().await;
    for node in ["a", "b", "c"] {
        cluster.add_node(node);
    }
    let fields = Only { fields: "metadata.name=b".to_owned(), ..Only::default() };
    let labels = Only { labels: "for=c".to_owned(), ..Only::default() };
    for (only, expected) in [(fields, "b"), (labels, "c")] {
        let mut watch = cluster.client.watch::<Node>(&only);
        assert_eq!(name(soon(watch.next()).await), expected);
        assert_eq!(name(soon(watch.next()).await), "synced");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_had_by_its_name() {
    let cluster = Cluster::start().await;
    cluster.add_node("a");
    let found = soon(cluster.client.get::<Node>(&node_name("a"))).await.unwrap().unwrap();
    assert_eq!(found.spec.pod_cidr, "10.10.1.0/24");
    assert_eq!(soon(cluster.client.get::<Node>(&node_name("b"))).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_looked_at_alone() {
    let cluster = Cluster::start().await;
    for namespace in ["a", "b"] {
        cluster.server.local().create("v1", "namespaces", "", json!({"metadata": {"name": namespace}})).unwrap();
        let map = json!({"metadata": {"name": "m"}, "data": {"in": namespace}});
        cluster.server.local().create("v1", "configmaps", namespace, map).unwrap();
    }
    let only = Only { namespace: "b".to_owned(), fields: "metadata.name=m".to_owned(), ..Only::default() };
    let mut watch = cluster.client.watch::<ConfigMap>(&only);
    let Notice::Set(found) = soon(watch.next()).await else { panic!("nothing is there") };
    assert_eq!(found.data["in"], "b");
    assert_eq!(soon(watch.next()).await, Notice::Synced);
    let all = soon(cluster.client.all::<ConfigMap>("a")).await.unwrap();
    assert!(all.iter().any(|map| map.data.get("in").is_some_and(|text| text == "a")) && !all.contains(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vanished_while_nobody_watched_is_reported() {
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
    let mut watch = client.watch::<Service>(&Only::default());
    let mut known = Vec::new();
    loop {
        match soon(watch.next()).await {
            Notice::Set(service) => known.push(service.metadata.name),
            Notice::Gone(name) => panic!("{name} is there"),
            Notice::Synced => break,
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
            Notice::Gone(name) => {
                assert_eq!(name.name, "s1");
                break;
            }
            Notice::Set(service) => assert_ne!(service.metadata.name, "s1"),
            Notice::Synced => panic!("in sync, and s1 is still there"),
        }
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let missing = std::path::Path::new("/nowhere/kubeconfig");
    let error = Client::new(Some(missing), None).await.err().unwrap().to_string();
    assert!(error.starts_with("kubeconfig /nowhere/kubeconfig: "), "{error}");
}

/// The way to an API server that falls silent when it is told to: no connection ends, nothing goes through. New ones are not
/// answered until it is told to go on.
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
async fn a_server_that_falls_silent_is_noticed_and_a_quiet_one_is_alive() {
    let cluster = Cluster::start().await;
    let (path, silence) = fragile_path(&cluster.server).await;
    let kubeconfig = cluster.directory.path().join("kubeconfig");
    let patience = Patience { answer: Duration::from_millis(300), renew: Duration::from_secs(1) };
    let client = Client::new(Some(&kubeconfig), Some(&path)).await.unwrap().with_patience(patience);
    cluster.add_node("a");
    let mut watch = client.watch::<Node>(&Only::default());
    let mut heard = watch.last_heard();
    assert_eq!(name(soon(watch.next()).await), "a");
    assert_eq!(name(soon(watch.next()).await), "synced");
    let (said, mut notices) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move { while said.send(watch.next().await).await.is_ok() {} });
    // Nothing happens, and it is heard of all the same.
    heard.mark_unchanged();
    for _ in 0..3 {
        soon(heard.changed()).await.unwrap();
    }

    silence.send(true).unwrap();
    let error = soon(client.get::<Node>(&node_name("a"))).await.unwrap_err().to_string();
    assert!(error.contains("Node a: ") && error.contains("has not answered within 0.3 s"), "{error}");
    cluster.add_node("b");
    let before = *heard.borrow_and_update();
    assert!(tokio::time::timeout(patience.renew * 2, heard.changed()).await.is_err(), "heard of what is silent");
    silence.send(false).unwrap();
    while name(soon(notices.recv()).await.unwrap()) != "b" {}
    assert!(*heard.borrow() > before);
}
