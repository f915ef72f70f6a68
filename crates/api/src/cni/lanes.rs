//! Order of calls: one at a time for each container, GC alone, and a limit for all together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{
    Mutex as Lane, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock,
    Semaphore,
};
use tokio::time;

use super::{ContainerId, Error};

/// Limit of running and waiting calls. A Node that boots starts some hundred Pods at once.
pub(super) const MAX_CALLS: u32 = 512;

pub(super) struct Lanes {
    /// One for each container with a running or waiting call.
    lanes: Mutex<BTreeMap<ContainerId, Arc<Lane<()>>>>,
    /// GC takes the write lock, all other calls the read lock.
    everything: Arc<RwLock<()>>,
    calls: Arc<Semaphore>,
}

/// The right to run; the next call continues when it is dropped.
pub(super) struct Turn {
    _alone: Alone,
    // Declared after the lock and before the place: the lane is released before the place checks whether it is unused.
    _lane: Option<OwnedMutexGuard<()>>,
    _place: Option<Place>,
    _call: OwnedSemaphorePermit,
}

enum Alone {
    No { _read: OwnedRwLockReadGuard<()> },
    Yes { _write: OwnedRwLockWriteGuard<()> },
}

/// A place in the queue for a container. The last one removes the lane on drop.
struct Place {
    lanes: Arc<Lanes>,
    container: ContainerId,
}

impl Lanes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::default(),
            everything: Arc::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS as usize)),
        })
    }

    /// Waits for the earlier calls for the same container. The first poll takes the place in the queue.
    pub(super) async fn turn(self: &Arc<Self>, container: &ContainerId) -> Result<Turn, Error> {
        let call = self.enter()?;
        let lane = Arc::clone(self.map().entry(container.clone()).or_default());
        let place = Place { lanes: Arc::clone(self), container: container.clone() };
        let lane = lane.lock_owned().await;
        let read = Arc::clone(&self.everything).read_owned().await;
        Ok(Turn { _alone: Alone::No { _read: read }, _lane: Some(lane), _place: Some(place), _call: call })
    }

    /// Waits until no other call runs.
    pub(super) async fn turn_alone(self: &Arc<Self>) -> Result<Turn, Error> {
        let call = self.enter()?;
        let write = Arc::clone(&self.everything).write_owned().await;
        Ok(Turn { _alone: Alone::Yes { _write: write }, _lane: None, _place: None, _call: call })
    }

    /// Waits until no call is running or waiting, at most for `timeout`. Returns the number of remaining calls.
    pub(super) async fn drained(&self, timeout: Duration) -> usize {
        match time::timeout(timeout, self.calls.acquire_many(MAX_CALLS)).await {
            Ok(_) => 0,
            Err(_) => MAX_CALLS as usize - self.calls.available_permits(),
        }
    }

    fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let details = format!(
                "{MAX_CALLS} CNI calls are waiting or running; the log of antrea-agent has the results of completed ones"
            );
            tracing::warn!("CNI call rejected: {details}");
            Error::try_again("antrea-agent is overloaded", details)
        })
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Arc<Lane<()>>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.lanes.map();
        // The other clones belong to waiting and running calls.
        if map.get(&self.container).is_some_and(|lane| Arc::strong_count(lane) == 1) {
            map.remove(&self.container);
        }
    }
}
#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn container(id: &str) -> ContainerId {
        ContainerId::new(id).unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ready<T>(poll: Poll<Result<T, Error>>) -> T {
        match poll {
            Poll::Ready(Ok(value)) => value,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => panic!("has to wait"),
        }
    }

    #[test]
    fn calls_for_one_container_run_one_at_a_time_in_the_order_of_arrival() {
        let lanes = Lanes::new();
        let (a, b) = (container("a"), container("b"));
        let first = ready(poll(pin!(lanes.turn(&a))));
        let mut second = pin!(lanes.turn(&a));
        let mut third = pin!(lanes.turn(&a));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        drop(ready(poll(pin!(lanes.turn(&b)))));
        drop(first);
        assert!(poll(third.as_mut()).is_pending());
        drop(ready(poll(second.as_mut())));
        drop(ready(poll(third.as_mut())));
        assert!(lanes.map().is_empty());
    }

    #[test]
    fn a_cancelled_call_leaves_no_lane_behind() {
        let lanes = Lanes::new();
        let a = container("a");
        let first = ready(poll(pin!(lanes.turn(&a))));
        {
            let mut second = pin!(lanes.turn(&a));
            assert!(poll(second.as_mut()).is_pending());
        }
        assert_eq!(lanes.map().len(), 1);
        drop(first);
        assert!(lanes.map().is_empty());
        assert_eq!(lanes.calls.available_permits(), MAX_CALLS as usize);
    }

    #[test]
    fn gc_runs_alone() {
        let lanes = Lanes::new();
        let (a, b) = (container("a"), container("b"));
        let running = ready(poll(pin!(lanes.turn(&a))));
        let mut gc = pin!(lanes.turn_alone());
        assert!(poll(gc.as_mut()).is_pending());
        let mut late = pin!(lanes.turn(&b));
        assert!(poll(late.as_mut()).is_pending());
        drop(running);
        let alone = ready(poll(gc.as_mut()));
        assert!(poll(late.as_mut()).is_pending());
        drop(alone);
        drop(ready(poll(late.as_mut())));
    }

    #[test]
    fn calls_beyond_the_limit_are_rejected() {
        let lanes = Lanes::new();
        let turns: Vec<_> = (0..MAX_CALLS).map(|i| ready(poll(pin!(lanes.turn(&container(&i.to_string())))))).collect();
        let Poll::Ready(Err(error)) = poll(pin!(lanes.turn(&container("more")))) else { panic!("no bound") };
        assert_eq!(error.code, super::super::Code::TryAgainLater);
        assert!(error.details.contains("512 CNI calls"), "{error}");
        drop(turns);
        drop(ready(poll(pin!(lanes.turn(&container("more"))))));
        assert!(lanes.map().is_empty());
    }
}
