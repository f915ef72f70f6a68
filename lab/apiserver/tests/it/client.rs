//! A client with one connection for each request, and the token of a ServiceAccount or no credentials.

use std::net::SocketAddr;
use std::sync::Arc;

use apiserver::{ApiServer, Options};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    token: Option<String>,
}

/// A server, and a client with all rights: a ServiceAccount with `cluster-admin`.
pub(crate) async fn start(options: Options) -> (ApiServer, Client) {
    let server = ApiServer::start(options).await.unwrap();
    let binding = serde_json::json!({
        "metadata": {"name": "test"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "default"}],
    });
    // It exists already after a restart.
    let _ = server.local().create("rbac.authorization.k8s.io/v1", "clusterrolebindings", "", binding);
    let token = server.token_for("kube-system", "default").unwrap();
    let client = Client::new(&server, Some(token));
    (server, client)
}

impl Client {
    pub(crate) fn new(server: &ApiServer, token: Option<String>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config =
            config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
        let address = server.url().strip_prefix("https://").unwrap().parse().unwrap();
        Self { address, tls: TlsConnector::from(Arc::new(config)), token }
    }

    pub(crate) async fn open(&self, method: &str, path: &str, media: &str, body: &str) -> http::Response<Incoming> {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        self.exchange(request, body).await
    }

    async fn exchange(&self, request: http::request::Builder, body: &str) -> http::Response<Incoming> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(self.address.ip().to_string()).unwrap();
        let stream = self.tls.connect(name, stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = request.header("host", "x");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        sender.send_request(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await.unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, media: &str, body: &str) -> (u16, Value) {
        let response = self.open(method, path, media, body).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "application/json", "").await
    }

    /// Reads until the response is as wanted; fails after a timeout.
    pub(crate) async fn becomes(&self, path: &str, wanted: impl Fn(u16, &Value) -> bool) {
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let (code, body) = self.get(path).await;
            if wanted(code, &body) {
                return;
            }
            let again = tokio::time::Instant::now() + std::time::Duration::from_millis(25);
            assert!(again < end, "{path} stays {code}: {body}");
            tokio::time::sleep_until(again).await;
        }
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let response = self.upgrade(path, headers).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// A response that is not JSON.
    pub(crate) async fn text(&self, path: &str) -> (u16, String) {
        let response = self.open("GET", path, "application/json", "").await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The response to a request with these headers, which may upgrade the connection.
    pub(crate) async fn upgrade(&self, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
        let request = headers.iter().fold(Request::builder().uri(path), |all, (name, value)| all.header(*name, *value));
        self.exchange(request, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", &body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", path, &format!("application/{kind}"), &body.to_string()).await
    }
}
