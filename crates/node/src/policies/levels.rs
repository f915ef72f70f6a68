//! The order of rules of tiered policies, as OpenFlow priorities.
//!
//! Rules that are evaluated at the same position share a *level*, and each table numbers its levels from the top. The number
//! of a level depends only on the levels in use, not on the order in which they came: an agent that restarts computes the
//! numbers that are in the switch. Each level has a preferred number, and gives way to the levels before it, so a new level
//! moves only those that are crowded right behind it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use pipeline::{BASELINE_PRIORITIES, TIER_PRIORITIES};
use types::control::{Action, Direction, PolicyName, Priority, Rank};

/// A table of rules with priorities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Table {
    direction: Direction,
    is_baseline: bool,
}

impl Table {
    fn numbers(self) -> RangeInclusive<u16> {
        if self.is_baseline { BASELINE_PRIORITIES } else { TIER_PRIORITIES }
    }
}

/// A position in the order of evaluation, from first to last. At equal rank and index, the stricter action comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Position {
    rank: Rank,
    index: u32,
    action: Reverse<Leniency>,
}

/// From the most lenient action to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Leniency {
    Allow,
    Pass,
    Reject,
    Drop,
}

/// The level of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Level {
    table: Table,
    position: Position,
}

impl Level {
    pub(super) fn new(direction: Direction, rank: Rank, index: u32, action: Action) -> Self {
        let leniency = match action {
            Action::Allow => Leniency::Allow,
            Action::Pass => Leniency::Pass,
            Action::Reject => Leniency::Reject,
            Action::Drop => Leniency::Drop,
        };
        let table = Table { direction, is_baseline: rank.is_baseline() };
        Self { table, position: Position { rank, index, action: Reverse(leniency) } }
    }
}

/// The levels in use.
#[derive(Debug, Default)]
pub(super) struct Levels {
    tables: BTreeMap<Table, Numbers>,
    /// The policies with rules at each level.
    users: BTreeMap<Level, BTreeSet<PolicyName>>,
}

/// The levels of one table.
#[derive(Debug, Default)]
struct Numbers {
    /// Below the preferred number of the level and below the number of the level before it. May be too small for the table.
    pushed: BTreeMap<Position, i64>,
    /// The OpenFlow priority of each level.
    assigned: BTreeMap<Position, u16>,
}

impl Levels {
    /// Replaces the levels that a policy uses. Returns the levels of any policy that have another number now.
    pub(super) fn set(
        &mut self,
        policy: &PolicyName,
        before: &BTreeSet<Level>,
        now: &BTreeSet<Level>,
    ) -> BTreeSet<Level> {
        let mut touched: BTreeMap<Table, BTreeSet<Position>> = BTreeMap::new();
        for level in now.difference(before) {
            let users = self.users.entry(*level).or_default();
            if users.is_empty() {
                touched.entry(level.table).or_default().extend(self.numbers(level.table).insert(level));
            }
            self.users.entry(*level).or_default().insert(policy.clone());
        }
        for level in before.difference(now) {
            let Some(users) = self.users.get_mut(level) else { continue };
            users.remove(policy);
            if users.is_empty() {
                self.users.remove(level);
                touched.entry(level.table).or_default().extend(self.numbers(level.table).remove(level));
            }
        }
        let moved = touched.into_iter().flat_map(|(table, positions)| {
            let moved = self.tables.entry(table).or_default().assign(table, positions);
            moved.into_iter().map(move |position| Level { table, position })
        });
        moved.collect()
    }

    /// The OpenFlow priority of a level in use.
    pub(super) fn number(&self, level: &Level) -> Option<u16> {
        self.tables.get(&level.table)?.assigned.get(&level.position).copied()
    }

    /// The policies with rules at a level.
    pub(super) fn users(&self, level: &Level) -> impl Iterator<Item = &PolicyName> {
        self.users.get(level).into_iter().flatten()
    }

    /// Whether a level shares the lowest number with others, because the table has more levels than numbers.
    pub(super) fn shares_number(&self, level: &Level) -> bool {
        let is_crowded = self.tables.get(&level.table).is_some_and(|numbers| numbers.is_crowded(level.table));
        is_crowded && self.number(level) == Some(*level.table.numbers().start())
    }

    fn numbers(&mut self, table: Table) -> &mut Numbers {
        self.tables.entry(table).or_default()
    }
}

impl Numbers {
    /// Adds a level. Returns the positions that may have moved.
    fn insert(&mut self, level: &Level) -> Vec<Position> {
        self.pushed.insert(level.position, i64::MIN);
        self.push(level.table, level.position)
    }

