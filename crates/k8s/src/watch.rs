//! Watches: all objects of a kind, and their changes.

use std::collections::BTreeSet;
use std::error::Error;
use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tower::service_fn;
use tracing::{info, warn};
use types::ObjectName;

use crate::client::{self, Client};
use crate::kinds::Watched;
use crate::wire::Wire;

/// The objects to watch; everything if all fields are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchFilter {
    /// The namespace to watch.
    pub namespace: String,
    /// A label selector, such as `app=web`.
    pub labels: String,
    /// A field selector, such as `metadata.name=web`.
    pub fields: String,
}

/// An event of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEvent<T> {
    /// The object was added or changed, or is part of a list.
    Applied(T),
    /// The object was deleted.
    Deleted(ObjectName),
    /// The list is complete.
    Synced,
}

/// A watch starts over after this many missed renewals.
const MAX_MISSED_RENEWALS: u32 = 2;

type Events<T> = Pin<Box<dyn Stream<Item = watcher::Result<Event<Wire<T>>>> + Send>>;

/// A watch of a kind.
pub struct Watch<T: Watched> {
    events: Events<T>,
    client: Client,
    filter: WatchFilter,
    last_answer: watch::Sender<Instant>,
    /// The last event or failure.
    last_activity: Instant,
    known: BTreeSet<ObjectName>,
    /// The objects of the list that is being received.
    listed: BTreeSet<ObjectName>,
    /// Objects missing in the last list, still to be returned.
    deleted: Vec<ObjectName>,
    synced_next: bool,
    failing: bool,
}

impl Client {
    /// Starts a watch of a kind.
    pub fn watch<T: Watched>(&self, filter: &WatchFilter) -> Watch<T> {
        let now = Instant::now();
        let (last_answer, _) = watch::channel(now);
        Watch {
            events: self.events(filter, &last_answer),
            client: self.clone(),
            filter: filter.clone(),
            last_answer,
            last_activity: now,
            known: BTreeSet::new(),
            listed: BTreeSet::new(),
            deleted: Vec::new(),
            synced_next: false,
            failing: false,
        }
    }

    fn events<T: Watched>(&self, filter: &WatchFilter, last_answer: &watch::Sender<Instant>) -> Events<T> {
        let mut config = watcher::Config::default();
        // The server ends the watch then; the watcher waits a few seconds longer.
        config = config.timeout(u32::try_from(self.timeouts.renew.as_secs()).unwrap_or(u32::MAX).max(1));
        if !filter.labels.is_empty() {
            config = config.labels(&filter.labels);
        }
        if !filter.fields.is_empty() {
            config = config.fields(&filter.fields);
        }
        let api: Api<Wire<T>> = client::api(self.recording(last_answer.clone()), &filter.namespace);
        watcher(api, config).default_backoff().boxed()
    }

    /// The same client, which records the time of each answer: a watcher does not report renewals.
    fn recording(&self, last_answer: watch::Sender<Instant>) -> kube::Client {
        let client = self.clone();
        let namespace = self.kube.default_namespace().to_owned();
        let service = service_fn(move |request| {
            let (client, last_answer) = (client.clone(), last_answer.clone());
            async move {
                let answer = client.in_time(client.kube.send(request)).await?;
                if answer.status().is_success() {
                    last_answer.send_replace(Instant::now());
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        kube::Client::new(service, namespace)
    }
}

/// An error with those causes that its text does not have: kube stops at "client error (Connect)".
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        if !text.contains(&cause.to_string()) {
            text = format!("{text}: {cause}");
        }
        next = cause.source();
    }
    text
}

impl<T: Watched> Watch<T> {
    /// The time of the last answer. A working watch is renewed every 30 s even if no object changes; see [`Timeouts`](crate::Timeouts).
    pub fn last_answer(&self) -> watch::Receiver<Instant> {
        self.last_answer.subscribe()
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> WatchEvent<T> {
        loop {
            if let Some(name) = self.deleted.pop() {
                return WatchEvent::Deleted(name);
            }
            if std::mem::take(&mut self.synced_next) {
                return WatchEvent::Synced;
            }
            let last_activity = self.last_activity.max(*self.last_answer.borrow());
            let Ok(event) =
                timeout_at(last_activity + self.client.timeouts.renew * MAX_MISSED_RENEWALS, self.events.next()).await
            else {
                warn!(resource = T::PLURAL, "watch timed out; restarting it");
                self.events = self.client.events(&self.filter, &self.last_answer);
                (self.last_activity, self.failing) = (Instant::now(), true);
                continue;
            };
            self.last_activity = Instant::now();
            match event {
                Some(Ok(event)) => {
                    // The start of a list is not an answer yet.
                    if !matches!(event, Event::Init) {
                        self.last_answer.send_replace(self.last_activity);
                        if std::mem::take(&mut self.failing) {
                            info!(resource = T::PLURAL, "watch works again");
                        }
                    }
                    if let Some(event) = self.event(event) {
                        return event;
                    }
                }
                Some(Err(error)) => {
                    // Logged once per outage, not once per attempt.
                    if !std::mem::replace(&mut self.failing, true) {
                        let error = causes(&error);
                        warn!(resource = T::PLURAL, error, "watch failed; retrying until the Kubernetes API answers");
                    }
                }
                // A watcher does not end.
                None => std::future::pending().await,
            }
        }
    }

    fn event(&mut self, event: Event<Wire<T>>) -> Option<WatchEvent<T>> {
        match event {
            Event::Init => {
                self.listed.clear();
                None
            }
            Event::InitApply(wire) => {
                self.listed.insert(wire.object.object_name());
                Some(WatchEvent::Applied(wire.object))
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.deleted.extend(self.known.difference(&listed).cloned());
                self.known = listed;
                self.synced_next = true;
                None
            }
            Event::Apply(wire) => {
                self.known.insert(wire.object.object_name());
                Some(WatchEvent::Applied(wire.object))
            }
            Event::Delete(wire) => {
                let name = wire.object.object_name();
                self.known.remove(&name);
                Some(WatchEvent::Deleted(name))
            }
        }
    }
}
