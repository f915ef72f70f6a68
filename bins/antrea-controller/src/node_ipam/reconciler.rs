//! Assigns subnets to Nodes in the cluster. Only the leader does.

use std::time::Duration;

use ipnet::IpNet;
use k8s::{Client, RequestError, WatchEvent, WatchFilter};
use reconcile::{Pass, Settings, Target};
use tokio::sync::watch;
use tracing::{info, warn};
use types::ObjectName;
use types::node::Node;

use super::waiting::{Decision, Waiting};
use super::{Allocation, Exhausted};
use crate::config::NodeIpam;
use crate::inputs::{Input, Inputs};

const SETTINGS: Settings =
    Settings { backoff: (Duration::from_secs(1), Duration::from_secs(10)), ..Settings::ON_CHANGE };

/// Watches Nodes, and assigns subnets to those without while this replica leads.
pub(crate) async fn run(client: Client, config: NodeIpam, leads: watch::Receiver<bool>) {
    let nodes = client.watch::<Node>(&WatchFilter::default());
    let subnets = NodeSubnets { client, waiting: Waiting::new(Allocation::new(&config)) };
    reconcile::run(subnets, Inputs::new(nodes, leads), SETTINGS).await;
}

struct NodeSubnets {
    client: Client,
    waiting: Waiting,
}

#[derive(Debug, thiserror::Error)]
enum IpamError {
    #[error(
        "cannot assign Pod subnets to Node {node}: {source}; the controller needs the role in deploy/kubernetes/optional/node-ipam.yml"
    )]
    Assign { node: String, source: RequestError },
    #[error("cannot assign Pod subnets to Node {node}: {exhausted}; and cannot write an Event about it: {source}")]
    Report { node: String, exhausted: Exhausted, source: RequestError },
}

impl Target for NodeSubnets {
    type Desired = Input<WatchEvent<Node>>;
    /// The Node whose subnets were assigned.
    type Change = String;
    type Failure = IpamError;

    fn name(&self) -> &'static str {
        "Node subnet"
    }

    async fn reconcile(&mut self, Input { events, leads }: Input<WatchEvent<Node>>) -> Pass<String, IpamError> {
        for event in &events {
            self.waiting.observe(event);
        }
        let mut pass = Pass::default();
        if !leads {
            return pass;
        }
        for decision in self.waiting.decide() {
            let applied = match decision {
                Decision::Assign { node, subnets } => self.assign(node, &subnets).await.map(Some),
                Decision::Report { node, uid, exhausted } => self.report(node, &uid, exhausted).await.map(|()| None),
            };
            match applied {
                Ok(assigned) => pass.changes.extend(assigned),
                Err(error) => pass.failures.push(error),
            }
        }
        pass
    }
}

impl NodeSubnets {
    async fn assign(&mut self, node: String, subnets: &[IpNet]) -> Result<String, IpamError> {
        let subnets: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        if let Err(source) = self.client.set_pod_cidrs(&node, &subnets).await {
            return Err(IpamError::Assign { node, source });
        }
        info!(node, ?subnets, "assigned Pod subnets to Node");
        self.waiting.done(&node);
        Ok(node)
    }

    async fn report(&mut self, node: String, uid: &str, exhausted: Exhausted) -> Result<(), IpamError> {
        let message = exhausted.to_string();
        let name = ObjectName { namespace: String::new(), name: node.clone() };
        let event = k8s::Event { of: ("Node", "v1"), name: &name, uid, reason: "CIDRNotAvailable", message: &message };
        if let Err(source) = self.client.warn(&event).await {
            return Err(IpamError::Report { node, exhausted, source });
        }
        warn!(node, "cannot assign Pod subnets to Node: {message}");
        self.waiting.reported(node);
        Ok(())
    }
}