    /// Removes a level. Returns the positions that may have moved.
    fn remove(&mut self, level: &Level) -> Vec<Position> {
        self.pushed.remove(&level.position);
        self.assigned.remove(&level.position);
        self.push(level.table, level.position)
    }

    /// Pushes the levels from a position on below those before them, as far as they are crowded.
    fn push(&mut self, table: Table, from: Position) -> Vec<Position> {
        let mut limit = self.pushed.range(..from).next_back().map_or(i64::MAX, |(_, number)| *number);
        let mut pushed = Vec::new();
        for (position, number) in self.pushed.range_mut(from..) {
            let new = preferred(table, *position).min(limit - 1);
            if *number == new {
                break;
            }
            *number = new;
            limit = new;
            pushed.push(*position);
        }
        pushed
    }

    /// Assigns numbers to positions that were pushed, and to those at the end of the table. Returns those that have another
    /// number now.
    fn assign(&mut self, table: Table, mut touched: BTreeSet<Position>) -> Vec<Position> {
        let numbers = table.numbers();
        let lowest = i64::from(*numbers.start());
        // Levels at the end that were pushed out of the table are lifted again, above each other if there is room.
        let step = i64::from(!self.is_crowded(table));
        let mut number = lowest;
        let mut lifted: BTreeMap<Position, i64> = BTreeMap::new();
        for (position, pushed) in self.pushed.iter().rev() {
            let was_lifted = self.assigned.get(position).is_none_or(|assigned| i64::from(*assigned) > *pushed);
            if *pushed >= number && !was_lifted {
                break;
            }
            lifted.insert(*position, number);
            number += step;
        }
        touched.extend(lifted.keys().copied());
        let mut moved = Vec::new();
        for position in touched {
            let Some(pushed) = self.pushed.get(&position) else { continue };
            let number = (*pushed).max(lifted.get(&position).copied().unwrap_or(lowest));
            let number = u16::try_from(number).unwrap_or(*numbers.end());
            if self.assigned.insert(position, number) != Some(number) {
                moved.push(position);
            }
        }
        moved
    }

    fn is_crowded(&self, table: Table) -> bool {
        self.pushed.len() > table.numbers().len()
    }
}

/// Numbers for each tier before the last one, which is the default and has the rest.
const PER_TIER: i64 = 200;
/// Numbers at the end of each tier for the rules of its last policies.
const LAST_RULES: i64 = 20;
/// Users are advised to keep the priorities of policies below this, so these have half of the numbers.
const COMMON_PRIORITIES: f64 = 100.0;

/// The number of a level in a table without other levels. Tiers and policies are spread, so that there is room between them.
fn preferred(table: Table, position: Position) -> i64 {
    let (first, last) = (i64::from(*table.numbers().end()), i64::from(*table.numbers().start()));
    let (start, length) = if table.is_baseline {
        (0, first - last)
    } else {
        let start = PER_TIER * i64::from(position.rank.tier);
        (start, if position.rank.tier == Rank::LAST_TIER { first - last - start } else { PER_TIER })
    };
    let (lowest, highest) = Priority::RANGE;
    let value = position.rank.priority.value();
    let share = if value <= COMMON_PRIORITIES {
        0.5 * (value - lowest) / (COMMON_PRIORITIES - lowest)
    } else {
        0.5 + 0.5 * (value - COMMON_PRIORITIES) / (highest - COMMON_PRIORITIES)
    };
    first - start - scaled(share, length - LAST_RULES) - i64::from(position.index)
}

