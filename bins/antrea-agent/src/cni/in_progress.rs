//! Removals that continue after DEL has returned: of veths and of addresses.
//!
//! The kernel takes tens of milliseconds to delete a device, and the switch some to flush connections. A Pod without a port in
//! the bridge is already disconnected, so DEL does not wait for either. A late removal must not affect a new Pod: ADD waits for
//! removals of what it is about to use. If the agent is killed meanwhile, its next start finds the leftovers, since they have
//! no port.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tokio::sync::watch;

/// Removals in progress, by what is removed.
#[derive(Debug)]
pub(super) struct InProgress<K, V>(Arc<watch::Sender<BTreeMap<K, V>>>);

/// Removals of veths: the device on the host, and the path of the Pod's network namespace if it is known.
pub(super) type Removals = InProgress<String, Option<String>>;
/// Releases of addresses, by their owner in the IPAM store.
pub(super) type Releases = InProgress<host::ipam::Owner, ()>;

impl<K, V> Clone for InProgress<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> InProgress<K, V> {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// Starts `removal`, unless one of this key is in progress.
    pub(super) fn begin(&self, key: K, value: V, removal: impl Future<Output = ()> + Send + 'static) {
        // It cannot be an older object: an ADD that reuses the key waits for the removal first.
        let begun = self.0.send_if_modified(|in_progress| match in_progress.entry(key.clone()) {
            Entry::Vacant(place) => {
                place.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        });
        if !begun {
            return;
        }
        let removals = self.clone();
        tokio::spawn(async move {
            removal.await;
            removals.0.send_modify(|in_progress| _ = in_progress.remove(&key));
        });
    }

    /// Waits for the removal of this key.
    pub(super) async fn wait_for(&self, key: &K) {
        self.wait_until(|in_progress| !in_progress.contains_key(key)).await;
    }

    /// Whether a removal of this key is in progress.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.0.borrow().contains_key(key)
    }

    /// The number of removals in progress.
    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits until fewer than `count` removals are in progress.
    pub(super) async fn fewer_than(&self, count: usize) {
        self.wait_until(|in_progress| in_progress.len() < count).await;
    }

    /// Waits for all removals.
    pub(super) async fn wait_for_all(&self) {
        self.wait_until(BTreeMap::is_empty).await;
    }

    async fn wait_until(&self, done: impl FnMut(&BTreeMap<K, V>) -> bool) {
        // Cannot fail: `self` is the sender.
        let _ = self.0.subscribe().wait_for(done).await;
    }
}

impl Removals {
    /// Waits for removals that would conflict with a new veth: of the same name, or in the same network namespace.
    pub(super) async fn wait_for_conflicts(&self, device: &str, netns: &str) {
        let conflicts = |(name, of): (&String, &Option<String>)| name == device || of.as_deref() == Some(netns);
        self.wait_until(|in_progress| !in_progress.iter().any(conflicts)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::oneshot;

    use super::*;

    fn poll(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn a_new_veth_waits_only_for_removals_that_conflict_with_it() {
        let removals = Removals::new();
        let (kernel, removal) = oneshot::channel();
        removals.begin("web-1".to_owned(), Some("/netns/a".to_owned()), async { removal.await.unwrap() });
        // A repeated DEL.
        removals.begin("web-1".to_owned(), None, async { panic!("removed twice at a time") });
        let (mut by_name, mut by_netns) = (
            pin!(removals.wait_for_conflicts("web-1", "/netns/b")),
            pin!(removals.wait_for_conflicts("db-1", "/netns/a")),
        );
        let web = "web-1".to_owned();
        let (mut it, mut all) = (pin!(removals.wait_for(&web)), pin!(removals.wait_for_all()));
        assert_eq!(poll(pin!(removals.wait_for_conflicts("db-1", "/netns/b"))), Poll::Ready(()));
        tokio::task::yield_now().await;
        for waiting in [poll(by_name.as_mut()), poll(by_netns.as_mut()), poll(it.as_mut()), poll(all.as_mut())] {
            assert_eq!(waiting, Poll::Pending);
        }
        kernel.send(()).unwrap();
        by_name.await;
        by_netns.await;
        it.await;
        all.await;
    }
}
