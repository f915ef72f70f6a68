//! What the Kubernetes API says, told to the engine.

use std::time::Duration;

use k8s::{Client, Notice, Only, Watched};
use policy::{Event, Kind};
use tokio::sync::watch;
use tokio::time::Instant;
use types::ObjectName;
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;

use crate::engine::Engine;

/// After how long without a word what is known may be old. A watch is renewed every 30 s, though nothing happens.
const SILENT: Duration = Duration::from_secs(45);

/// The watches of all that policies depend on.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    /// The plural of each, and when it was last heard of.
    heard: Vec<(&'static str, watch::Receiver<Instant>)>,
}

impl Sources {
    /// Watches all that policies depend on.
    pub(crate) fn follow(client: &Client, engine: &Engine) -> Self {
        let with = |kind| (client, engine.clone(), kind);
        let pods = follow_kind::<Pod>(with(Kind::Pod), |pod| Event::Pod(Box::new(pod)), Event::PodGone);
        let gone = |name: ObjectName| Event::NamespaceGone(name.name);
        let namespaces = follow_kind::<Namespace>(with(Kind::Namespace), Event::Namespace, gone);
        let set = |policy| Event::Policy(Box::new(policy));
        let policies = follow_kind::<NetworkPolicy>(with(Kind::Policy), set, Event::PolicyGone);
        Self { heard: vec![pods, namespaces, policies] }
    }

    /// What has not been heard of for long, and for how long.
    pub(crate) fn silent(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let since = self.heard.iter().map(|(plural, heard)| (*plural, now.duration_since(*heard.borrow())));
        since.filter(|(_, since)| *since >= SILENT).max_by_key(|(_, since)| *since)
    }
}

fn follow_kind<T: Watched>(
    (client, engine, kind): (&Client, Engine, Kind),
    set: impl Fn(T) -> Event + Send + 'static,
    gone: impl Fn(ObjectName) -> Event + Send + 'static,
) -> (&'static str, watch::Receiver<Instant>) {
    let mut watch = client.watch::<T>(&Only::default());
    let heard = watch.last_heard();
    tokio::spawn(async move {
        loop {
            let event = match watch.next().await {
                Notice::Set(object) => set(object),
                Notice::Gone(name) => gone(name),
                Notice::Synced => Event::Synced(kind),
            };
            engine.tell(event).await;
        }
    });
    (T::PLURAL, heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_watch_that_has_fallen_silent_is_enough_and_a_quiet_one_is_none() {
        let start = Instant::now();
        let (pods, heard_of_pods) = watch::channel(start);
        let (policies, heard_of_policies) = watch::channel(start);
        let sources = Sources { heard: vec![("pods", heard_of_pods), ("networkpolicies", heard_of_policies)] };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(sources.silent(at(44)), None);
        // Renewed, as every 30 s.
        pods.send_replace(at(30));
        assert_eq!(sources.silent(at(50)), Some(("networkpolicies", Duration::from_secs(50))));
        policies.send_replace(at(51));
        assert_eq!(sources.silent(at(60)), None);
    }
}
