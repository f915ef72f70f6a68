//! What the Kubernetes API says, told to the engine.

use k8s::{Client, Notice, Only, Watched};
use node::{Change, Event, Source};
use types::node::Node;
use types::service::{EndpointSlice, Service};

use crate::engine::Engine;

/// Watches all that the engine wants to know.
pub(crate) fn follow(client: &Client, engine: &Engine) {
    let everything = Only::default();
    let watch = |source| (client.clone(), engine.clone(), source);
    tokio::spawn(follow_kind::<Node>(watch(Source::Nodes), everything.clone(), Event::Node));
    tokio::spawn(follow_kind::<Service>(watch(Source::Services), everything.clone(), |change| {
        Event::Service(match change {
            Change::Set(service) => Change::Set(Box::new(service)),
            Change::Gone(name) => Change::Gone(name),
        })
    }));
    tokio::spawn(follow_kind::<EndpointSlice>(watch(Source::EndpointSlices), everything, Event::EndpointSlice));
}

async fn follow_kind<T: Watched>(
    (client, engine, source): (Client, Engine, Source),
    only: Only,
    event: impl Fn(Change<T>) -> Event,
) {
    let mut watch = client.watch::<T>(&only);
    loop {
        let event = match watch.next().await {
            Notice::Set(object) => event(Change::Set(object)),
            Notice::Gone(name) => event(Change::Gone(name)),
            Notice::Synced => Event::Synced(source),
        };
        engine.tell(event).await;
    }
}
