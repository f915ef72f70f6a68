//! Gives Nodes their subnets, in the cluster; one replica does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use k8s::{Client, Notice, Only};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use types::ObjectName;
use types::node::Node;

use super::Allocation;
use crate::config::NodeIpam;

/// How long to wait before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Gives every Node without subnets some, for ever, while this replica writes.
pub(crate) async fn keep(client: Client, config: NodeIpam, mut leads: watch::Receiver<bool>) {
    let mut watch = client.watch::<Node>(&Only::default());
    let mut nodes = Nodes { allocation: Allocation::new(&config), waiting: BTreeMap::new(), told: BTreeSet::new() };
    let mut synced = false;
    loop {
        tokio::select! {
            notice = watch.next() => match notice {
                Notice::Set(node) => nodes.set(&node),
                Notice::Gone(name) => nodes.gone(&name.name),
                // Only who knows all of what is assigned can assign more.
                Notice::Synced => synced = true,
            },
            Ok(()) = leads.changed() => {}
            () = sleep_until(Instant::now() + AGAIN), if !nodes.waiting.is_empty() => {}
        }
        if synced && *leads.borrow() {
            nodes.serve(&client).await;
        }
    }
}

struct Nodes {
    allocation: Allocation,
    /// Nodes without subnets, and their uids.
    waiting: BTreeMap<String, String>,
    /// Nodes that were told that there is nothing left.
    told: BTreeSet<String>,
}

impl Nodes {
    fn set(&mut self, node: &Node) {
        let name = node.metadata.name.clone();
        let subnets: Vec<IpNet> = node.spec.pod_cidrs.iter().filter_map(|net| net.parse().ok()).collect();
        if subnets.is_empty() {
            self.waiting.insert(name, node.metadata.uid.clone());
        } else {
            self.waiting.remove(&name);
            self.told.remove(&name);
            self.allocation.know(&name, subnets);
        }
    }

    fn gone(&mut self, name: &str) {
        self.waiting.remove(name);
        self.told.remove(name);
        self.allocation.forget(name);
    }

    /// A Node that gets nothing is told so once, and holds up no other.
    async fn serve(&mut self, client: &Client) {
        let waiting: Vec<(String, String)> = self.waiting.clone().into_iter().collect();
        for (node, uid) in waiting {
            match self.allocation.assign(&node) {
                Ok(subnets) => {
                    let texts: Vec<String> = subnets.iter().map(ToString::to_string).collect();
                    match client.set_pod_cidrs(&node, &texts).await {
                        Ok(()) => {
                            info!(node, ?texts, "a Node has subnets for its Pods");
                            self.waiting.remove(&node);
                        }
                        Err(error) => warn!(
                            node, %error,
                            "a Node does not get its subnets yet; deploy/kubernetes/node-ipam.yml lets controllers do that"
                        ),
                    }
                }
                Err(exhausted) => {
                    if self.told.insert(node.clone()) {
                        warn!(node, "a Node gets no subnet: {exhausted}");
                        let name = ObjectName { namespace: String::new(), name: node };
                        let event = k8s::Event {
                            of: ("Node", "v1"),
                            name: &name,
                            uid: &uid,
                            reason: "CIDRNotAvailable",
                            message: &exhausted.to_string(),
                        };
                        if let Err(error) = client.warn(&event).await {
                            warn!(%error, "cannot write an Event");
                        }
                    }
                }
            }
        }
    }
}
