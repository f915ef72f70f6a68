//! Every object of a kind, now and from now on.

use std::collections::BTreeSet;
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

/// How many renewals may be missed before a watch begins from scratch, whatever it waits for.
const MISSED: u32 = 2;

type Events<T> = Pin<Box<dyn Stream<Item = watcher::Result<Event<Wire<T>>>> + Send>>;

/// A watch of a kind.
pub struct Watch<T: Watched> {
    events: Events<T>,
    client: Client,
    only: Only,
    heard: watch::Sender<Instant>,
    /// When it last told anything, be it a failure.
    stirred: Instant,
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
        let now = Instant::now();
        let (heard, _) = watch::channel(now);
        Watch {
            events: self.events(only, &heard),
            client: self.clone(),
            only: only.clone(),
            heard,
            stirred: now,
            known: BTreeSet::new(),
            listed: BTreeSet::new(),
            gone: Vec::new(),
            synced_next: false,
            failing: false,
        }
    }

    fn events<T: Watched>(&self, only: &Only, heard: &watch::Sender<Instant>) -> Events<T> {
        let mut config = watcher::Config::default();
        // The server ends the watch then, and the watcher gives it a few seconds more.
        config = config.timeout(u32::try_from(self.patience.renew.as_secs()).unwrap_or(u32::MAX).max(1));
        if !only.labels.is_empty() {
            config = config.labels(&only.labels);
        }
        if !only.fields.is_empty() {
            config = config.fields(&only.fields);
        }
        let api: Api<Wire<T>> = client::api(self.listening(heard.clone()), &only.namespace);
        watcher(api, config).default_backoff().boxed()
    }

    /// The same client, which notes when it is answered: a watcher does not tell of renewals.
    fn listening(&self, heard: watch::Sender<Instant>) -> kube::Client {
        let client = self.clone();
        let namespace = self.kube.default_namespace().to_owned();
        let service = service_fn(move |request| {
            let (client, heard) = (client.clone(), heard.clone());
            async move {
                let answer = client.in_time(client.kube.send(request)).await?;
                if answer.status().is_success() {
                    heard.send_replace(Instant::now());
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        kube::Client::new(service, namespace)
    }
}

impl<T: Watched> Watch<T> {
    /// When the API server was last heard of. A watch that lives is renewed every 30 s, though nothing happens; see [`Patience`](crate::Patience).
    pub fn last_heard(&self) -> watch::Receiver<Instant> {
        self.heard.subscribe()
    }

    /// The next notice; waits for it as long as it takes.
    pub async fn next(&mut self) -> Notice<T> {
        loop {
            if let Some(gone) = self.gone.pop() {
                return Notice::Gone(gone);
            }
            if std::mem::take(&mut self.synced_next) {
                return Notice::Synced;
            }
            let stirred = self.stirred.max(*self.heard.borrow());
            let Ok(event) = timeout_at(stirred + self.client.patience.renew * MISSED, self.events.next()).await else {
                warn!(resource = T::PLURAL, "the Kubernetes API has fallen silent; asking it anew");
                self.events = self.client.events(&self.only, &self.heard);
                (self.stirred, self.failing) = (Instant::now(), true);
                continue;
            };
            self.stirred = Instant::now();
            match event {
                Some(Ok(event)) => {
                    // The beginning of a list is no answer yet.
                    if !matches!(event, Event::Init) {
                        self.heard.send_replace(self.stirred);
                        if std::mem::take(&mut self.failing) {
                            info!(resource = T::PLURAL, "the Kubernetes API answers again");
                        }
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
