//! Who is connected and has not been let in: so many from one address, and no more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of one address without an agent's stream: the API server's, and agents that are being asked who they are.
const MOST: usize = 64;

/// How many connections each address has that no agent was let in on.
#[derive(Clone, Default)]
pub(super) struct Visits(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Visits {
    /// One more from this address, if it has not too many already.
    pub(super) fn begin(&self, from: IpAddr) -> Option<Visit> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(from).or_default();
        if *count == MOST {
            return None;
        }
        *count += 1;
        let counted = Counted { visits: self.clone(), from };
        Some(Visit(Arc::new(Mutex::new(Some(counted)))))
    }
}

/// A connection, which counts until it ends or an agent is let in on it. Requests carry it.
#[derive(Clone)]
pub(super) struct Visit(Arc<Mutex<Option<Counted>>>);

impl Visit {
    /// An agent was let in: it counts no more.
    pub(super) fn admitted(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

struct Counted {
    visits: Visits,
    from: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.visits.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn an_address_has_so_many_and_no_more_and_takes_nothing_from_others() {
        let visits = Visits::default();
        let (one, two) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut here: Vec<Visit> = (0..MOST).map(|_| visits.begin(one).unwrap()).collect();
        assert!(visits.begin(one).is_none());
        assert!(visits.begin(two).is_some());
        // One is let in, one goes.
        here[0].admitted();
        here.pop();
        let more = [visits.begin(one).unwrap(), visits.begin(one).unwrap()];
        assert!(visits.begin(one).is_none());
        drop((here, more));
        assert!(visits.0.lock().unwrap().is_empty());
    }
}
