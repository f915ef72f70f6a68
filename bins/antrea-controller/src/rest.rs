//! HTTP requests other than agents' streams: health, metrics, and the API group `controlplane.antrea.io`.

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use k8s::Access;
use telemetry::metrics::{Kind, Page};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::CertificateDer;

mod caller;
mod controlplane;
mod objects;

use controlplane::{Target, failure};
use objects::RESOURCES;

use crate::authenticator::Authenticator;
use crate::engine::Engine;
use crate::peers::{self, Peers};
use crate::sources::Sources;
use crate::tls::FrontProxy;

pub(crate) struct Rest {
    pub(crate) engine: Engine,
    pub(crate) sources: Sources,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) metrics: bool,
    pub(crate) peers: Peers,
    pub(crate) front_proxy: watch::Receiver<Arc<FrontProxy>>,
}

fn objects_access(verb: &str, resource: &str, name: &str) -> Access {
    Access::Objects {
        verb: verb.to_owned(),
        group: "controlplane.antrea.io".to_owned(),
        resource: resource.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

type Answer = Response<Full<Bytes>>;

impl api::control::server::Rest for Rest {
    async fn answer(&self, request: Request<Incoming>, certificates: &[CertificateDer<'static>]) -> Answer {
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported");
        }
        let path = request.uri().path();
        let list = || objects_access("list", "networkpolicies", "");
        match path {
            "/healthz" | "/livez" => self.health().await,
            "/readyz" => self.readiness().await,
            "/metrics" if self.metrics => {
                match self.authorize(&request, certificates, &Access::Path(path.to_owned())).await {
                    Ok(()) => self.metrics().await,
                    Err(answer) => answer,
                }
            }
            // Discovery needs no authorization.
            "/apis" => Self::groups_and_resources(),
            peers::PATH => match self.authorize(&request, certificates, &list()).await {
                Ok(()) => self.reports().await,
                Err(answer) => answer,
            },
            _ => match Target::read(path) {
                None => failure(StatusCode::NOT_FOUND, "NotFound", "path not found"),
                Some(target) => self.serve_api(&request, certificates, target).await,
            },
        }
    }
}

impl Rest {
    async fn serve_api(
        &self,
        request: &Request<Incoming>,
        certificates: &[CertificateDer<'static>],
        target: Target,
    ) -> Answer {
        let (access, target) = match target {
            Target::Resources => (Access::Path(controlplane::PREFIX.to_owned()), None),
            Target::Objects { resource, name } => {
                let verb = if name.is_some() { "get" } else { "list" };
                let access = objects_access(verb, RESOURCES[resource].0, name.as_deref().unwrap_or_default());
                (access, Some((resource, name)))
            }
        };
        if let Err(answer) = self.authorize(request, certificates, &access).await {
            return answer;
        }
        let accepted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match target {
            None => Self::resources(),
            Some((resource, name)) => self.objects(resource, name.as_deref(), accepted.contains("as=Table")).await,
        }
    }

    /// Authenticates and authorizes a request; the error is the response.
    async fn authorize(
        &self,
        request: &Request<Incoming>,
        certificates: &[CertificateDer<'static>],
        access: &Access,
    ) -> Result<(), Answer> {
        let user = self.caller(request, certificates).await?;
        match self.authenticator.allows(&user, access).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = format!("{} is not allowed to do this; its role must allow {access:?}", user.name);
                Err(failure(StatusCode::FORBIDDEN, "Forbidden", &why))
            }
            Err(error) => Err(plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())),
        }
    }

    async fn health(&self) -> Answer {
        match self.engine.query(|_| ()).await {
            // An engine that answers is alive.
            Some(()) => plain(StatusCode::OK, "ok"),
            None => plain(StatusCode::SERVICE_UNAVAILABLE, "the policy engine has stopped"),
        }
    }

    async fn readiness(&self) -> Answer {
        if let Some((plural, since)) = self.sources.silent(Instant::now()) {
            let why = format!("no answer from the Kubernetes API to the watch of {plural} for {} s", since.as_secs());
            return plain(StatusCode::SERVICE_UNAVAILABLE, &why);
        }
        match self.engine.query(|state| state.brain.is_synced()).await {
            Some(true) => plain(StatusCode::OK, "ok"),
            _ => plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "waiting for the initial list of Pods, Namespaces and NetworkPolicies",
            ),
        }
    }

    async fn metrics(&self) -> Answer {
        use std::sync::atomic::Ordering::Relaxed;
        let stats = self.engine.query(|state| (state.brain.stats(), state.reports.connected_nodes().len())).await;
        let (stats, agents) = stats.unwrap_or_default();
        let counters = &self.engine.counters;
        let mut page = Page::default();
        let mut gauge = |name: &str, about: &str, value: usize| page.number(Kind::Gauge, (name, about), value);
        gauge("antrea_controller_network_policy_count", "Number of NetworkPolicies.", stats.policies);
        gauge("antrea_controller_applied_to_group_count", "Number of AppliedToGroups.", stats.applied_to_groups);
        gauge("antrea_controller_address_group_count", "Number of AddressGroups.", stats.address_groups);
        gauge("antrea_controller_connected_agent_count", "Agents connected to this replica.", agents);
        // Antrea has these queues; here an event is processed when it arrives.
        for name in ["address_group", "applied_to_group", "network_policy"] {
            gauge(
                &format!("antrea_controller_length_{name}_queue"),
                "Always 0: events are processed without this queue.",
                0,
            );
        }
        let mut counter = |name: &str, about: &str, value: u64| page.number(Kind::Counter, (name, about), value);
        let (policies, pods) = (counters.policies.load(Relaxed), counters.pods.load(Relaxed));
        counter("antrea_controller_network_policy_processed", "Processed NetworkPolicy events.", policies);
        counter("antrea_controller_address_group_processed", "Processed Pod and Namespace events.", pods);
        counter("antrea_controller_applied_to_group_processed", "Processed Pod and Namespace events.", pods);
        counter("antrea_controller_batches_sent_count", "Batches sent to agents.", counters.batches.load(Relaxed));
        counter(
            "antrea_controller_agents_refused_count",
            "Agent connections that were refused.",
            counters.refused.load(Relaxed),
        );
        let milliseconds = "Processing time of an event, in milliseconds.";
        for (name, took) in [
            ("network_policy", &counters.policy_took),
            ("address_group", &counters.pod_took),
            ("applied_to_group", &counters.pod_took),
        ] {
            let name = format!("antrea_controller_{name}_sync_duration_milliseconds");
            page.histogram((&name, milliseconds), [(&[][..], took)]);
        }
        respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.finish())
    }
}

pub(crate) fn plain(status: StatusCode, text: &str) -> Answer {
    respond(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

pub(crate) fn respond(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(http::header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
    }
    answer
}
