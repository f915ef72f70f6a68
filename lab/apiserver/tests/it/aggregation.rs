use std::sync::Arc;

use apiserver::{ApiServer, Options};
use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::client::{Client, start};

const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.far.example.com";

/// Accepts clients with a certificate of the server's CA.
pub(crate) fn acceptor(server: &ApiServer, own: &str, key: &str) -> TlsAcceptor {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(server.ca_pem())).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate(own)], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// A backend that requires a certificate of the server's CA, and returns the user of each request. Returns its address
/// and its certificate.
async fn backend(server: &ApiServer) -> (http::Uri, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["far.default.svc".to_owned()]).unwrap().self_signed(&key).unwrap();
    let acceptor = acceptor(server, &certificate.pem(), &key.serialize_pem());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(repeat);
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, certificate.pem())
}

async fn repeat(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let all = |name: &str| {
        let values = request.headers().get_all(name);
        values.iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let rows =
        json!([{"name": "things", "singularName": "thing", "namespaced": false, "kind": "Thing", "verbs": ["get"]}]);
    let answer = match request.uri().path() {
        "/apis/far.example.com/v1" => json!({"kind": "APIResourceList", "resources": rows}),
        path => json!({"path": path, "users": all("x-remote-user"), "groups": all("x-remote-group")}),
    };
    Ok(Response::new(Full::new(answer.to_string().into())))
}

async fn becomes(client: &Client, status: &str, reason: &str) {
    let said = |_: u16, service: &Value| {
        let condition = &service["status"]["conditions"][0];
        condition["status"] == status && condition["reason"] == reason
    };
    client.becomes(SERVICE, said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_a_backend_with_the_user_and_without_headers_of_the_client() {
    let (server, client) = start(Options::default()).await;
    let (url, certificate) = backend(&server).await;
    let spec = json!({
        "group": "far.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"namespace": "default", "name": "far"},
        "caBundle": base64::engine::general_purpose::STANDARD.encode(certificate),
    });
    let object = json!({"metadata": {"name": "v1.far.example.com"}, "spec": spec});
    let (code, _) = client.post("/apis/apiregistration.k8s.io/v1/apiservices", &object).await;
    assert_eq!(code, 201);
    becomes(&client, "False", "ServiceNotFound").await;
    assert_eq!(client.get("/apis/far.example.com/v1/things").await.0, 503);
    server.set_backend("default/far", url);
    becomes(&client, "True", "Passed").await;
    let headers = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    let answer: Value = client.get_with("/apis/far.example.com/v1/things/one", &headers).await.1;
    assert_eq!(answer["path"], "/apis/far.example.com/v1/things/one");
    assert_eq!(answer["users"], json!(["system:serviceaccount:kube-system:default"]));
    assert!(!answer["groups"].as_array().unwrap().contains(&json!("system:masters")), "{answer}");
    let (_, groups) = client.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "far.example.com"), "{groups}");
}
