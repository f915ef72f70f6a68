//! Controllers: create and delete objects that others require, some time after a write.
//!
//! One task reads the events of all resources, notes which objects they may affect, and reconciles those. Desired state
//! is computed from the store as it is, so nothing depends on having seen every event: after a gap in the history,
//! everything is reconciled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::core::Core;
use crate::failure::Failure;

pub(crate) mod definitions;
mod garbage;
mod namespaces;
mod nodes;
mod notice;
mod slices;
mod workloads;

/// An object to reconcile, by kind, namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum WorkItem {
    Namespace(String),
    Node(String),
    Service(String, String),
    Deployment(String, String),
    ReplicaSet(String, String),
    DaemonSet(String, String),
    /// An object that waits for its dependents: storage and key.
    Owner(String, String),
    /// A dependent of which the owners may be gone: storage and key.
    Dependent(String, String),
    /// The dependents of a deleted owner: the owner's uid.
    Orphans(String),
}

/// Optional behaviour of the controllers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Whether to remove the not-ready taint from Nodes that report ready.
    pub(crate) ready_nodes: bool,
    /// The ranges for Pod CIDRs of Nodes, at most one for each family.
    pub(crate) pod_cidrs: Vec<ipnet::IpNet>,
}

/// Indexes of the store that the controllers maintain from events.
struct Known {
    garbage: garbage::Index,
    slices: slices::Index,
    ranges: nodes::Ranges,
    /// Namespaces that are being terminated.
    ending: BTreeSet<String>,
}

impl Known {
    fn new(settings: &Settings) -> Self {
        Self {
            garbage: garbage::Index::default(),
            slices: slices::Index::default(),
            ranges: nodes::Ranges::new(settings.pod_cidrs.clone()),
            ending: BTreeSet::new(),
        }
    }
}

/// Initial and maximum delay of retries.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Runs the controllers until the server stops.
pub(crate) async fn run(core: Arc<Core>, settings: Settings, mut ending: watch::Receiver<bool>) {
    let mut known = Known::new(&settings);
    let mut todo = BTreeSet::new();
    let mut cursor = notice::everything(&core, &mut known, &mut todo);
    let mut failed = BTreeSet::new();
    let (mut delay, mut retry) = (RETRY_DELAYS.0, Instant::now());
    let mut writes = core.store.writes();
    loop {
        writes.mark_unchanged();
        cursor = notice::events(&core, cursor, &mut known, &mut todo).unwrap_or_else(|_| {
            // The history no longer has all events.
            known = Known::new(&settings);
            notice::everything(&core, &mut known, &mut todo)
        });
        if Instant::now() >= retry {
            todo.append(&mut failed);
        }
        let idle = todo.is_empty();
        let tried = failed.is_empty() && !idle;
        for task in std::mem::take(&mut todo) {
            if let Err(failure) = reconcile(&core, &task, &settings, &mut known) {
                tracing::debug!(?task, %failure, ?delay, "reconciliation failed, retrying");
                failed.insert(task);
            }
            // Lets requests be served in between.
            tokio::task::yield_now().await;
        }
        if tried {
            delay = if failed.is_empty() { RETRY_DELAYS.0 } else { (delay * 2).min(RETRY_DELAYS.1) };
            retry = Instant::now() + delay;
        }
        if !idle {
            continue;
        }
        tokio::select! {
            result = writes.changed() => if result.is_err() { return },
            () = sleep_until(retry), if !failed.is_empty() => {}
            () = crate::server::ended(&mut ending) => return,
        }
    }
}

fn reconcile(core: &Core, todo: &WorkItem, settings: &Settings, known: &mut Known) -> Result<(), Failure> {
    let garbage = &known.garbage;
    match todo {
        WorkItem::Namespace(name) => namespaces::end(core, name),
        WorkItem::Node(name) => nodes::reconcile(core, name, settings, &mut known.ranges),
        WorkItem::Service(namespace, name) => slices::reconcile(core, &known.slices, namespace, name),
        WorkItem::Deployment(namespace, name) => workloads::deployment(core, garbage, namespace, name),
        WorkItem::ReplicaSet(namespace, name) => workloads::replica_set(core, garbage, namespace, name),
        WorkItem::DaemonSet(namespace, name) => workloads::daemon_set(core, garbage, namespace, name),
        WorkItem::Owner(group_resource, key) => garbage.owner(core, group_resource, key),
        WorkItem::Dependent(group_resource, key) => garbage.dependent(core, group_resource, key),
        WorkItem::Orphans(uid) => garbage.collect(core, uid),
    }
}