/// A share of a length, for shares from 0 to 1 and lengths that a `u16` has.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "lengths are small")]
fn scaled(share: f64, length: i64) -> i64 {
    (share * length as f64) as i64
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use types::ObjectName;
    use types::control::PolicyKind;

    use super::*;

    fn policy(number: usize) -> PolicyName {
        let object = ObjectName { namespace: String::new(), name: format!("p{number}") };
        PolicyName { kind: PolicyKind::AntreaCluster, object }
    }

    fn level(tier: u8, priority: f64, index: u32, action: Action) -> Level {
        let rank = Rank { tier, priority: Priority::try_from(priority).unwrap() };
        Level::new(Direction::Ingress, rank, index, action)
    }

    fn all(levels: &Levels) -> Vec<(Level, u16)> {
        levels.users.keys().map(|level| (*level, levels.number(level).unwrap())).collect()
    }

    fn in_order(levels: &Levels) {
        for pair in all(levels).windows(2) {
            let ((first, a), (second, b)) = (pair[0], pair[1]);
            assert!(first.table != second.table || a > b, "{first:?} has {a}, {second:?} has {b}");
            assert!(first.table.numbers().contains(&a), "{first:?} has {a}");
        }
    }

    #[test]
    fn stricter_actions_come_first_at_equal_rank() {
        let mut levels = Levels::default();
        let actions = [Action::Allow, Action::Drop, Action::Pass, Action::Reject];
        levels.set(&policy(0), &BTreeSet::new(), &actions.map(|action| level(50, 1.0, 0, action)).into());
        let number = |action| levels.number(&level(50, 1.0, 0, action)).unwrap();
        let order = [Action::Drop, Action::Reject, Action::Pass, Action::Allow].map(number);
        assert!(order.is_sorted_by(|a, b| a > b), "{order:?}");
    }

    #[test]
    fn every_number_of_the_baseline_can_be_used_and_more_levels_share_the_last() {
        let mut levels = Levels::default();
        let capacity = BASELINE_PRIORITIES.len();
        let at = |number: usize| {
            BTreeSet::from([level(253, 1.0 + f64::from(u32::try_from(number).unwrap()), 0, Action::Drop)])
        };
        for number in 0..capacity {
            levels.set(&policy(number), &BTreeSet::new(), &at(number));
            in_order(&levels);
        }
        let numbers: BTreeSet<u16> = all(&levels).into_iter().map(|(_, number)| number).collect();
        assert_eq!(numbers, BASELINE_PRIORITIES.collect());
        let shares = |levels: &Levels, number| levels.shares_number(at(number).first().unwrap());
        assert!((0..capacity).all(|number| !shares(&levels, number)));
        levels.set(&policy(capacity), &BTreeSet::new(), &at(capacity));
        assert!(shares(&levels, capacity) && shares(&levels, capacity - 1) && !shares(&levels, 0));
        levels.set(&policy(capacity), &at(capacity), &BTreeSet::new());
        in_order(&levels);
    }

    /// The goal of the benchmark, with the same policies: at most 5 % of the levels move, 99 of 100 times.
    #[test]
    fn a_new_policy_moves_few_others() {
        let mut levels = Levels::default();
        let mut moved: Vec<usize> = Vec::new();
        // A permutation of 1 to 1009, a prime.
        for number in 1..1009_u32 {
            let priority = f64::from(number * 601 % 1009) * 9.9;
            let new = [level(250, priority.max(1.0), 0, Action::Drop), level(250, priority.max(1.0), 1, Action::Allow)];
            let others = levels.set(&policy(number as usize), &BTreeSet::new(), &new.into());
            moved.push(others.len() - new.len());
        }
        in_order(&levels);
        moved.sort_unstable();
        assert!(moved[moved.len() * 99 / 100] <= 2 * 1008 / 20, "{moved:?}");
    }

    fn any_level() -> impl Strategy<Value = Level> {
        let tier = prop_oneof![Just(0), Just(50), Just(51), Just(249), Just(250), Just(253)];
        let priority = prop_oneof![(1_u32..5).prop_map(f64::from), Just(9999.5), Just(10_000.0), Just(1.5)];
        let action = prop_oneof![Just(Action::Allow), Just(Action::Drop), Just(Action::Reject), Just(Action::Pass)];
        (tier, priority, 0_u32..300, action)
            .prop_map(|(tier, priority, index, action)| level(tier, priority, index, action))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// In order after every change, the numbers depend on the levels in use alone, and every move is reported.
        #[test]
        fn numbers_do_not_depend_on_history(
            steps in vec((0_usize..6, vec(any_level(), 0..60)), 1..40)
        ) {
            let mut levels = Levels::default();
            let mut used: BTreeMap<usize, BTreeSet<Level>> = BTreeMap::new();
            for (number, new) in steps {
                let new: BTreeSet<Level> = new.into_iter().collect();
                let before: BTreeMap<Level, u16> = all(&levels).into_iter().collect();
                let old = used.insert(number, new.clone()).unwrap_or_default();
                let moved = levels.set(&policy(number), &old, &new);
                for (level, number) in all(&levels) {
                    let stays = before.get(&level).is_none_or(|before| *before == number);
                    prop_assert!(stays || moved.contains(&level), "{level:?} moved to {number}, not reported");
                }
                let crowded = levels.tables.iter().any(|(table, numbers)| numbers.is_crowded(*table));
                if !crowded {
                    in_order(&levels);
                }
            }
            let mut again = Levels::default();
            for (number, new) in used.iter().rev() {
                again.set(&policy(*number), &BTreeSet::new(), new);
            }
            prop_assert_eq!(all(&levels), all(&again));
        }
    }
}
