//! Cables that are being removed while nobody waits for it.
//!
//! The kernel takes tens of milliseconds to forget a device, and a Pod whose port is out of the bridge is disconnected before that.
//! So a runtime is not kept waiting. What must not happen is that a removal which is late hits a new cable: whoever plugs one
//! waits first for what is in its way. An agent that is killed meanwhile finds the cable when it starts, since no port has it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::warn;

/// The cables that are being removed: the device on the host, and the path of the Pod's namespace where it is known.
#[derive(Clone, Debug)]
pub(super) struct Removals(Arc<watch::Sender<BTreeMap<String, Option<String>>>>);

impl Removals {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// Begins to remove a cable; `removal` does it. Where that has begun before, once is enough.
    pub(super) fn begin(
        &self,
        device: String,
        netns: Option<String>,
        removal: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        // A new cable of this name would have waited for the end of the one that is under way.
        let begun = self.0.send_if_modified(|under_way| match under_way.entry(device.clone()) {
            Entry::Vacant(place) => {
                place.insert(netns);
                true
            }
            Entry::Occupied(_) => false,
        });
        if !begun {
            return;
        }
        let removals = self.clone();
        tokio::spawn(async move {
            if let Err(error) = removal.await {
                warn!(device, error, "could not be removed; the next start of the agent will try again");
            }
            removals.0.send_modify(|under_way| _ = under_way.remove(&device));
        });
    }

    /// Waits until nothing is being removed that would be in the way of this cable.
    pub(super) async fn make_way(&self, device: &str, netns: &str) {
        let in_the_way = |(name, of): (&String, &Option<String>)| name == device || of.as_deref() == Some(netns);
        self.wait(|under_way| !under_way.iter().any(in_the_way)).await;
    }

    /// Waits until nothing is being removed.
    pub(super) async fn ended(&self) {
        self.wait(BTreeMap::is_empty).await;
    }

    async fn wait(&self, done: impl FnMut(&BTreeMap<String, Option<String>>) -> bool) {
        // The sender is `self`, so it is there.
        let _ = self.0.subscribe().wait_for(done).await;
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
    async fn a_new_cable_waits_for_what_is_in_its_way_and_for_nothing_else() {
        let removals = Removals::new();
        let (kernel, removal) = oneshot::channel();
        removals.begin("web-1".to_owned(), Some("/netns/a".to_owned()), async { removal.await.unwrap() });
        // A DEL that is repeated.
        removals.begin("web-1".to_owned(), None, async { panic!("removed twice at a time") });
        let (mut by_name, mut by_netns) =
            (pin!(removals.make_way("web-1", "/netns/b")), pin!(removals.make_way("db-1", "/netns/a")));
        let mut all = pin!(removals.ended());
        assert_eq!(poll(pin!(removals.make_way("db-1", "/netns/b"))), Poll::Ready(()));
        tokio::task::yield_now().await;
        for waiting in [poll(by_name.as_mut()), poll(by_netns.as_mut()), poll(all.as_mut())] {
            assert_eq!(waiting, Poll::Pending);
        }
        // One that fails is over, too: the next start tries again.
        kernel.send(Err("no memory".to_owned())).unwrap();
        by_name.await;
        by_netns.await;
        all.await;
    }
}
