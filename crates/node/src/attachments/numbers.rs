//! OpenFlow ports that Pod ports request (`ofport_request`): flows can be installed before the port exists, and the port keeps its
//! number when the switch restarts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Range for Pods: the switch assigns low numbers to ports without a request, and OpenFlow reserves the highest.
const RANGE: RangeInclusive<u16> = 16..=0xfe00;

/// Assigns numbers round robin, so that a number is reused as late as possible: stale state may still refer to its last port.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: Option<u16>,
}

impl Numbers {
    pub(crate) fn last(&self) -> Option<u16> {
        self.last
    }

    pub(crate) fn resume(&mut self, last: Option<u16>) {
        self.last = last;
    }

    /// The next free number; `None` if all are taken.
    pub(super) fn reserve(&mut self, taken: &BTreeSet<u16>) -> Option<u16> {
        // After a start: continue after the highest number in use.
        let last = self.last.or_else(|| taken.range(RANGE).next_back().copied()).unwrap_or(*RANGE.end());
        let behind = (last.saturating_add(1)..=*RANGE.end()).chain(*RANGE.start()..=last);
        let number = behind.into_iter().find(|number| !taken.contains(number))?;
        self.last = Some(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(numbers: &mut Numbers, taken: &[u16]) -> Option<u16> {
        numbers.reserve(&taken.iter().copied().collect())
    }

    #[test]
    fn a_number_is_reused_only_after_all_others() {
        let mut numbers = Numbers::default();
        assert_eq!(next(&mut numbers, &[1, 2]), Some(16));
        assert_eq!(next(&mut numbers, &[1, 2, 17, 18]), Some(19));
        assert_eq!(next(&mut numbers, &[1, 2]), Some(20));
        numbers.last = Some(0xfdff);
        assert_eq!(next(&mut numbers, &[0xfe00]), Some(16));
    }

    #[test]
    fn after_a_start_numbers_continue_after_the_highest_in_use() {
        assert_eq!(next(&mut Numbers::default(), &[1, 2, 40, 0xfffe]), Some(41));
    }

    #[test]
    fn no_number_is_assigned_when_all_are_taken() {
        let all: Vec<u16> = RANGE.collect();
        assert_eq!(next(&mut Numbers::default(), &all), None);
    }
}
