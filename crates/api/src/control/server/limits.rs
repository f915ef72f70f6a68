//! Limits unauthenticated connections per client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Covers the API server's proxy, and agents that are being authenticated.
const MAX_PER_ADDRESS: usize = 64;

/// The number of unauthenticated connections by address.
#[derive(Clone, Default)]
pub(super) struct AddressLimits(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl AddressLimits {
    /// Counts a connection from an address; `None` if there are too many.
    pub(super) fn acquire(&self, from: IpAddr) -> Option<Slot> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(from).or_default();
        if *count == MAX_PER_ADDRESS {
            return None;
        }
        *count += 1;
        let counted = Counted { limits: self.clone(), from };
        Some(Slot(Arc::new(Mutex::new(Some(counted)))))
    }
}

/// A counted connection. It counts until it ends or an agent authenticates on it.
#[derive(Clone)]
pub(super) struct Slot(Arc<Mutex<Option<Counted>>>);

impl Slot {
    /// An agent has authenticated: the connection no longer counts.
    pub(super) fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

struct Counted {
    limits: AddressLimits,
    from: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_per_address() {
        let limits = AddressLimits::default();
        let (one, two) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut here: Vec<Slot> = (0..MAX_PER_ADDRESS).map(|_| limits.acquire(one).unwrap()).collect();
        assert!(limits.acquire(one).is_none());
        assert!(limits.acquire(two).is_some());
        // One authenticates, one ends.
        here[0].release();
        here.pop();
        let more = [limits.acquire(one).unwrap(), limits.acquire(one).unwrap()];
        assert!(limits.acquire(one).is_none());
        drop((here, more));
        assert!(limits.0.lock().unwrap().is_empty());
    }
}
