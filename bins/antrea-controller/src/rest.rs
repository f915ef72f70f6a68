//! What is answered at the port beside the agents' streams: health, metrics, and the API group `controlplane.antrea.io`.

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

use controlplane::{Asked, failure};
use objects::RESOURCES;

use crate::door::Door;
use crate::engine::Engine;
use crate::peers::{self, Peers};
use crate::sources::Sources;
use crate::tls::FrontProxy;

/// Answers requests.
pub(crate) struct Rest {
    pub(crate) engine: Engine,
    pub(crate) sources: Sources,
    pub(crate) door: Arc<Door>,
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
    async fn answer(&self, request: Request<Incoming>, shown: &[CertificateDer<'static>]) -> Answer {
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood here");
        }
        let path = request.uri().path();
        let list = || objects_access("list", "networkpolicies", "");
        match path {
            "/healthz" | "/livez" => self.health().await,
            "/readyz" => self.readiness().await,
            "/metrics" if self.metrics => match self.may(&request, shown, &Access::Path(path.to_owned())).await {
                Ok(()) => self.metrics().await,
                Err(answer) => answer,
            },
            // What is served is no secret.
            "/apis" => Self::groups_and_resources(),
            peers::PATH => match self.may(&request, shown, &list()).await {
                Ok(()) => self.heard().await,
                Err(answer) => answer,
            },
            _ => match Asked::read(path) {
                None => failure(StatusCode::NOT_FOUND, "NotFound", "there is nothing here"),
                Some(asked) => self.asked(&request, shown, asked).await,
            },
        }
    }
}

impl Rest {
    async fn asked(&self, request: &Request<Incoming>, shown: &[CertificateDer<'static>], asked: Asked) -> Answer {
        let (access, asked) = match asked {
            Asked::Resources => (Access::Path(controlplane::PREFIX.to_owned()), None),
            Asked::Objects { resource, name } => {
                let verb = if name.is_some() { "get" } else { "list" };
                let access = objects_access(verb, RESOURCES[resource].0, name.as_deref().unwrap_or_default());
                (access, Some((resource, name)))
            }
        };
        if let Err(answer) = self.may(request, shown, &access).await {
            return answer;
        }
        let accepted = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match asked {
            None => Self::resources(),
            Some((resource, name)) => self.objects(resource, name.as_deref(), accepted.contains("as=Table")).await,
        }
    }

    /// Whether whoever asks may have it; if not, what they are told.
    async fn may(
        &self,
        request: &Request<Incoming>,
        shown: &[CertificateDer<'static>],
        access: &Access,
    ) -> Result<(), Answer> {
        let user = self.caller(request, shown).await?;
        match self.door.allows(&user, access).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = format!("{} may not do this; a role has to allow {access:?}", user.name);
                Err(failure(StatusCode::FORBIDDEN, "Forbidden", &why))
            }
            Err(error) => Err(plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())),
        }
    }

    async fn health(&self) -> Answer {
        match self.engine.look(|_| ()).await {
            // An engine that answers is alive.
            Some(()) => plain(StatusCode::OK, "ok"),
            None => plain(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended"),
        }
    }

    async fn readiness(&self) -> Answer {
        if let Some((plural, since)) = self.sources.silent(Instant::now()) {
            let why =
                format!("nothing has been heard of {plural} for {} s; is the Kubernetes API there?", since.as_secs());
            return plain(StatusCode::SERVICE_UNAVAILABLE, &why);
        }
        match self.engine.look(|state| state.brain.is_synced()).await {
            Some(true) => plain(StatusCode::OK, "ok"),
            _ => plain(StatusCode::SERVICE_UNAVAILABLE, "waiting to be told all Pods, Namespaces and NetworkPolicies"),
        }
    }

    async fn metrics(&self) -> Answer {
        use std::sync::atomic::Ordering::Relaxed;
        let held = self.engine.look(|state| (state.brain.held(), state.reports.listeners().len())).await;
        let (held, agents) = held.unwrap_or_default();
        let counters = &self.engine.counters;
        let mut page = Page::default();
        let mut gauge = |name: &str, about: &str, value: usize| page.number(Kind::Gauge, (name, about), value);
        gauge("antrea_controller_network_policy_count", "NetworkPolicies that are known.", held.policies);
        gauge("antrea_controller_applied_to_group_count", "AppliedToGroups that are in use.", held.applied_to_groups);
        gauge("antrea_controller_address_group_count", "AddressGroups that are in use.", held.address_groups);
        gauge("antrea_controller_connected_agent_count", "Agents that are told by this replica.", agents);
        // Nothing waits in queues of their own: what an object means is computed when it comes.
        for name in ["address_group", "applied_to_group", "network_policy"] {
            gauge(&format!("antrea_controller_length_{name}_queue"), "Always 0: there is no such queue.", 0);
        }
        let mut counter = |name: &str, about: &str, value: u64| page.number(Kind::Counter, (name, about), value);
        let (policies, pods) = (counters.policies.load(Relaxed), counters.pods.load(Relaxed));
        counter("antrea_controller_network_policy_processed", "Changes of NetworkPolicies.", policies);
        counter("antrea_controller_address_group_processed", "Changes of Pods and Namespaces.", pods);
        counter("antrea_controller_applied_to_group_processed", "Changes of Pods and Namespaces.", pods);
        counter("antrea_controller_batches_sent_count", "Batches to agents.", counters.batches.load(Relaxed));
        counter("antrea_controller_agents_refused_count", "Agents that were refused.", counters.refused.load(Relaxed));
        let milliseconds = "How long it took, in milliseconds.";
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
