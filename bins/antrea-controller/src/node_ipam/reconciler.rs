//! Assigns subnets to Nodes in the cluster. Only the leader does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use k8s::{Client, WatchEvent, WatchFilter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use types::ObjectName;
use types::node::Node;

use super::Allocation;
use crate::config::NodeIpam;

const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Watches Nodes, and assigns subnets to those without while this replica leads.
pub(crate) async fn run(client: Client, config: NodeIpam, mut leads: watch::Receiver<bool>) {
    let mut watch = client.watch::<Node>(&WatchFilter::default());
    let mut nodes = Nodes { allocation: Allocation::new(&config), waiting: BTreeMap::new(), reported: BTreeSet::new() };
    let mut synced = false;
    loop {
        tokio::select! {
            event = watch.next() => match event {
                WatchEvent::Applied(node) => nodes.set(&node),
                WatchEvent::Deleted(name) => nodes.gone(&name.name),
                // All existing assignments must be known before new ones are made.
                WatchEvent::Synced => synced = true,
            },
            Ok(()) = leads.changed() => {}
            () = sleep_until(Instant::now() + RETRY_DELAY), if !nodes.waiting.is_empty() => {}
        }
        if synced && *leads.borrow() {
            nodes.assign(&client).await;
        }
    }
}

struct Nodes {
    allocation: Allocation,
    /// Nodes without subnets, with their uids.
    waiting: BTreeMap<String, String>,
    /// Nodes that already have an Event that no subnet is free.
    reported: BTreeSet<String>,
}

impl Nodes {
    fn set(&mut self, node: &Node) {
        let name = node.metadata.name.clone();
        let subnets: Vec<IpNet> = node.spec.pod_cidrs.iter().filter_map(|net| net.parse().ok()).collect();
        if subnets.is_empty() {
            self.waiting.insert(name, node.metadata.uid.clone());
        } else {
            self.waiting.remove(&name);
            self.reported.remove(&name);
            self.allocation.record(&name, subnets);
        }
    }

    fn gone(&mut self, name: &str) {
        self.waiting.remove(name);
        self.reported.remove(name);
        self.allocation.release(name);
    }

    /// A Node without a free subnet gets one Event, and does not delay the others.
    async fn assign(&mut self, client: &Client) {
        let waiting: Vec<(String, String)> = self.waiting.clone().into_iter().collect();
        for (node, uid) in waiting {
            match self.allocation.assign(&node) {
                Ok(subnets) => {
                    let texts: Vec<String> = subnets.iter().map(ToString::to_string).collect();
                    match client.set_pod_cidrs(&node, &texts).await {
                        Ok(()) => {
                            info!(node, subnets = ?texts, "assigned Pod subnets to Node");
                            self.waiting.remove(&node);
                        }
                        Err(error) => warn!(
                            node, %error,
                            "cannot assign Pod subnets to Node, retrying; the controller needs the role in deploy/kubernetes/node-ipam.yml"
                        ),
                    }
                }
                Err(exhausted) => {
                    if self.reported.insert(node.clone()) {
                        warn!(node, "cannot assign Pod subnets to Node: {exhausted}");
                        let name = ObjectName { namespace: String::new(), name: node };
                        let event = k8s::Event {
                            of: ("Node", "v1"),
                            name: &name,
                            uid: &uid,
                            reason: "CIDRNotAvailable",
                            message: &exhausted.to_string(),
                        };
                        if let Err(error) = client.warn(&event).await {
                            warn!(%error, "cannot write an Event on the Node");
                        }
                    }
                }
            }
        }
    }
}
