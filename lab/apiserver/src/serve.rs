//! HTTP: maps requests to calls of the core, and their results to responses.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::auth::{Access, Rbac, User};
use crate::core::Core;
use crate::failure::{Failure, Of};

mod answer;
pub(crate) mod availability;
mod body;
mod discovery;
mod kubelets;
mod openapi;
mod proxy;
mod query;
mod read;
mod reading;
mod target;
mod watching;
mod writing;
pub(crate) use body::{Body, Never};
pub use kubelets::Dialer;
pub(crate) use kubelets::Kubelets;
pub(crate) use proxy::Backends;
use query::Query;
use target::Target;

/// Maximum size of a request body in bytes.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// State that all requests share.
pub(crate) struct State {
    pub(crate) core: Arc<Core>,
    pub(crate) rbac: Rbac,
    pub(crate) backends: Backends,
    pub(crate) kubelets: Kubelets,
    pub(crate) bookmark_every: std::time::Duration,
    /// Becomes true when the server stops.
    pub(crate) ending: watch::Receiver<bool>,
}

/// A request with its parsed path and authenticated user.
pub(crate) struct Asked {
    pub(crate) user: User,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) target: Target,
    pub(crate) verb: &'static str,
}

impl Asked {
    fn header(&self, name: impl http::header::AsHeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The media type of the body, without parameters.
    fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim()
    }

    /// The field manager of the request.
    fn manager(&self) -> String {
        match self.query.get("fieldManager") {
            "" => self.header(USER_AGENT).split('/').next().unwrap_or_default().chars().take(128).collect(),
            manager => manager.to_owned(),
        }
    }
}

/// Answers a request; every error is a `Status`.
pub(crate) async fn serve(state: Arc<State>, certified: Option<User>, request: Request<Incoming>) -> Response<Body> {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let response = match handle(&state, certified, request).await {
        Ok(response) => response,
        Err(failure) => answer::failure(&failure),
    };
    answer::in_media(&accept, response)
}

async fn handle(
    state: &Arc<State>,
    certified: Option<User>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let user = authenticate(state, certified, request.headers())?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let path = request.uri().path().to_owned();
    let target = Target::parse(&path);
    let verb = target.verb(request.method(), &query);
    let (parts, body) = request.into_parts();
    let mut asked =
        Asked { user, method: parts.method.clone(), path, query, headers: parts.headers.clone(), target, verb };
    asked.user = impersonate(state, &asked)?;
    authorize(state, &asked)?;
    let elsewhere = match (asked.path.strip_prefix("/apis/").and_then(|rest| rest.split_once('/')), &asked.target) {
        (Some((group, version)), Target::Path) => {
            state.backends.serving(&state.core, group, version.trim_end_matches('/'))
        }
        _ => state.backends.of(&state.core, &asked.target),
    };
    if let Some(backend) = elsewhere {
        return proxy::forward(backend, &asked, http::Request::from_parts(parts, body)).await;
    }
    if let Some(place) = kubelets::target(&asked) {
        return kubelets::forward(state, &asked, place, http::Request::from_parts(parts, body)).await;
    }
    let body = read(body).await?;
    match &asked.target {
        Target::Resource(place) if !state.core.registry().has_group(&place.group) => Ok(answer::page_not_found()),
        Target::Path => discovery::path(state, &asked).await,
        Target::Resource(_) if asked.method == Method::GET => read::get(state, &asked),
        Target::Resource(_) => writing::write(state, &asked, &body),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Failure> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("Request entity too large: limit is {MAX_BODY}");
            Err(Failure::new(413, "RequestEntityTooLarge", why))
        }
        Err(error) => Err(Failure::bad_request(format!("the body could not be read: {error}"))),
    }
}

fn authenticate(state: &State, certified: Option<User>, headers: &HeaderMap) -> Result<User, Failure> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    match (certified, bearer) {
        (Some(user), _) => Ok(user),
        (None, Some(token)) => {
            state.core.authenticate_token(token.trim(), &[]).map(|(user, _)| user).map_err(|_| Failure::unauthorized())
        }
        (None, None) => Ok(User::anonymous()),
    }
}

/// The user after impersonation, if the request asks for it and RBAC allows it.
fn impersonate(state: &State, asked: &Asked) -> Result<User, Failure> {
    let (user, other) = (&asked.user, asked.header("impersonate-user"));
    if other.is_empty() {
        return Ok(user.clone());
    }
    let groups = asked.headers.get_all("impersonate-group");
    let groups: Vec<_> = groups.iter().filter_map(|value| value.to_str().ok()).collect();
    let may = |resource: &str, name: &str| {
        let access =
            Access { verb: "impersonate".into(), resource: resource.into(), name: name.into(), ..Access::default() };
        state.rbac.allows(&state.core, user, &access).is_some()
    };
    if !may("users", other) || !groups.iter().all(|group| may("groups", group)) {
        let access = access(asked);
        return Err(forbidden(user, &Access { verb: format!("impersonate-on:user-info:{}", access.verb), ..access }));
    }
    let mut becomes = User::named(other, &groups);
    if let Some((namespace, _)) = other.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        becomes.groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    Ok(becomes)
}

/// The attributes of a request for RBAC.
fn access(asked: &Asked) -> Access {
    match &asked.target {
        Target::Path => {
            Access { verb: asked.method.as_str().to_lowercase(), path: asked.path.clone(), ..Access::default() }
        }
        Target::Resource(place) => Access {
            verb: asked.verb.to_owned(),
            group: place.group.clone(),
            resource: place.resource.clone(),
            subresource: place.subresource.clone(),
            namespace: place.namespace.clone(),
            name: if place.name.is_empty() { only_name(asked).unwrap_or_default() } else { place.name.clone() },
            path: String::new(),
        },
    }
}

/// The name that the field selector of a list or a watch requires: a role may allow only that object.
fn only_name(asked: &Asked) -> Option<String> {
    let fields = asked.query.get("fieldSelector");
    let name = fields.split(',').find_map(|field| field.strip_prefix("metadata.name="));
    name.map(|name| name.trim_start_matches('=').to_owned())
}

fn authorize(state: &State, asked: &Asked) -> Result<(), Failure> {
    authorize_as(state, asked, asked.verb)
}

/// Whether the user may do this with another verb.
fn authorize_as(state: &State, asked: &Asked, verb: &str) -> Result<(), Failure> {
    let access = match &asked.target {
        Target::Path => access(asked),
        Target::Resource(_) => Access { verb: verb.to_owned(), ..access(asked) },
    };
    match state.rbac.allows(&state.core, &asked.user, &access) {
        Some(_) => Ok(()),
        None => Err(forbidden(&asked.user, &access)),
    }
}

fn forbidden(user: &User, access: &Access) -> Failure {
    let (name, verb) = (&user.name, &access.verb);
    if !access.path.is_empty() {
        let why = format!("User \"{name}\" cannot {verb} path \"{}\"", access.path);
        return Failure::forbidden(Of { group: "", resource: "" }, "", &why);
    }
    let resource = match access.subresource.as_str() {
        "" => access.resource.clone(),
        subresource => format!("{}/{subresource}", access.resource),
    };
    let scope = match access.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why =
        format!("User \"{name}\" cannot {verb} resource \"{resource}\" in API group \"{}\" {scope}", access.group);
    Failure::forbidden(Of { group: &access.group, resource: &access.resource }, &access.name, &why)
}
