//! Health checks of load balancers: whether this Node accepts connections, and how many local endpoints a Service has.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use proxy::HealthCheck;
use reconcile::{Pass, Settings, Target};
use serde_json::json;
use telemetry::server::{Answer, Answers, ServeError, Server};
use tokio::task::JoinHandle;
use types::ObjectName;

use crate::desired::DesiredPart;
use crate::engine::Engine;

/// Header by which a load balancer weighs a Node.
const WEIGHT: &str = "X-Load-Balancing-Endpoint-Weight";

/// Serves the Node's health check: healthy after the initial sync, until the Node is being removed.
pub(crate) async fn serve_node(engine: Engine, address: SocketAddr) {
    let backoff = Settings::ON_CHANGE.backoff;
    let server = reconcile::retry("Node health check", backoff, || Server::open(address)).await;
    server.serve(OfNode { engine }).await;
}

struct OfNode {
    engine: Engine,
}

impl Answers for OfNode {
    async fn get(&self, path: &str, _query: &str) -> Option<Answer> {
        let ready = self.engine.progress().borrow().ready;
        let eligible = !self.engine.read(node::Brain::is_leaving).await;
        let answer = Answer::json(format!("{}\n", json!({"ready": ready, "nodeEligible": eligible})));
        match path {
            "/healthz" if ready && eligible => Some(answer),
            // A Node that is being removed is alive, and must not be restarted.
            "/livez" if ready => Some(answer),
            "/healthz" | "/livez" => Some(answer.unavailable()),
            _ => None,
        }
    }
}

/// Listens on the `healthCheckNodePort` of each Service that has one, until the agent stops.
pub(crate) async fn serve_services(engine: Engine, ipv6: bool) {
    let desired = DesiredPart::new(
        engine.clone(),
        |progress| Some(progress.services.health_checks).filter(|version| *version > 0),
        |brain| (brain.service_versions().health_checks, brain.health_checks().clone()),
    );
    let ports = HealthCheckPorts { engine, ipv6, listening: BTreeMap::new() };
    reconcile::run(ports, desired, Settings::ON_CHANGE).await;
}

/// A Service and its `healthCheckNodePort`.
type Listener = (ObjectName, u16);

struct HealthCheckPorts {
    engine: Engine,
    ipv6: bool,
    listening: BTreeMap<Listener, JoinHandle<()>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Opened(Listener),
    Closed(Listener),
}

#[derive(Debug, thiserror::Error)]
#[error("Service {service}: cannot listen on its healthCheckNodePort: {source}")]
struct ListenError {
    service: ObjectName,
    source: ServeError,
}

impl Target for HealthCheckPorts {
    type Desired = BTreeMap<ObjectName, HealthCheck>;
    type Change = Change;
    type Failure = ListenError;

    fn name(&self) -> &'static str {
        "Service health check"
    }

    async fn reconcile(&mut self, desired: BTreeMap<ObjectName, HealthCheck>) -> Pass<Change, ListenError> {
        let mut pass = Pass::default();
        self.listening.retain(|_, task| !task.is_finished());
        for change in difference(self.listening.keys(), &desired) {
            match &change {
                Change::Closed(listener) => {
                    if let Some(task) = self.listening.remove(listener) {
                        task.abort();
                        // Until it has ended, the port is in use.
                        let _ = task.await;
                    }
                }
                Change::Opened((service, port)) => match self.listen(service, *port).await {
                    Ok(task) => _ = self.listening.insert((service.clone(), *port), task),
                    Err(source) => {
                        pass.failures.push(ListenError { service: service.clone(), source });
                        continue;
                    }
                },
            }
            pass.changes.push(change);
        }
        pass
    }
}

impl HealthCheckPorts {
    async fn listen(&self, service: &ObjectName, port: u16) -> Result<JoinHandle<()>, ServeError> {
        let all = if self.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let server = Server::open(SocketAddr::new(all, port)).await?;
        let answers = OfService { engine: self.engine.clone(), service: Arc::new(service.clone()) };
        Ok(tokio::spawn(server.serve(answers)))
    }
}

/// Ports are closed first, since another Service may have one of them now.
fn difference<'a>(
    listening: impl Iterator<Item = &'a Listener> + Clone,
    desired: &BTreeMap<ObjectName, HealthCheck>,
) -> Vec<Change> {
    let is_desired = |(service, port): &Listener| desired.get(service).is_some_and(|check| check.port == *port);
    let stale = listening.clone().filter(|listener| !is_desired(listener)).cloned().map(Change::Closed);
    let all = desired.iter().map(|(service, check)| (service.clone(), check.port));
    let missing = all.filter(|listener| !listening.clone().any(|open| open == listener)).map(Change::Opened);
    stale.chain(missing).collect()
}

struct OfService {
    engine: Engine,
    service: Arc<ObjectName>,
}

impl Answers for OfService {
    async fn get(&self, _path: &str, _query: &str) -> Option<Answer> {
        let service = Arc::clone(&self.service);
        let query =
            move |brain: &node::Brain| brain.health_checks().get(&service).map_or(0, |check| check.local_endpoints);
        let endpoints = self.engine.read(query).await;
        let service = json!({"namespace": self.service.namespace, "name": self.service.name});
        let body = json!({"service": service, "localEndpoints": endpoints, "serviceProxyHealthy": true});
        let answer = Answer::json(format!("{body}\n")).with_header(WEIGHT, endpoints.to_string());
        Some(if endpoints > 0 { answer } else { answer.unavailable() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn service(name: &str) -> ObjectName {
        ObjectName { namespace: "default".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn ports_are_closed_before_others_are_opened_and_the_same_ones_stay() {
        let check = |port| HealthCheck { port, local_endpoints: 1 };
        let listening = BTreeSet::from([(service("gone"), 30001), (service("same"), 30002), (service("moved"), 30003)]);
        let desired = [("moved", 30004), ("new", 30001), ("same", 30002)];
        let desired = desired.into_iter().map(|(name, port)| (service(name), check(port))).collect();
        let expected = [
            Change::Closed((service("gone"), 30001)),
            Change::Closed((service("moved"), 30003)),
            Change::Opened((service("moved"), 30004)),
            Change::Opened((service("new"), 30001)),
        ];
        assert_eq!(difference(listening.iter(), &desired), expected);
    }
}
