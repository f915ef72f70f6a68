//! The Pods of the Node, as the kubelet's server sees them. The worker of each Pod publishes its state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::lifecycle::{Slot, State};

/// A Pod, by namespace and name.
type Key = (String, String);

/// All Pods of the Node.
#[derive(Default)]
pub(crate) struct PodTable(Mutex<BTreeMap<Key, watch::Sender<Arc<PodView>>>>);

/// The state of a Pod.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PodView {
    pub(crate) uid: String,
    pub(crate) containers: Vec<ContainerView>,
    /// Whether the Pod has a network.
    pub(crate) connected: bool,
    /// Path of the network namespace; `None` for the network of the Node.
    pub(crate) netns: Option<PathBuf>,
}

/// The state of a container.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    /// The number of its current or last run, which names its log.
    pub(crate) run: u32,
    pub(crate) phase: Phase,
}

/// The state of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Phase {
    /// It has not run yet, for this reason.
    Waiting(String),
    Starting,
    /// It runs; contains the PID of its init process in the PID namespace of the Node.
    Running(u32),
    Ended,
}

impl PodTable {
    fn pods(&self) -> MutexGuard<'_, BTreeMap<Key, watch::Sender<Arc<PodView>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state of a Pod.
    pub(crate) fn publish(&self, namespace: &str, pod: &str, view: PodView) {
        let mut pods = self.pods();
        let sender = pods.entry((namespace.to_owned(), pod.to_owned())).or_default();
        sender.send_if_modified(|current| {
            let changed = **current != view;
            if changed {
                *current = Arc::new(view);
            }
            changed
        });
    }

    /// Removes a Pod, unless one with the same name has replaced it.
    pub(crate) fn remove(&self, namespace: &str, pod: &str, uid: &str) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut pods = self.pods();
        if pods.get(&key).is_some_and(|sender| sender.borrow().uid == uid) {
            pods.remove(&key);
        }
    }

    /// Follows the state of a Pod; `None` if there is no such Pod.
    pub(crate) fn follow(&self, namespace: &str, pod: &str) -> Option<watch::Receiver<Arc<PodView>>> {
        self.pods().get(&(namespace.to_owned(), pod.to_owned())).map(watch::Sender::subscribe)
    }
}

impl PodView {
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|container| container.name == name)
    }
}

impl ContainerView {
    /// The state of a container with this PID, if it runs.
    pub(crate) fn new(slot: &Slot, pid: Option<u32>) -> Self {
        let phase = match (&slot.state, pid) {
            (State::Waiting, _) => Phase::Waiting("ContainerCreating".to_owned()),
            (State::Blocked { reason, .. }, _) => Phase::Waiting(reason.clone()),
            (State::BackOff { reason, .. }, _) if slot.last.is_none() => Phase::Waiting(reason.clone()),
            (State::Running { .. }, Some(pid)) => Phase::Running(pid),
            (State::Starting | State::Running { .. }, _) => Phase::Starting,
            (State::BackOff { .. } | State::Done(_), _) => Phase::Ended,
        };
        Self { name: slot.name.clone(), run: slot.restarts, phase }
    }

    /// Whether the run with this number can still write to its log.
    pub(crate) fn is_writing(&self, run: u32) -> bool {
        self.run == run && matches!(self.phase, Phase::Starting | Phase::Running(_))
    }

    /// The number of the last run that has ended.
    pub(crate) fn previous(&self) -> Option<u32> {
        match self.phase {
            Phase::Waiting(_) => None,
            Phase::Starting | Phase::Running(_) => self.run.checked_sub(1),
            Phase::Ended => Some(self.run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(uid: &str, phase: Phase, run: u32) -> PodView {
        let container = ContainerView { name: "c".to_owned(), run, phase };
        PodView { uid: uid.to_owned(), containers: vec![container], ..PodView::default() }
    }

    #[test]
    fn followers_see_changes_and_the_end_of_their_pod() {
        let table = PodTable::default();
        table.publish("a", "p", view("1", Phase::Starting, 0));
        let mut pod = table.follow("a", "p").unwrap();
        table.publish("a", "p", view("1", Phase::Starting, 0));
        assert!(!pod.has_changed().unwrap());
        table.publish("a", "p", view("1", Phase::Running(7), 0));
        assert_eq!(pod.borrow_and_update().container("c").unwrap().phase, Phase::Running(7));
        table.remove("a", "p", "another");
        assert!(table.follow("a", "p").is_some());
        table.remove("a", "p", "1");
        assert!(table.follow("a", "p").is_none() && pod.has_changed().is_err());
    }

    #[test]
    fn a_log_is_written_by_its_run_only() {
        let of = |phase, run| view("1", phase, run).containers.remove(0);
        assert!(of(Phase::Running(7), 2).is_writing(2) && !of(Phase::Running(7), 2).is_writing(1));
        assert!(!of(Phase::Ended, 2).is_writing(2));
        let previous = |phase, run| of(phase, run).previous();
        assert_eq!(previous(Phase::Running(7), 0), None);
        assert_eq!(previous(Phase::Running(7), 2), Some(1));
        assert_eq!(previous(Phase::Ended, 2), Some(2));
        assert_eq!(previous(Phase::Waiting(String::new()), 0), None);
    }
}
