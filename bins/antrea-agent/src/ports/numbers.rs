//! OpenFlow ports that Pod ports request (`ofport_request`): flows can be installed before the port exists, and the port keeps its
//! number when the switch restarts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Range for Pods: the switch assigns low numbers to ports without a request, and OpenFlow reserves the highest.
const RANGE: RangeInclusive<u16> = 16..=0xfe00;

/// Assigns numbers round robin, so that a number is reused as late as possible: stale state may still refer to its last port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    last: Option<u16>,
    /// Reserved for ports that may not be in OVSDB yet.
    reserved: BTreeSet<u16>,
}

/// A number that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    number: u16,
    numbers: Numbers,
}

impl Numbers {
    /// Reserves the next free number; `None` if all are taken.
    pub(super) fn reserve(&self, taken: &BTreeSet<u16>) -> Option<Reserved> {
        let mut state = self.lock();
        // After a start: continue after the highest number in use.
        let last = state.last.or_else(|| taken.range(RANGE).next_back().copied()).unwrap_or(*RANGE.end());
        let behind = RANGE.skip_while(|number| *number <= last).chain(RANGE.take_while(|number| *number <= last));
        let number = behind.into_iter().find(|number| !taken.contains(number) && !state.reserved.contains(number))?;
        state.last = Some(number);
        state.reserved.insert(number);
        drop(state);
        Some(Reserved { number, numbers: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays consistent even if a thread panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.numbers.lock().reserved.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(numbers: &Numbers, taken: &[u16]) -> Option<u16> {
        numbers.reserve(&taken.iter().copied().collect()).map(|reserved| reserved.number())
    }

    #[test]
    fn a_number_is_reused_only_after_all_others() {
        let numbers = Numbers::default();
        assert_eq!(next(&numbers, &[1, 2]), Some(16));
        assert_eq!(next(&numbers, &[1, 2, 17, 18]), Some(19));
        assert_eq!(next(&numbers, &[1, 2]), Some(20));
        numbers.lock().last = Some(0xfdff);
        assert_eq!(next(&numbers, &[0xfe00]), Some(16));
    }

    #[test]
    fn after_a_start_numbers_continue_after_the_highest_in_use() {
        assert_eq!(next(&Numbers::default(), &[1, 2, 40, 0xfffe]), Some(41));
    }

    #[test]
    fn a_reserved_number_is_not_assigned_again() {
        let numbers = Numbers::default();
        let reserved = numbers.reserve(&BTreeSet::new()).unwrap();
        numbers.lock().last = Some(15);
        assert_eq!((reserved.number(), next(&numbers, &[])), (16, Some(17)));
        drop(reserved);
        numbers.lock().last = Some(15);
        assert_eq!(next(&numbers, &[]), Some(16));
    }

    #[test]
    fn no_number_is_assigned_when_all_are_taken() {
        let all: Vec<u16> = RANGE.collect();
        assert_eq!(next(&Numbers::default(), &all), None);
    }
}
