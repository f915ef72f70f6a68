//! Every object of a kind, now and from now on.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tracing::{info, warn};
use types::ObjectName;

use crate::client::Client;
use crate::kinds::Watched;
use crate::wire::Wire;

/// Which objects of a kind are meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Only {
    /// A namespace; all if empty.
    pub namespace: String,
    /// A label selector; all if empty.
    pub labels: String,
    /// A field selector; all if empty.
    pub fields: String,
}

/// What a watch has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice<T> {
    /// The object is there, and like this.
    Set(T),
    /// The object is gone.
    Gone(ObjectName),
    /// Everything that is there has been said.
    Synced,
}

type Events<T> = Pin<Box<dyn Stream<Item = watcher::Result<Event<Wire<T>>>> + Send>>;

/// A watch of a kind.
pub struct Watch<T: Watched> {
    events: Events<T>,
    known: BTreeSet<ObjectName>,
    /// What a list has named so far.
    listed: BTreeSet<ObjectName>,
    /// What is gone and has not been said.
    gone: Vec<ObjectName>,
    synced_next: bool,
    failing: bool,
}

impl Client {
    /// Watches a kind.
    pub fn watch<T: Watched>(&self, only: &Only) -> Watch<T> {
        let mut config = watcher::Config::default();
        if !only.labels.is_empty() {
            config = config.labels(&only.labels);
        }
        if !only.fields.is_empty() {
            config = config.fields(&only.fields);
        }
        let api: Api<Wire<T>> = self.api(&only.namespace);
        Watch {
            events: watcher(api, config).default_backoff().boxed(),
            known: BTreeSet::new(),
            listed: BTreeSet::new(),
            gone: Vec::new(),
            synced_next: false,
            failing: false,
        }
    }
}

impl<T: Watched> Watch<T> {
    /// The next notice; waits for it as long as it takes.
    pub async fn next(&mut self) -> Notice<T> {
        loop {
            if let Some(gone) = self.gone.pop() {
                return Notice::Gone(gone);
            }
            if std::mem::take(&mut self.synced_next) {
                return Notice::Synced;
            }
            match self.events.next().await {
                Some(Ok(event)) => {
                    // The beginning of a list is no answer yet.
                    if !matches!(event, Event::Init) && std::mem::take(&mut self.failing) {
                        info!(resource = T::PLURAL, "the Kubernetes API answers again");
                    }
                    if let Some(notice) = self.event(event) {
                        return notice;
                    }
                }
                Some(Err(error)) => {
                    // Once a failure, not once an attempt: it goes on for ever, with a back-off.
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(resource = T::PLURAL, %error, "cannot watch; trying again until the Kubernetes API answers");
                    }
                }
                // A watcher does not end.
                None => std::future::pending().await,
            }
        }
    }

    fn event(&mut self, event: Event<Wire<T>>) -> Option<Notice<T>> {
        match event {
            Event::Init => {
                self.listed.clear();
                None
            }
            Event::InitApply(wire) => {
                self.listed.insert(wire.object.object_name());
                Some(Notice::Set(wire.object))
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.gone.extend(self.known.difference(&listed).cloned());
                self.known = listed;
                self.synced_next = true;
                None
            }
            Event::Apply(wire) => {
                self.known.insert(wire.object.object_name());
                Some(Notice::Set(wire.object))
            }
            Event::Delete(wire) => {
                let name = wire.object.object_name();
                self.known.remove(&name);
                Some(Notice::Gone(name))
            }
        }
    }
}
