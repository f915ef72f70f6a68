//! Who is let in. The API server says whose a token is, and what its owner may do; both are remembered for some seconds, so that
//! a thousand agents that come back at once ask it once each.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::control::server::{Controller, Refusal};
use k8s::{Access, Client, User};
use tokio::time::Instant;
use tracing::info;
use types::ObjectName;
use types::control::Report;
use types::pod::Pod;

use crate::engine::{Engine, Feed};

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// How many answers are kept.
const MOST_KEPT: usize = 8192;

const NODE: &str = "authentication.kubernetes.io/node-name";
const POD: &str = "authentication.kubernetes.io/pod-name";
const ACCOUNT: &str = "system:serviceaccount:";

/// A token, as a digest: nobody has to keep tokens.
type Digest = [u8; 32];

/// Decides who is let in.
#[derive(Clone)]
pub(crate) struct Door {
    client: Client,
    engine: Engine,
    known: Arc<Mutex<HashMap<Digest, (Instant, Known)>>>,
}

/// What is known of a token.
#[derive(Clone)]
struct Known {
    user: Option<User>,
    /// The Node that the token is bound to, once somebody has asked, if it may follow policies.
    node: Option<Result<String, Refusal>>,
}

impl Door {
    pub(crate) fn new(client: Client, engine: Engine) -> Self {
        Self { client, engine, known: Arc::default() }
    }

    /// Whose token it is; nobody's if it is not good.
    pub(crate) async fn user(&self, token: &str) -> Result<Option<User>, k8s::RequestError> {
        if token.is_empty() {
            return Ok(None);
        }
        let digest = digest(token);
        if let Some(known) = self.recall(&digest) {
            return Ok(known.user);
        }
        let user = self.client.review_token(token).await?;
        self.remember(digest, Known { user: user.clone(), node: None });
        Ok(user)
    }

    /// Whether somebody may do something.
    pub(crate) async fn allows(&self, user: &User, access: &Access) -> Result<bool, k8s::RequestError> {
        self.client.allows(user, access).await
    }

    /// The Node whose agent has a token.
    async fn node(&self, token: &str) -> Result<String, Refusal> {
        let digest = digest(token);
        if let Some(Known { node: Some(node), .. }) = self.recall(&digest) {
            return node;
        }
        let user = self.user(token).await.map_err(unavailable)?;
        let node = match &user {
            None => Err(Refusal::Token("the token is nobody's, or has ended".to_owned())),
            Some(user) => self.node_of(user).await,
        };
        if !matches!(node, Err(Refusal::Unavailable(_))) {
            self.remember(digest, Known { user, node: Some(node.clone()) });
        }
        node
    }

    async fn node_of(&self, user: &User) -> Result<String, Refusal> {
        let watch = Access::Objects {
            verb: "watch".to_owned(),
            group: "controlplane.antrea.io".to_owned(),
            resource: "networkpolicies".to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        if !self.allows(user, &watch).await.map_err(unavailable)? {
            let why = format!(
                "{} may not watch networkpolicies of controlplane.antrea.io; its role has to say so",
                user.name
            );
            return Err(Refusal::Forbidden(why));
        }
        let one = |key: &str| user.extra.get(key).and_then(|values| values.first()).cloned();
        if let Some(node) = one(NODE) {
            return Ok(node);
        }
        // Older API servers name the Pod only.
        let namespace = user.name.strip_prefix(ACCOUNT).and_then(|name| name.split(':').next());
        if let (Some(pod), Some(namespace)) = (one(POD), namespace) {
            let pod = ObjectName { namespace: namespace.to_owned(), name: pod };
            let pod = self.client.get::<Pod>(&pod).await.map_err(unavailable)?;
            if let Some(node) = pod.map(|pod| pod.spec.node_name).filter(|node| !node.is_empty()) {
                return Ok(node);
            }
        }
        let why = format!(
            "the token of {} says nothing of a Node; it has to be bound to the agent's Pod or to its Node",
            user.name
        );
        Err(Refusal::Token(why))
    }

    fn recall(&self, digest: &Digest) -> Option<Known> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).filter(|(until, _)| Instant::now() < *until).map(|(_, known)| known.clone())
    }

    fn remember(&self, digest: Digest, what: Known) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KEPT {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < MOST_KEPT {
            known.insert(digest, (now + BELIEVED, what));
        }
    }
}

impl Controller for Door {
    type Feed = Feed;

    async fn admit(&self, token: &str, node: &str) -> Result<Feed, Refusal> {
        let admitted = match self.node(token).await {
            Ok(own) if own == node => Ok(()),
            Ok(own) => {
                Err(Refusal::Forbidden(format!("the token is of Node {own}, and the agent says it is of {node}")))
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = &admitted {
            self.engine.counters.refused.fetch_add(1, Ordering::Relaxed);
            info!(node, "an agent is refused: {refusal}");
        }
        admitted?;
        info!(node, "an agent listens");
        self.engine.subscribe(node).await.ok_or_else(|| Refusal::Unavailable("the controller is stopping".to_owned()))
    }

    async fn report(&self, node: &str, reports: Vec<Report>) {
        self.engine.report(node, reports).await;
    }
}

fn unavailable(error: k8s::RequestError) -> Refusal {
    Refusal::Unavailable(format!("the Kubernetes API cannot be asked about the token: {error}"))
}

fn digest(token: &str) -> Digest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest.as_ref());
    bytes
}
