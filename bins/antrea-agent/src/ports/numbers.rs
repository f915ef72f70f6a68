//! Numbers for ports, asked for before the switch knows a port: so its flows need not wait for it, and it has the same number after the
//! switch was restarted.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What Pods' ports may have: the switch begins with low numbers for ports that do not ask, and OpenFlow keeps the highest.
const RANGE: RangeInclusive<u16> = 16..=0xfe00;

/// Gives numbers in turn: one that is free again was somebody's long ago, and nobody remembers whose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    last: Option<u16>,
    /// Given to ports that the database may not have yet.
    under_way: BTreeSet<u16>,
}

/// A number that nobody else gets as long as this is there.
#[derive(Debug)]
pub(crate) struct Reserved {
    number: u16,
    numbers: Numbers,
}

impl Numbers {
    /// The next number that no port has; none if all are taken.
    pub(super) fn reserve(&self, taken: &BTreeSet<u16>) -> Option<Reserved> {
        let mut state = self.lock();
        // After a start: behind all that are there.
        let last = state.last.or_else(|| taken.range(RANGE).next_back().copied()).unwrap_or(*RANGE.end());
        let behind = RANGE.skip_while(|number| *number <= last).chain(RANGE.take_while(|number| *number <= last));
        let number = behind.into_iter().find(|number| !taken.contains(number) && !state.under_way.contains(number))?;
        state.last = Some(number);
        state.under_way.insert(number);
        drop(state);
        Some(Reserved { number, numbers: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it; and if somebody did, it is as good as before.
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
        self.numbers.lock().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(numbers: &Numbers, taken: &[u16]) -> Option<u16> {
        numbers.reserve(&taken.iter().copied().collect()).map(|reserved| reserved.number())
    }

    #[test]
    fn a_number_comes_again_only_after_all_others() {
        let numbers = Numbers::default();
        assert_eq!(next(&numbers, &[1, 2]), Some(16));
        assert_eq!(next(&numbers, &[1, 2, 17, 18]), Some(19));
        assert_eq!(next(&numbers, &[1, 2]), Some(20));
        numbers.lock().last = Some(0xfdff);
        assert_eq!(next(&numbers, &[0xfe00]), Some(16));
    }

    #[test]
    fn after_a_start_numbers_begin_behind_those_that_are_there() {
        assert_eq!(next(&Numbers::default(), &[1, 2, 40, 0xfffe]), Some(41));
    }

    #[test]
    fn nobody_gets_a_number_that_is_under_way() {
        let numbers = Numbers::default();
        let reserved = numbers.reserve(&BTreeSet::new()).unwrap();
        numbers.lock().last = Some(15);
        assert_eq!((reserved.number(), next(&numbers, &[])), (16, Some(17)));
        drop(reserved);
        numbers.lock().last = Some(15);
        assert_eq!(next(&numbers, &[]), Some(16));
    }

    #[test]
    fn where_all_numbers_are_taken_there_is_none() {
        let all: Vec<u16> = RANGE.collect();
        assert_eq!(next(&Numbers::default(), &all), None);
    }
}
