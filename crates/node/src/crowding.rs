//! Which addresses hold too much of a connection table that is nearly full, and which of their connections to flush.
//!
//! All Pods of a Node share its connection tables, and a full table accepts no new connection of any Pod. Conntrack zones do not
//! separate Pods: all of them use the same zones. So a table that is nearly full is divided: an address below its share keeps all
//! connections, and one above it is cut down to its share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Percentage of the limit from which a table counts as nearly full.
const NEARLY_FULL: u64 = 85;
/// Percentage of the limit that connections may use after a table was divided.
const DIVIDED: usize = 50;
/// An address that holds less than this fraction of the limit is not cut down.
const MODEST: usize = 16;

/// Usage of a connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Number of tracked connections.
    pub connections: u64,
    /// Maximum number of connections.
    pub limit: u64,
}

impl Load {
    /// Whether the table should be divided now.
    pub fn is_nearly_full(self) -> bool {
        self.limit > 0 && self.connections.saturating_mul(100) >= self.limit.saturating_mul(NEARLY_FULL)
    }
}

/// The properties of a connection that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// The source of its first packet.
    pub initiator: IpAddr,
    /// Whether it was answered. One that was not is cheap to lose: its next packet recreates it.
    pub is_answered: bool,
    /// Seconds until it expires if no packet follows.
    pub timeout: u32,
}

/// An address with more than its share of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excess {
    /// Source address of the connections.
    pub initiator: IpAddr,
    /// Number of connections it holds.
    pub held: usize,
    /// Number of connections that is its share.
    pub share: usize,
    /// The connections to flush: all unanswered ones, then the oldest.
    pub surplus: Vec<usize>,
}

/// The addresses with too many connections for a table with this limit, worst first, and which of the listed connections to flush.
/// Connections of `exempt` addresses are kept.
pub fn crowding(listed: &[Tracked], limit: u64, exempt: &BTreeSet<IpAddr>) -> Vec<Excess> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut holders: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
    for (index, one) in listed.iter().enumerate().filter(|(_, one)| !exempt.contains(&one.initiator)) {
        holders.entry(one.initiator).or_default().push(index);
    }
    let share = share(holders.values().map(Vec::len).collect(), limit / 100 * DIVIDED + limit % 100 * DIVIDED / 100);
    let is_crowding = |held: &Vec<usize>| held.len() > share && held.len() > limit / MODEST;
    let mut all: Vec<Excess> = holders
        .into_iter()
        .filter(|(_, held)| is_crowding(held))
        .map(|(initiator, mut held)| {
            let one = |index: &usize| listed.get(*index).map(|one| (one.is_answered, one.timeout));
            held.sort_by_key(one);
            let unanswered = held.iter().filter(|index| one(index).is_none_or(|(is_answered, _)| !is_answered)).count();
            let count = held.len();
            held.truncate(unanswered.max(count - share));
            Excess { initiator, held: count, share, surplus: held }
        })
        .collect();
    all.sort_by_key(|excess| std::cmp::Reverse(excess.held));
    all
}

/// The largest share for which the total does not exceed `room`, if each address holds at most its share.
fn share(mut held: Vec<usize>, mut room: usize) -> usize {
    held.sort_unstable();
    let mut left = held.len();
    for count in held {
        if count.saturating_mul(left) > room {
            return room / left;
        }
        room -= count;
        left -= 1;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 10, 1, n])
    }

    /// Connections of one initiator.
    fn some(n: u8, count: usize, is_answered: bool) -> Vec<Tracked> {
        (0..count).map(|age| Tracked { initiator: ip(n), is_answered, timeout: u32::try_from(age).unwrap() }).collect()
    }

    fn brief(all: &[Excess]) -> Vec<(IpAddr, usize, usize)> {
        all.iter().map(|excess| (excess.initiator, excess.held, excess.surplus.len())).collect()
    }

    #[test]
    fn a_table_is_nearly_full_in_time() {
        let load = |connections| Load { connections, limit: 1000 };
        assert!(load(850).is_nearly_full() && !load(849).is_nearly_full());
        assert!(!Load::default().is_nearly_full(), "an unknown load needs no action");
    }

    #[test]
    fn an_address_that_fills_the_table_is_cut_down_and_the_others_keep_all() {
        let listed = [some(1, 700, true), some(2, 100, true), some(3, 100, false)].concat();
        let all = crowding(&listed, 1000, &BTreeSet::new());
        // Half of the table for all: the others need 200 of it.
        assert_eq!(brief(&all), [(ip(1), 700, 400)]);
        assert_eq!(all[0].share, 300);
        let lost: BTreeSet<u32> = all[0].surplus.iter().map(|index| listed[*index].timeout).collect();
        assert_eq!(lost, (0..400).collect(), "the oldest are flushed");
    }

    #[test]
    fn unanswered_connections_go_first_and_all_of_them() {
        let listed = [some(1, 100, true), some(1, 800, false), some(2, 10, false)].concat();
        let all = crowding(&listed, 1000, &BTreeSet::new());
        assert_eq!(brief(&all), [(ip(1), 900, 800)]);
        assert!(all[0].surplus.iter().all(|index| !listed[*index].is_answered));
    }

    #[test]
    fn two_crowding_addresses_are_cut_down_to_the_same_share_worst_first() {
        let listed = [some(1, 300, true), some(2, 600, true), some(3, 50, true)].concat();
        assert_eq!(brief(&crowding(&listed, 1000, &BTreeSet::new())), [(ip(2), 600, 375), (ip(1), 300, 75)]);
    }

    #[test]
    fn small_holders_and_exempt_addresses_lose_nothing() {
        let listed: Vec<Tracked> = (0..200).flat_map(|n| some(n, 5, true)).collect();
        assert_eq!(crowding(&listed, 1000, &BTreeSet::new()), []);
        assert_eq!(crowding(&some(1, 950, true), 1000, &[ip(1)].into()), []);
        assert_eq!(crowding(&some(1, 400, false), 1000, &BTreeSet::new()), [], "there is room for them");
        assert_eq!(crowding(&[], 0, &BTreeSet::new()), []);
    }
}
