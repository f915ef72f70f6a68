//! Open connections, and which one to close for a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Maximum number of open connections.
pub(super) const CONNECTIONS: usize = 64;

/// Progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The request has not arrived yet.
    Reading,
    /// The answer is being computed.
    Answering,
    /// The answer is being written to the client.
    Writing,
}

/// The open connections, oldest first.
#[derive(Clone, Default)]
pub(super) struct Slots(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, (Phase, AbortHandle)>,
}

/// Slot of one connection; freed on drop.
pub(super) struct Slot {
    number: u64,
    slots: Slots,
}

impl Slots {
    /// Starts a connection. At the limit, closes the oldest one that waits for its client: one that has not sent its request
    /// if there is such a one, else one that has not read its answer.
    pub(super) fn open(&self, start: impl FnOnce(Slot) -> AbortHandle) {
        let closed = {
            let mut open = self.lock();
            let number = open.next;
            open.next += 1;
            let closed = open.surplus().and_then(|oldest| open.connections.remove(&oldest));
            // The task cannot free its slot before it is inserted: both take the lock.
            let task = start(Slot { number, slots: self.clone() });
            open.connections.insert(number, (Phase::Reading, task));
            closed
        };
        if let Some((_, task)) = closed {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The connection to close before another one opens, if the limit is reached.
    fn surplus(&self) -> Option<u64> {
        if self.connections.len() < CONNECTIONS {
            return None;
        }
        let oldest = |phase| self.connections.iter().find(|(_, (is, _))| *is == phase).map(|(number, _)| *number);
        [Phase::Reading, Phase::Writing, Phase::Answering].into_iter().find_map(oldest)
    }
}

impl Slot {
    pub(super) fn enter(&self, phase: Phase) {
        if let Some((is, _)) = self.slots.lock().connections.get_mut(&self.number) {
            *is = phase;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().connections.remove(&self.number);
    }
}
