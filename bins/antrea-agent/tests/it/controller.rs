//! A controller for tests: the policy computation and the stream of the real one, with events from the test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use api::control::server::{Controller as Admits, Feed, Listener, Refusal, Rest, Timeouts, prepare};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use policy::{Brain, Event, Kind, Subscription};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use serde_json::{Value, json};
use testkit::wait::{TIMEOUT, until};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use types::control::{Batch, Report};

use crate::fixture::Node;

const NAMESPACE: &str = "kube-system";

/// The state of a controller. It can be served, and served again after an outage.
#[derive(Clone)]
pub(crate) struct Controller(Arc<Inner>);

struct Inner {
    brain: Mutex<Brain>,
    changed: watch::Sender<u64>,
    reports: Mutex<Vec<Report>>,
    tls: watch::Sender<Arc<ServerConfig>>,
    ca: String,
}

/// A listening controller, which stops when this is dropped.
pub(crate) struct Served {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

pub(crate) struct Following {
    controller: Controller,
    subscription: Subscription,
    changed: watch::Receiver<u64>,
}

impl Feed for Following {
    async fn next(&mut self) -> Option<Batch> {
        loop {
            let batch = self.controller.0.brain.lock().unwrap().take(&self.subscription).ok()?;
            if batch.is_some() {
                return batch;
            }
            self.changed.changed().await.ok()?;
        }
    }
}

impl Admits for Controller {
    type Feed = Following;

    async fn admit(&self, _: &str, node: &str) -> Result<Following, Refusal> {
        let changed = self.0.changed.subscribe();
        let subscription = self.0.brain.lock().unwrap().subscribe(node);
        Ok(Following { controller: self.clone(), subscription, changed })
    }

    async fn report(&self, _: &str, reports: Vec<Report>) {
        self.0.reports.lock().unwrap().extend(reports);
    }
}

struct Nothing;

impl Rest for Nothing {
    async fn answer(&self, _: http::Request<Incoming>, _: &[CertificateDer<'static>]) -> http::Response<Full<Bytes>> {
        http::Response::new(Full::default())
    }
}

impl Controller {
    /// A controller of a cluster with the namespace `default`, which does not listen yet.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec![format!("antrea.{NAMESPACE}.svc")];
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![leaf.der().clone()], key.into()).unwrap();
        prepare(&mut config);
        let mut brain = Brain::default();
        let namespace = json!({"metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}});
        brain.step(Event::Namespace(serde_json::from_value(namespace).unwrap()));
        for kind in [Kind::Pod, Kind::Namespace, Kind::Policy] {
            brain.step(Event::Synced(kind));
        }
        Self(Arc::new(Inner {
            brain: Mutex::new(brain),
            changed: watch::Sender::new(0),
            reports: Mutex::default(),
            tls: watch::Sender::new(Arc::new(config)),
            ca: ca.pem(),
        }))
    }

    /// Creates the ConfigMap and the EndpointSlice by which agents find the controller.
    pub(crate) fn announce(&self, node: &Node) {
        let map = json!({"metadata": {"name": "antrea-ca"}, "data": {"ca.crt": self.0.ca}});
        node.api.local().create("v1", "configmaps", NAMESPACE, map).unwrap();
        let slice = json!({
            "metadata": {"name": "antrea-1", "labels": {"kubernetes.io/service-name": "antrea"}},
            "addressType": "IPv4",
            "ports": [{"name": "api", "port": 10349, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["192.168.77.254"], "conditions": {"ready": true}}],
        });
        node.api.local().create("discovery.k8s.io/v1", "endpointslices", NAMESPACE, slice).unwrap();
    }

    /// Listens in the namespace outside of the Node.
    pub(crate) fn serve(&self, node: &Node) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address: SocketAddr = "192.168.77.254:10349".parse().unwrap();
        let bind = || until("the port is free", TIMEOUT, || runtime.block_on(Listener::bind(address)).ok()).unwrap();
        let listener = node.outside.run(bind).unwrap();
        let (tls, controller) = (self.0.tls.subscribe(), Arc::new(self.clone()));
        runtime.spawn(async move {
            listener.serve(tls, controller, Arc::new(Nothing), Timeouts::default(), std::future::pending()).await;
        });
        Served { runtime: Some(runtime) }
    }

    fn step(&self, event: Event) {
        self.0.brain.lock().unwrap().step(event);
        self.0.changed.send_modify(|version| *version += 1);
    }

    /// Adds or updates a Pod.
    pub(crate) fn pod(&self, pod: &Value) {
        self.step(Event::Pod(Box::new(serde_json::from_value(pod.clone()).unwrap())));
    }

    /// Adds or updates a policy.
    pub(crate) fn policy(&self, policy: &Value) {
        self.step(Event::Policy(Box::new(serde_json::from_value(policy.clone()).unwrap())));
    }

    /// Waits until the Node has reported this generation of a policy.
    pub(crate) fn wait_reported(&self, policy: &str, generation: i64) -> Report {
        let reported = || {
            let reports = self.0.reports.lock().unwrap();
            reports.iter().rev().find(|it| it.policy.object.name == policy && it.generation == generation).cloned()
        };
        until(format!("a report of {policy}"), TIMEOUT, reported).unwrap()
    }
}

/// A Pod of Node `n1`, in the namespace `default`.
pub(crate) fn pod(name: &str, app: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox"}]},
    })
}

/// A policy of the namespace `default`: allows ingress from Pods with the labels `app` in `from`.
pub(crate) fn allow(name: &str, to: &str, from: &[&str]) -> Value {
    let peers: Vec<Value> = from.iter().map(|app| json!({"podSelector": {"matchLabels": {"app": app}}})).collect();
    let ingress = if peers.is_empty() { json!([]) } else { json!([{"from": peers}]) };
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}"), "generation": 1},
        "spec": {"podSelector": {"matchLabels": {"app": to}}, "policyTypes": ["Ingress"], "ingress": ingress},
    })
}
