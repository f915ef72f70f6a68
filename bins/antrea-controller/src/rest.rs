//! HTTP requests other than agents' streams: health, metrics, and the API group `controlplane.antrea.io`.

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use k8s::Access;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;

mod caller;
mod controlplane;
mod objects;
mod probes;

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
            "/healthz" | "/livez" => probes::health(&self.engine),
            "/readyz" => probes::readiness(&self.engine, &self.sources),
            "/metrics" if self.metrics => {
                match self.authorize(&request, certificates, &Access::Path(path.to_owned())).await {
                    Ok(()) => probes::metrics(&self.engine),
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
