//! What is answered at the port beside the agents' streams: health, metrics, and the API group `controlplane.antrea.io`.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use k8s::Access;
use telemetry::metrics::{Kind, Page};
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::door::Door;
use crate::engine::Engine;

/// Answers requests.
pub(crate) struct Rest {
    pub(crate) engine: Engine,
    pub(crate) door: Arc<Door>,
    pub(crate) metrics: bool,
}

type Answer = Response<Full<Bytes>>;

impl api::control::server::Rest for Rest {
    async fn answer(&self, request: Request<Incoming>, _shown: &[CertificateDer<'static>]) -> Answer {
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood here");
        }
        match request.uri().path() {
            "/healthz" | "/livez" => self.health().await,
            "/readyz" => self.readiness().await,
            "/metrics" if self.metrics => match self.may(&request, Access::Path("/metrics".to_owned())).await {
                Ok(()) => self.metrics().await,
                Err(answer) => answer,
            },
            _ => plain(StatusCode::NOT_FOUND, "there is nothing here"),
        }
    }
}

impl Rest {
    /// Whether whoever asks may have it; if not, what they are told.
    async fn may(&self, request: &Request<Incoming>, access: Access) -> Result<(), Answer> {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer "));
        let needed =
            || plain(StatusCode::UNAUTHORIZED, "needs the header `Authorization: Bearer TOKEN`, with a good token");
        let cannot = |error: k8s::RequestError| plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        let user = self.door.user(token.ok_or_else(needed)?).await.map_err(cannot)?.ok_or_else(needed)?;
        if self.door.allows(&user, &access).await.map_err(cannot)? {
            return Ok(());
        }
        Err(plain(StatusCode::FORBIDDEN, &format!("{} may not do this; a role has to allow {access:?}", user.name)))
    }

    async fn health(&self) -> Answer {
        match self.engine.look(|_| ()).await {
            // An engine that answers is alive.
            Some(()) => plain(StatusCode::OK, "ok"),
            None => plain(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended"),
        }
    }

    async fn readiness(&self) -> Answer {
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
