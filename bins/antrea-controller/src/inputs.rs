//! Events and leadership, as the source of a reconciler that folds them into its own state.

use k8s::{Watch, WatchEvent, Watched};
use reconcile::{Ended, Source};
use tokio::sync::{mpsc, watch};

/// A stream of events.
pub(crate) trait Events: Send {
    type Event: Send;

    /// The next event; `None` if there will be no other. No event is lost if the future is dropped.
    fn next(&mut self) -> impl Future<Output = Option<Self::Event>> + Send;
}

impl<T: Watched> Events for Watch<T> {
    type Event = WatchEvent<T>;

    async fn next(&mut self) -> Option<WatchEvent<T>> {
        Some(Watch::next(self).await)
    }
}

impl<T: Send> Events for mpsc::Receiver<T> {
    type Event = T;

    async fn next(&mut self) -> Option<T> {
        self.recv().await
    }
}

/// The events since the last pass, and whether this replica leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Input<E> {
    pub(crate) events: Vec<E>,
    pub(crate) leads: bool,
}

/// Each event and each change of the leader is a new version.
#[derive(Debug)]
pub(crate) struct Inputs<S: Events> {
    events: S,
    leads: watch::Receiver<bool>,
    queue: Vec<S::Event>,
    version: u64,
}

impl<S: Events> Inputs<S> {
    pub(crate) fn new(events: S, leads: watch::Receiver<bool>) -> Self {
        Self { events, leads, queue: Vec::new(), version: 0 }
    }
}

impl<S: Events> Source for Inputs<S> {
    type Desired = Input<S::Event>;

    async fn changed(&mut self) -> Result<(), Ended> {
        tokio::select! {
            event = self.events.next() => self.queue.push(event.ok_or(Ended)?),
            changed = self.leads.changed() => changed.map_err(|_| Ended)?,
        }
        self.version += 1;
        Ok(())
    }

    async fn read(&mut self) -> Result<(u64, Input<S::Event>), Ended> {
        let leads = self.leads.borrow_and_update();
        self.version += u64::from(leads.has_changed());
        Ok((self.version, Input { events: std::mem::take(&mut self.queue), leads: *leads }))
    }
}
