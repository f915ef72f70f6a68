//! What the Kubernetes API says, told to the engine.

use k8s::{Client, Notice, Only, Watched};
use policy::{Event, Kind};
use types::ObjectName;
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;

use crate::engine::Engine;

/// Watches all that policies depend on.
pub(crate) fn follow(client: &Client, engine: &Engine) {
    let with = |kind| (client.clone(), engine.clone(), kind);
    tokio::spawn(follow_kind::<Pod>(with(Kind::Pod), |pod| Event::Pod(Box::new(pod)), Event::PodGone));
    let gone = |name: ObjectName| Event::NamespaceGone(name.name);
    tokio::spawn(follow_kind::<Namespace>(with(Kind::Namespace), Event::Namespace, gone));
    let set = |policy| Event::Policy(Box::new(policy));
    tokio::spawn(follow_kind::<NetworkPolicy>(with(Kind::Policy), set, Event::PolicyGone));
}

async fn follow_kind<T: Watched>(
    (client, engine, kind): (Client, Engine, Kind),
    set: impl Fn(T) -> Event,
    gone: impl Fn(ObjectName) -> Event,
) {
    let mut watch = client.watch::<T>(&Only::default());
    loop {
        let event = match watch.next().await {
            Notice::Set(object) => set(object),
            Notice::Gone(name) => gone(name),
            Notice::Synced => Event::Synced(kind),
        };
        engine.tell(event).await;
    }
}
