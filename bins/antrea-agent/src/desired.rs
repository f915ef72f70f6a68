//! Parts of the brain's desired state, as sources of reconcilers.

use node::Brain;
use reconcile::{Ended, Source};
use tokio::sync::watch;

use crate::engine::{Engine, Progress};

/// Reads the version and the part together.
type Query<D> = Box<dyn Fn(&Brain) -> (u64, D) + Send + Sync>;

/// A part of the desired state whose version the engine publishes.
pub(crate) struct DesiredPart<D> {
    engine: Engine,
    progress: watch::Receiver<Progress>,
    /// The version; `None` until the part is known.
    version: fn(&Progress) -> Option<u64>,
    /// The version and the part, read together: both may be newer than those that were published.
    query: Query<D>,
    read: Option<u64>,
}

impl<D> DesiredPart<D> {
    pub(crate) fn new(
        engine: Engine,
        version: fn(&Progress) -> Option<u64>,
        query: impl Fn(&Brain) -> (u64, D) + Send + Sync + 'static,
    ) -> Self {
        let progress = engine.progress();
        Self { engine, progress, version, query: Box::new(query), read: None }
    }
}

impl<D: Send + 'static> Source for DesiredPart<D> {
    type Desired = D;

    async fn changed(&mut self) -> Result<(), Ended> {
        let is_new = |progress: &Progress| (self.version)(progress) > self.read;
        self.progress.wait_for(is_new).await.map(drop).map_err(|_| Ended)
    }

    async fn read(&mut self) -> Result<(u64, D), Ended> {
        let (version, part) = self.engine.read(&self.query).await;
        self.read = Some(version);
        Ok((version, part))
    }
}
