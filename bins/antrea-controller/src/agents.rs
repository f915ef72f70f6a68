//! The agents' side of the controller: accepts their streams, and takes in their reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::control::server::{Controller, Refusal};
use tracing::info;
use types::control::Report;

use crate::authenticator::{AdmissionError, Authenticator};
use crate::engine::{Engine, Feed};

pub(crate) struct Agents {
    authenticator: Arc<Authenticator>,
    engine: Engine,
}

impl Agents {
    pub(crate) fn new(authenticator: Arc<Authenticator>, engine: Engine) -> Self {
        Self { authenticator, engine }
    }

    async fn authenticate(&self, token: &str, node: &str) -> Result<(), AdmissionError> {
        let bound = self.authenticator.node(token).await?;
        if bound == node {
            return Ok(());
        }
        Err(AdmissionError::OtherNode { bound, node: node.to_owned() })
    }
}

impl Controller for Agents {
    type Feed = Feed;

    async fn admit(&self, token: &str, node: &str) -> Result<Feed, Refusal> {
        if let Err(error) = self.authenticate(token, node).await {
            self.engine.counters.refused.fetch_add(1, Ordering::Relaxed);
            info!(node, "refused agent: {error}");
            return Err(error.into());
        }
        info!(node, "agent connected");
        self.engine.subscribe(node).await.ok_or(AdmissionError::Stopping).map_err(Refusal::from)
    }

    async fn report(&self, node: &str, reports: Vec<Report>) {
        self.engine.report(node, reports).await;
    }
}
