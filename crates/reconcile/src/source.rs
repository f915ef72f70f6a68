//! Where the desired state comes from.

use tokio::sync::watch;

/// There will be no other desired state, because the program stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;

/// A desired state with versions.
pub trait Source: Send {
    /// What the actual state should be.
    type Desired: Send;

    /// Completes when there is a version that [`Source::read`] has not returned yet: at once at the start, if there is one. The
    /// future is dropped when a pass is due for another reason, and must not lose a version then.
    fn changed(&mut self) -> impl Future<Output = Result<(), Ended>> + Send;

    /// The current desired state and its version, which belong together. A version that differs from the last one is a new
    /// desired state; the same version is the same state, read again.
    fn read(&mut self) -> impl Future<Output = Result<(u64, Self::Desired), Ended>> + Send;
}

/// The last value of a watch channel, with the number of its changes as version.
#[derive(Clone, Debug)]
pub struct Latest<T> {
    receiver: watch::Receiver<T>,
    version: u64,
    /// Reported by `changed`, and not read yet.
    is_new: bool,
}

impl<T> Latest<T> {
    /// Begins with the current value.
    pub fn new(mut receiver: watch::Receiver<T>) -> Self {
        receiver.mark_changed();
        Self { receiver, version: 0, is_new: false }
    }
}

impl<T: Clone + Send + Sync> Source for Latest<T> {
    type Desired = T;

    async fn changed(&mut self) -> Result<(), Ended> {
        self.receiver.changed().await.map_err(|_| Ended)?;
        self.is_new = true;
        Ok(())
    }

    async fn read(&mut self) -> Result<(u64, T), Ended> {
        let value = self.receiver.borrow_and_update();
        self.version += u64::from(std::mem::take(&mut self.is_new) | value.has_changed());
        Ok((self.version, value.clone()))
    }
}
