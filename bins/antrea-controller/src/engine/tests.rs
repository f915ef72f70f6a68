//! Readers while the brain is busy.

use std::time::Duration;

use testkit::wait::{TIMEOUT, until};

use super::*;

/// Keeps the brain busy until it is dropped.
pub(crate) struct Block(Option<std::sync::mpsc::Sender<()>>);

impl Block {
    /// Blocks the brain with a query, and waits until it runs.
    pub(crate) fn start(engine: &Engine) -> Self {
        let (release, released) = std::sync::mpsc::channel();
        let blocked = engine.clone();
        tokio::spawn(async move { blocked.query(move |_| released.recv().is_err()).await });
        let is_busy = || engine.overview().unwrap().activity.filter(|activity| activity.what == "a query").map(drop);
        until("the brain is busy", TIMEOUT, is_busy).unwrap();
        Self(Some(release))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

pub(crate) async fn synced() -> Engine {
    let (warnings, _) = mpsc::channel(1);
    let engine = Engine::start(warnings);
    for kind in [policy::Kind::Pod, policy::Kind::Namespace, policy::Kind::Policy] {
        engine.send(Event::Synced(kind)).await;
    }
    let is_synced = || engine.overview().unwrap().is_synced.then_some(());
    until("the initial sync", TIMEOUT, is_synced).unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_a_busy_brain_ends_with_an_error_that_says_what_is_busy() {
    let engine = synced().await;
    let block = Block::start(&engine);
    let error = engine.read_within(Duration::from_millis(10), |_| ()).await.unwrap_err();
    assert!(matches!(error, ReadError::Busy { what: "a query", .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("the policy engine is busy with a query, for "), "{text}");
    drop(block);
    assert_eq!(engine.read(|state| state.brain().is_synced()).await, Ok(true));
}
