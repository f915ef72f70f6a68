//! Logs and commands of Pods, which the server forwards to kubelets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use apiserver::{ApiServer, Dialer, KubeletCertificates, Options};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::aggregation::acceptor;
use crate::client::{Client, start};

/// The address that the Node reports; the dialer leads elsewhere.
const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const POD: &str = "/api/v1/namespaces/default/pods/p";
const UPGRADE: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "websocket")];

/// A server with a Pod on a Node, whose kubelet repeats the path of a request, or echoes after an upgrade.
async fn cluster() -> (ApiServer, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let dial = move |address: SocketAddr| {
        assert_eq!(address, SocketAddr::from((NODE, 10250)));
        TcpStream::connect(there)
    };
    let (server, client) = start(Options { kubelets: Dialer::new(dial), ..Options::default() }).await;
    let KubeletCertificates { certificate, key, .. } = server.kubelet_certificates("n", &[IpAddr::V4(NODE)]).unwrap();
    let acceptor = acceptor(&server, &certificate, &key);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(kubelet);
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    let local = server.local();
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": NODE}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    });
    local.create("v1", "nodes", "", json!({"metadata": {"name": "n"}, "status": status})).unwrap();
    let spec = |node: &str| json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
    for (name, node) in [("p", "n"), ("waits", ""), ("lost", "gone")] {
        local.create("v1", "pods", "default", json!({"metadata": {"name": name}, "spec": spec(node)})).unwrap();
    }
    (server, client)
}

async fn kubelet(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    assert!(request.headers().get("authorization").is_none(), "the client's token stays here");
    let target = request.uri().to_string();
    let mut response = Response::new(Full::new(target.clone().into()));
    if target.contains("tailLines=13") {
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
    } else if request.headers().contains_key("upgrade") {
        *response.body_mut() = Full::default();
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        for (name, value) in UPGRADE {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.unwrap());
            stream.write_all(format!("{target} ").as_bytes()).await.unwrap();
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        });
    }
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_that_of_the_kubelet_and_its_errors_are_statuses() {
    let (_server, client) = cluster().await;
    let (code, text) = client.text(&format!("{POD}/log?tailLines=3&follow=true&pretty=true")).await;
    assert_eq!((code, text.as_str()), (200, "/containerLogs/default/p/c?follow=true&tailLines=3"));
    let (code, status) = client.get(&format!("{POD}/log?tailLines=13")).await;
    assert_eq!((code, status["reason"].as_str()), (400, Some("BadRequest")), "{status}");
    let (code, status) = client.get(&format!("{POD}/log?container=d")).await;
    assert_eq!((code, &status["message"]), (400, &json!("container d is not valid for pod p")));
    assert_eq!(client.get("/api/v1/namespaces/default/pods/none/log").await.0, 404);
    assert_eq!(client.text("/api/v1/namespaces/default/pods/waits/log").await, (200, String::new()));
    let (code, status) = client.get("/api/v1/namespaces/default/pods/lost/log").await;
    assert!(code == 500 && status["message"].as_str().unwrap().contains("node gone"), "{status}");
    assert_eq!(client.send("DELETE", &format!("{POD}/log"), "application/json", "").await.0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_reaches_the_kubelet() {
    let (_server, client) = cluster().await;
    let target = format!("{POD}/exec?stdin=true&stdout=true&tty=false&command=sh&command=a%20b");
    let response = client.upgrade(&target, &UPGRADE).await;
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "/exec/default/p/c?input=1&output=1&command=sh&command=a%20b hello");
    let (code, status) = client.get("/api/v1/namespaces/default/pods/waits/exec").await;
    assert_eq!((code, &status["message"]), (400, &json!("pod waits does not have a host assigned")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_requires_the_right_to_create_even_over_a_websocket() {
    let (server, _) = cluster().await;
    let local = server.local();
    let rbac = "rbac.authorization.k8s.io/v1";
    let rule = |resource: &str, verb: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]});
    let allow = |rules: Value| {
        let role = json!({"metadata": {"name": "r"}, "rules": rules});
        let _ = local.delete(rbac, "roles", "default", "r", None);
        local.create(rbac, "roles", "default", role).unwrap();
    };
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    local.create(rbac, "rolebindings", "default", binding).unwrap();
    let client = Client::new(&server, Some(server.token_for("default", "default").unwrap()));
    let exec = format!("{POD}/exec?stdout=true&command=true");
    let get = rule("pods/exec", "get");
    for (rules, allowed) in [
        (json!([rule("pods", "get"), rule("pods/log", "get")]), false),
        (json!([get]), false),
        (json!([rule("pods/exec", "create")]), false),
        (json!([get, rule("pods/exec", "create")]), true),
    ] {
        allow(rules.clone());
        let status = client.upgrade(&exec, &UPGRADE).await.status().as_u16();
        assert_eq!(status, if allowed { 101 } else { 403 }, "{rules}");
    }
    assert_eq!(client.get(&format!("{POD}/log")).await.0, 403);
}
