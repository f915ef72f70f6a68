//! Who runs when: calls for one container one after the other, GC alone, and not too many in all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{
    Mutex as Lane, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock,
    Semaphore,
};
use tokio::time::timeout;

use super::{ContainerId, Error};

/// Calls in hand, waiting ones included. A Node starts some hundred Pods at once when it boots, and no more.
pub(super) const MOST_CALLS: u32 = 512;

pub(super) struct Lanes {
    /// One for each container with a call in hand.
    lanes: Mutex<BTreeMap<ContainerId, Arc<Lane<()>>>>,
    /// GC writes, all others read.
    everything: Arc<RwLock<()>>,
    calls: Arc<Semaphore>,
}

/// The right to run; whoever waits behind goes on when it is dropped.
pub(super) struct Turn {
    _alone: Alone,
    // Declared after the lock and before the place, so that the place finds the lane as it leaves it.
    _lane: Option<OwnedMutexGuard<()>>,
    _place: Option<Place>,
    _call: OwnedSemaphorePermit,
}

enum Alone {
    No { _read: OwnedRwLockReadGuard<()> },
    Yes { _write: OwnedRwLockWriteGuard<()> },
}

/// A place in the line for a container. The last to leave takes the lane away.
struct Place {
    lanes: Arc<Lanes>,
    container: ContainerId,
}

impl Lanes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::default(),
            everything: Arc::default(),
            calls: Arc::new(Semaphore::new(MOST_CALLS as usize)),
        })
    }

    /// Waits until no call for the container that came before is in hand. The place in the line is taken with the first poll.
    pub(super) async fn turn(self: &Arc<Self>, container: &ContainerId) -> Result<Turn, Error> {
        let call = self.enter()?;
        let lane = Arc::clone(self.map().entry(container.clone()).or_default());
        let place = Place { lanes: Arc::clone(self), container: container.clone() };
        let lane = lane.lock_owned().await;
        let read = Arc::clone(&self.everything).read_owned().await;
        Ok(Turn { _alone: Alone::No { _read: read }, _lane: Some(lane), _place: Some(place), _call: call })
    }

    /// Waits until nothing else runs.
    pub(super) async fn turn_alone(self: &Arc<Self>) -> Result<Turn, Error> {
        let call = self.enter()?;
        let write = Arc::clone(&self.everything).write_owned().await;
        Ok(Turn { _alone: Alone::Yes { _write: write }, _lane: None, _place: None, _call: call })
    }

    /// Waits until no call is in hand; gives how many still are when `patience` is over.
    pub(super) async fn drained(&self, patience: Duration) -> usize {
        match timeout(patience, self.calls.acquire_many(MOST_CALLS)).await {
            Ok(_) => 0,
            Err(_) => MOST_CALLS as usize - self.calls.available_permits(),
        }
    }

    fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let details = format!(
                "{MOST_CALLS} calls are waiting or running; the log of antrea-agent says which have ended, and how"
            );
            tracing::warn!("a CNI call is refused: {details}");
            Error::try_again("antrea-agent has too much to do", details)
        })
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Arc<Lane<()>>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.lanes.map();
        // Others hold a clone, waiting or running.
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
    fn one_container_at_a_time_in_the_order_of_arrival() {
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
    fn who_gives_up_waiting_leaves_nothing_behind() {
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
        assert_eq!(lanes.calls.available_permits(), MOST_CALLS as usize);
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
    fn there_are_never_too_many() {
        let lanes = Lanes::new();
        let turns: Vec<_> =
            (0..MOST_CALLS).map(|i| ready(poll(pin!(lanes.turn(&container(&i.to_string())))))).collect();
        let Poll::Ready(Err(error)) = poll(pin!(lanes.turn(&container("more")))) else { panic!("no bound") };
        assert_eq!(error.code, super::super::Code::TryAgainLater);
        assert!(error.details.contains("512 calls"), "{error}");
        drop(turns);
        drop(ready(poll(pin!(lanes.turn(&container("more"))))));
        assert!(lanes.map().is_empty());
    }
}
