//! Watches Pods, Namespaces, policies, Tiers and groups, and sends their events to the engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s::{
    AntreaNetworkPolicy, Client, ClusterGroup, ClusterNetworkPolicy, NamespacedGroup, WatchEvent, WatchFilter, Watched,
};
use policy::{Event, Kind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::info;
use types::ObjectName;
use types::antrea::{ExternalEntity, Tier};
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;

use crate::engine::Engine;

/// Without an answer for this long, a watch may have missed changes. A working watch is renewed every 30 s.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// How often a kind is looked for that the API server does not have.
const LOOK_FOR_KIND: Duration = Duration::from_secs(10);
/// Delays between requests for the kinds that the API server has, while these fail.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// The watches of all kinds that policies depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    watches: Arc<Mutex<Vec<Answered>>>,
}

/// The plural of a kind, and the time of the last answer to its watch.
type Answered = (&'static str, watch::Receiver<Instant>);

impl Sources {
    pub(crate) fn follow(client: &Client, engine: &Engine) -> Self {
        let sources = Self::default();
        let follower = Follower { client: client.clone(), engine: engine.clone(), sources: sources.clone() };
        tokio::spawn(follower.follow_all());
        sources
    }

    /// The kind whose watch has had no answer for too long, and for how long.
    pub(crate) fn silent(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let since = watches.iter().map(|(plural, last_answer)| (*plural, now.duration_since(*last_answer.borrow())));
        since.filter(|(_, since)| *since >= WATCH_TIMEOUT).max_by_key(|(_, since)| *since)
    }

    fn add(&self, plural: &'static str, last_answer: watch::Receiver<Instant>) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push((plural, last_answer));
    }
}

#[derive(Clone)]
struct Follower {
    client: Client,
    engine: Engine,
    sources: Sources,
}

impl Follower {
    async fn follow_all(self) {
        // First, so that Nodes do not get the policies of Kubernetes without those of Antrea.
        let set = |tier| Event::Tier(Box::new(tier));
        self.follow_custom::<Tier>(Kind::Tier, set, |name| Event::TierGone(name.name)).await;
        let set = |ClusterNetworkPolicy(policy)| Event::AntreaPolicy(Box::new(policy));
        self.follow_custom(Kind::ClusterNetworkPolicy, set, Event::AntreaPolicyGone).await;
        let set = |AntreaNetworkPolicy(policy)| Event::AntreaPolicy(Box::new(policy));
        self.follow_custom(Kind::AntreaNetworkPolicy, set, Event::AntreaPolicyGone).await;
        let set = |ClusterGroup(group)| Event::Group(Box::new(group));
        self.follow_custom(Kind::ClusterGroup, set, Event::GroupGone).await;
        let set = |NamespacedGroup(group)| Event::Group(Box::new(group));
        self.follow_custom(Kind::Group, set, Event::GroupGone).await;
        let set = |entity| Event::ExternalEntity(Box::new(entity));
        self.follow_custom::<ExternalEntity>(Kind::ExternalEntity, set, Event::ExternalEntityGone).await;
        self.follow::<Pod>(Kind::Pod, |pod| Event::Pod(Box::new(pod)), Event::PodGone);
        self.follow::<Namespace>(Kind::Namespace, Event::Namespace, |name| Event::NamespaceGone(name.name));
        let set = |policy| Event::Policy(Box::new(policy));
        self.follow::<NetworkPolicy>(Kind::Policy, set, Event::PolicyGone);
    }

    /// Watches a custom resource, now or as soon as its CRD is installed. Returns when it is known which.
    async fn follow_custom<T: Watched>(
        &self,
        kind: Kind,
        set: impl Fn(T) -> Event + Send + 'static,
        gone: impl Fn(ObjectName) -> Event + Send + 'static,
    ) {
        let (resource, group) = (T::PLURAL, T::GROUP);
        if is_served::<T>(&self.client).await {
            self.engine.send(Event::Watched(kind)).await;
            self.follow(kind, set, gone);
            return;
        }
        info!(resource, group, "CRD is not installed; waiting for it");
        let follower = self.clone();
        tokio::spawn(async move {
            until_served::<T>(&follower.client).await;
            info!(resource, group, "CRD is installed");
            follower.engine.send(Event::Watched(kind)).await;
            follower.follow(kind, set, gone);
        });
    }

    fn follow<T: Watched>(
        &self,
        kind: Kind,
        set: impl Fn(T) -> Event + Send + 'static,
        gone: impl Fn(ObjectName) -> Event + Send + 'static,
    ) {
        let mut watch = self.client.watch::<T>(&WatchFilter::default());
        self.sources.add(T::PLURAL, watch.last_answer());
        let engine = self.engine.clone();
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
    }
}

/// Waits until a CRD is installed.
pub(crate) async fn until_served<T: Watched>(client: &Client) {
    while !is_served::<T>(client).await {
        sleep_until(Instant::now() + LOOK_FOR_KIND).await;
    }
}

/// Whether the API server has a kind; waits for its answer.
async fn is_served<T: Watched>(client: &Client) -> bool {
    reconcile::retry("kinds of the Kubernetes API", RETRY, || client.serves::<T>()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_silent_watch_is_reported_and_an_idle_one_is_not() {
        let start = Instant::now();
        let (pods, last_answer_pods) = watch::channel(start);
        let (policies, last_answer_policies) = watch::channel(start);
        let sources = Sources::default();
        sources.add("pods", last_answer_pods);
        sources.add("networkpolicies", last_answer_policies);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(sources.silent(at(44)), None);
        // Renewed, as every 30 s.
        pods.send_replace(at(30));
        assert_eq!(sources.silent(at(50)), Some(("networkpolicies", Duration::from_secs(50))));
        policies.send_replace(at(51));
        assert_eq!(sources.silent(at(60)), None);
    }
}
