//! Controllers: what follows from objects, some time after they are written.
//!
//! One task reads the events of all resources, notes what they may have changed, and brings that about. What is to be is
//! computed from the store as it is, so nothing depends on having seen every event: whoever missed some looks at everything.

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

/// Something that has to be looked at: its kind, its namespace and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Todo {
    Namespace(String),
    Node(String),
    Service(String, String),
    Deployment(String, String),
    ReplicaSet(String, String),
    DaemonSet(String, String),
    /// An object that waits for those that depend on it: shelf and key.
    Owner(String, String),
    /// An object whose owners may be gone.
    Dependent(String, String),
    /// The objects of an owner that is gone: its uid.
    Orphans(String),
}

/// What the controllers are asked to do, beyond what they always do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Takes the taint off Nodes that are ready.
    pub(crate) ready_nodes: bool,
    /// Where the Pod CIDRs of Nodes come from, one a family.
    pub(crate) pod_cidrs: Vec<ipnet::IpNet>,
}

/// What the controllers know of the store without looking into it.
struct Known {
    garbage: garbage::Index,
    slices: slices::Index,
    ranges: nodes::Ranges,
    /// Namespaces that end.
    ending: BTreeSet<String>,
}

impl Known {
    fn nothing(settings: &Settings) -> Self {
        Self {
            garbage: garbage::Index::default(),
            slices: slices::Index::default(),
            ranges: nodes::Ranges::new(settings.pod_cidrs.clone()),
            ending: BTreeSet::new(),
        }
    }
}

/// How soon what failed is tried again, at first and at last.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Runs the controllers until the server ends.
pub(crate) async fn run(core: Arc<Core>, settings: Settings, mut ending: watch::Receiver<bool>) {
    let mut known = Known::nothing(&settings);
    let mut todo = BTreeSet::new();
    let mut cursor = notice::everything(&core, &mut known, &mut todo);
    let mut failed = BTreeSet::new();
    let (mut delay, mut retry) = (AGAIN.0, Instant::now());
    let mut writes = core.store.writes();
    loop {
        writes.mark_unchanged();
        cursor = notice::events(&core, cursor, &mut known, &mut todo).unwrap_or_else(|_| {
            // Some events are forgotten.
            known = Known::nothing(&settings);
            notice::everything(&core, &mut known, &mut todo)
        });
        if Instant::now() >= retry {
            todo.append(&mut failed);
        }
        let idle = todo.is_empty();
        let tried = failed.is_empty() && !idle;
        for task in std::mem::take(&mut todo) {
            if let Err(failure) = carry_out(&core, &task, &settings, &mut known) {
                tracing::debug!(?task, %failure, ?delay, "a controller will try again");
                failed.insert(task);
            }
            // Requests are served in between.
            tokio::task::yield_now().await;
        }
        if tried {
            delay = if failed.is_empty() { AGAIN.0 } else { (delay * 2).min(AGAIN.1) };
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

fn carry_out(core: &Core, todo: &Todo, settings: &Settings, known: &mut Known) -> Result<(), Failure> {
    let garbage = &known.garbage;
    match todo {
        Todo::Namespace(name) => namespaces::end(core, name),
        Todo::Node(name) => nodes::reconcile(core, name, settings, &mut known.ranges),
        Todo::Service(namespace, name) => slices::reconcile(core, &known.slices, namespace, name),
        Todo::Deployment(namespace, name) => workloads::deployment(core, garbage, namespace, name),
        Todo::ReplicaSet(namespace, name) => workloads::replica_set(core, garbage, namespace, name),
        Todo::DaemonSet(namespace, name) => workloads::daemon_set(core, garbage, namespace, name),
        Todo::Owner(shelf, key) => garbage.owner(core, shelf, key),
        Todo::Dependent(shelf, key) => garbage.dependent(core, shelf, key),
        Todo::Orphans(uid) => garbage.collect(core, uid),
    }
}
