//! Authenticates and authorizes clients with the API server: TokenReview and SubjectAccessReview. Results are cached for some
//! seconds, so that a thousand agents that reconnect at once cause one review each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::control::server::Refusal;
use k8s::{Access, Client, RequestError, User};
use tokio::time::Instant;
use types::ObjectName;
use types::pod::Pod;

const CACHE_TTL: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 8192;

const NODE: &str = "authentication.kubernetes.io/node-name";
const POD: &str = "authentication.kubernetes.io/pod-name";
const ACCOUNT: &str = "system:serviceaccount:";

/// The digest of a token: tokens themselves are not stored.
type Digest = [u8; 32];

/// Why an agent is not admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the token is invalid or has expired")]
    InvalidToken,
    #[error("the token of {user} names no Node; use a token that is bound to the agent's Pod or Node")]
    NoNode { user: String },
    #[error("{user} cannot watch networkpolicies.controlplane.antrea.io; bind it to ClusterRole antrea-agent")]
    NotAllowed { user: String },
    #[error("the token is bound to Node {bound}, not to Node {node}")]
    OtherNode { bound: String, node: String },
    #[error("cannot review the token with the Kubernetes API: {0}")]
    Review(#[source] Arc<RequestError>),
    #[error("the controller is stopping")]
    Stopping,
}

impl AdmissionError {
    /// Whether the same token may be admitted on a retry: then the result is not cached, and the agent is asked to retry.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::InvalidToken | Self::NoNode { .. } | Self::NotAllowed { .. } | Self::OtherNode { .. } => false,
            // Even if the API server rejects the review: then the controller lacks a permission, not the agent.
            Self::Review(_) | Self::Stopping => true,
        }
    }
}

impl From<RequestError> for AdmissionError {
    fn from(error: RequestError) -> Self {
        Self::Review(Arc::new(error))
    }
}

impl From<AdmissionError> for Refusal {
    fn from(error: AdmissionError) -> Self {
        let text = error.to_string();
        match error {
            AdmissionError::InvalidToken | AdmissionError::NoNode { .. } => Self::Token(text),
            AdmissionError::NotAllowed { .. } | AdmissionError::OtherNode { .. } => Self::Forbidden(text),
            AdmissionError::Review(_) | AdmissionError::Stopping => Self::Unavailable(text),
        }
    }
}

/// Maps tokens to users and to Nodes.
#[derive(Clone)]
pub(crate) struct Authenticator {
    client: Client,
    /// With the time until which an entry is valid.
    cache: Arc<Mutex<HashMap<Digest, (Instant, Cached)>>>,
}

/// The result of a review.
#[derive(Clone)]
struct Cached {
    user: Option<User>,
    /// The Node that the token is bound to, if this was checked.
    node: Option<Result<String, AdmissionError>>,
}

impl Authenticator {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, cache: Arc::default() }
    }

    /// The user of a token; `None` if the token is invalid.
    pub(crate) async fn user(&self, token: &str) -> Result<Option<User>, RequestError> {
        if token.is_empty() {
            return Ok(None);
        }
        let digest = digest(token);
        if let Some(cached) = self.cached(&digest) {
            return Ok(cached.user);
        }
        let user = self.client.review_token(token).await?;
        self.cache(digest, Cached { user: user.clone(), node: None });
        Ok(user)
    }

    /// Whether a user is allowed to do something.
    pub(crate) async fn allows(&self, user: &User, access: &Access) -> Result<bool, RequestError> {
        self.client.allows(user, access).await
    }

    /// The Node that a token is bound to, if it is allowed to watch policies.
    pub(crate) async fn node(&self, token: &str) -> Result<String, AdmissionError> {
        let digest = digest(token);
        if let Some(Cached { node: Some(node), .. }) = self.cached(&digest) {
            return node;
        }
        let user = self.user(token).await?;
        let node = match &user {
            None => Err(AdmissionError::InvalidToken),
            Some(user) => self.node_of(user).await,
        };
        if !node.as_ref().is_err_and(AdmissionError::is_transient) {
            self.cache(digest, Cached { user, node: Some(node.clone()) });
        }
        node
    }

    async fn node_of(&self, user: &User) -> Result<String, AdmissionError> {
        let watch = Access::Objects {
            verb: "watch".to_owned(),
            group: "controlplane.antrea.io".to_owned(),
            resource: "networkpolicies".to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        if !self.allows(user, &watch).await? {
            return Err(AdmissionError::NotAllowed { user: user.name.clone() });
        }
        let one = |key: &str| user.extra.get(key).and_then(|values| values.first()).cloned();
        if let Some(node) = one(NODE) {
            return Ok(node);
        }
        // Older API servers name the Pod only.
        let namespace = user.name.strip_prefix(ACCOUNT).and_then(|name| name.split(':').next());
        if let (Some(pod), Some(namespace)) = (one(POD), namespace) {
            let pod = ObjectName { namespace: namespace.to_owned(), name: pod };
            let pod = self.client.get::<Pod>(&pod).await?;
            if let Some(node) = pod.map(|pod| pod.spec.node_name).filter(|node| !node.is_empty()) {
                return Ok(node);
            }
        }
        Err(AdmissionError::NoNode { user: user.name.clone() })
    }

    fn cached(&self, digest: &Digest) -> Option<Cached> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(digest).filter(|(until, _)| Instant::now() < *until).map(|(_, cached)| cached.clone())
    }

    fn cache(&self, digest: Digest, result: Cached) {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, (until, _)| now < *until);
        }
        if cache.len() < MAX_CACHED {
            cache.insert(digest, (now + CACHE_TTL, result));
        }
    }
}

fn digest(token: &str) -> Digest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest.as_ref());
    bytes
}
