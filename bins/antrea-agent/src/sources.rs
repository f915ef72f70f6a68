//! Watches of the Kubernetes API that feed the engine.

use k8s::{Client, Watch, WatchEvent, WatchFilter, Watched};
use node::{Change, Event, Source};
use tokio::sync::watch;
use tokio::time::Instant;
use types::node::Node;
use types::service::{EndpointSlice, Service};

use crate::engine::Engine;

/// Watches Nodes, Services and EndpointSlices; returns the time of the API's last answer.
pub(crate) fn follow(client: &Client, engine: &Engine) -> watch::Receiver<Instant> {
    let everything = WatchFilter::default();
    let nodes = client.watch::<Node>(&everything);
    let last_answer = nodes.last_answer();
    tokio::spawn(follow_kind(nodes, (engine.clone(), Source::Nodes), Event::Node));
    let services = client.watch::<Service>(&everything);
    tokio::spawn(follow_kind(services, (engine.clone(), Source::Services), |change| {
        Event::Service(match change {
            Change::Set(service) => Change::Set(Box::new(service)),
            Change::Gone(name) => Change::Gone(name),
        })
    }));
    let slices = client.watch::<EndpointSlice>(&everything);
    tokio::spawn(follow_kind(slices, (engine.clone(), Source::EndpointSlices), Event::EndpointSlice));
    last_answer
}

async fn follow_kind<T: Watched>(
    mut watch: Watch<T>,
    (engine, source): (Engine, Source),
    event: impl Fn(Change<T>) -> Event,
) {
    loop {
        let event = match watch.next().await {
            WatchEvent::Applied(object) => event(Change::Set(object)),
            WatchEvent::Deleted(name) => event(Change::Gone(name)),
            WatchEvent::Synced => Event::Synced(source),
        };
        engine.send(event).await;
    }
}
