//! Health checks of load balancers: whether this Node accepts connections, and how many local endpoints a Service has.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy::HealthCheck;
use serde_json::json;
use telemetry::server::{Answer, Answers, Server};
use tokio::task::JoinHandle;
use tracing::{info, warn};
use types::ObjectName;
use types::backoff::Backoff;

use crate::engine::Engine;

/// Header by which a load balancer weighs a Node.
const WEIGHT: &str = "X-Load-Balancing-Endpoint-Weight";

/// Serves the Node's health check: healthy after the initial sync, until the Node is being removed.
pub(crate) async fn serve_node(engine: Engine, address: SocketAddr) {
    listen(address, "the Node health check").await.serve(OfNode { engine }).await;
}

/// Listens on the address, and retries while it is in use.
async fn listen(address: SocketAddr, what: &str) -> Server {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    loop {
        match Server::open(address).await {
            Ok(server) => return server,
            Err(error) => {
                let next = Instant::now() + backoff.next_delay();
                if backoff.is_news() {
                    warn!(%error, "cannot listen for health checks of load balancers ({what}); retrying");
                }
                tokio::time::sleep_until(next.into()).await;
            }
        }
    }
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

/// Listens on the `healthCheckNodePort` of each Service that has one.
pub(crate) async fn serve_services(engine: Engine, ipv6: bool) {
    let mut progress = engine.progress();
    let mut listening: BTreeMap<(ObjectName, u16), JoinHandle<()>> = BTreeMap::new();
    let mut seen = 0;
    loop {
        let Ok(version) =
            progress.wait_for(|p| p.services.health_checks != seen).await.map(|p| p.services.health_checks)
        else {
            return;
        };
        let wanted = engine.read(|brain| brain.health_checks().clone()).await;
        listening.retain(|(service, port), task| {
            let kept = wanted.get(service).is_some_and(|check| check.port == *port);
            if !kept {
                info!(%service, port, "closed Service health-check port");
                task.abort();
            }
            kept
        });
        for (service, HealthCheck { port, .. }) in wanted {
            listening.entry((service.clone(), port)).or_insert_with(|| {
                let engine = engine.clone();
                info!(%service, port, "opened Service health-check port");
                tokio::spawn(async move {
                    let all = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                    let server = listen(SocketAddr::new(all, port), &format!("Service {service}")).await;
                    server.serve(OfService { engine, service: Arc::new(service) }).await;
                })
            });
        }
        seen = version;
    }
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
