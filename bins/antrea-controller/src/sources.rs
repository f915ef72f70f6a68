//! Watches Pods, Namespaces and NetworkPolicies, and sends their events to the engine.

use std::time::Duration;

use k8s::{Client, WatchEvent, WatchFilter, Watched};
use policy::{Event, Kind};
use tokio::sync::watch;
use tokio::time::Instant;
use types::ObjectName;
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;

use crate::engine::Engine;

/// Without an answer for this long, a watch may have missed changes. A working watch is renewed every 30 s.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// The watches of all kinds that policies depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The plural of each kind, and the time of its last answer.
    watches: Vec<(&'static str, watch::Receiver<Instant>)>,
}

impl Sources {
    pub(crate) fn follow(client: &Client, engine: &Engine) -> Self {
        let with = |kind| (client, engine.clone(), kind);
        let pods = follow_kind::<Pod>(with(Kind::Pod), |pod| Event::Pod(Box::new(pod)), Event::PodGone);
        let gone = |name: ObjectName| Event::NamespaceGone(name.name);
        let namespaces = follow_kind::<Namespace>(with(Kind::Namespace), Event::Namespace, gone);
        let set = |policy| Event::Policy(Box::new(policy));
        let policies = follow_kind::<NetworkPolicy>(with(Kind::Policy), set, Event::PolicyGone);
        Self { watches: vec![pods, namespaces, policies] }
    }

    /// The kind whose watch has had no answer for too long, and for how long.
    pub(crate) fn silent(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let since =
            self.watches.iter().map(|(plural, last_answer)| (*plural, now.duration_since(*last_answer.borrow())));
        since.filter(|(_, since)| *since >= WATCH_TIMEOUT).max_by_key(|(_, since)| *since)
    }
}

fn follow_kind<T: Watched>(
    (client, engine, kind): (&Client, Engine, Kind),
    set: impl Fn(T) -> Event + Send + 'static,
    gone: impl Fn(ObjectName) -> Event + Send + 'static,
) -> (&'static str, watch::Receiver<Instant>) {
    let mut watch = client.watch::<T>(&WatchFilter::default());
    let last_answer = watch.last_answer();
    tokio::spawn(async move {
        loop {
            let event = match watch.next().await {
                WatchEvent::Applied(object) => set(object),
                WatchEvent::Deleted(name) => gone(name),
                WatchEvent::Synced => Event::Synced(kind),
            };
            engine.send(event).await;
        }
    });
    (T::PLURAL, last_answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_silent_watch_is_reported_and_an_idle_one_is_not() {
        let start = Instant::now();
        let (pods, last_answer_pods) = watch::channel(start);
        let (policies, last_answer_policies) = watch::channel(start);
        let sources = Sources { watches: vec![("pods", last_answer_pods), ("networkpolicies", last_answer_policies)] };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(sources.silent(at(44)), None);
        // Renewed, as every 30 s.
        pods.send_replace(at(30));
        assert_eq!(sources.silent(at(50)), Some(("networkpolicies", Duration::from_secs(50))));
        policies.send_replace(at(51));
        assert_eq!(sources.silent(at(60)), None);
    }
}
