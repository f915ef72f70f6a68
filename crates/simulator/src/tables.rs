//! The flow tables: lookup, changes and timeouts of flows.
//!
//! Flows that look at the same bits are kept together and found by the values of these bits, so a lookup costs a search
//! for each set of bits, not for each flow. Where two flows of one priority match, OpenFlow leaves open which one wins.
//! Here, as in Open vSwitch, it is the one whose set of bits has the flow of the highest priority, then the one whose set
//! came into the table first; the lookup says that there was a tie.

mod lookup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::{ALL_TABLES, Flow, FlowCommand, FlowMod};
use openflow::group::ALL_GROUPS;
use openflow::matching::Match;

pub use lookup::Found;

/// Time since some start.
pub type Time = Duration;

/// All flow tables of a switch.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    tables: BTreeMap<u8, Table>,
    /// Flows that may time out.
    timed: BTreeSet<Key>,
    /// How many flows have a `learn` with `delete_learned`, by cookie and table of what it learns.
    teachers: BTreeMap<(u64, u8), usize>,
    /// How many sets of bits there have ever been.
    born: u64,
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// The highest priority first, then the oldest.
    sets: Vec<BitSet>,
}

/// Flows that look at the same bits.
#[derive(Clone, Debug)]
struct BitSet {
    bits: Vec<(Field, u128)>,
    born: u64,
    priorities: BTreeMap<u16, usize>,
    /// By the values of the bits; the highest priority first.
    flows: BTreeMap<Vec<u128>, Vec<Entry>>,
}

#[derive(Clone, Debug)]
struct Entry {
    flow: Arc<Flow>,
    modified: Time,
    used: Time,
    conjunctive: bool,
}

/// The identity of a flow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    table: u8,
    priority: u16,
    matches: Match,
}

impl Key {
    fn of(flow: &Flow) -> Self {
        Self { table: flow.table, priority: flow.priority, matches: flow.matches.clone() }
    }
}

fn bits_of(matches: &Match) -> (Vec<(Field, u128)>, Vec<u128>) {
    matches.fields().map(|(field, value, mask)| ((field, mask), value)).unzip()
}

impl BitSet {
    fn max_priority(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(priority, _)| *priority)
    }
}

impl Tables {
    /// A switch without any flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flow, in place of one with the same table, priority and match. A flow whose match has fields that are not
    /// known never matches, so it is left out.
    pub fn add(&mut self, now: Time, flow: Flow) {
        if flow.matches.unknown().next().is_some() {
            return;
        }
        let entry = Entry {
            conjunctive: flow.actions.iter().any(|action| matches!(action, Action::Conjunction { .. })),
            flow: Arc::new(flow),
            modified: now,
            used: now,
        };
        self.put(entry);
    }

    /// Changes the flow with the same table, priority and match, or adds it if there is none: what `learn` does. With `limit`
    /// flows of its cookie in the table it does neither; 0 is no limit.
    pub fn learn(&mut self, now: Time, flow: Flow, limit: u32) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if limit != 0 && self.count(flow.table, flow.cookie) >= limit {
            return;
        }
        let key = Key::of(&flow);
        match self.entry(&key) {
            None => self.add(now, flow),
            Some(entry) => {
                let used = entry.used;
                let old = &entry.flow;
                let changed = Flow { idle_timeout: old.idle_timeout, hard_timeout: old.hard_timeout, ..flow };
                self.put(Entry { flow: Arc::new(changed), modified: now, used, conjunctive: false });
            }
        }
    }

    /// Applies a flow-mod as the switch does.
    pub fn apply(&mut self, now: Time, flow_mod: &FlowMod) {
        let FlowMod { command, flow, cookie_mask, .. } = flow_mod;
        let strict = matches!(command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        match command {
            FlowCommand::Add => self.add(now, flow.clone()),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                for key in self.chosen(flow, *cookie_mask, strict) {
                    let Some(mut entry) = self.entry(&key).cloned() else { continue };
                    entry.flow = Arc::new(Flow {
                        actions: flow.actions.clone(),
                        goto_table: flow.goto_table,
                        ..entry.flow.as_ref().clone()
                    });
                    entry.conjunctive = flow.actions.iter().any(|action| matches!(action, Action::Conjunction { .. }));
                    entry.modified = now;
                    self.put(entry);
                }
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                for key in self.chosen(flow, *cookie_mask, strict) {
                    self.remove(&key);
                }
            }
        }
    }

    /// Removes every flow that uses a group, as the switch does when the group is deleted.
    pub fn remove_users_of_group(&mut self, group: u32) {
        let uses = |action: &Action| matches!(action, Action::Group(id) if group == *id || group == ALL_GROUPS);
        let users: Vec<Key> =
            self.flows().filter(|flow| flow.actions.iter().any(uses)).map(|flow| Key::of(flow)).collect();
        for key in users {
            self.remove(&key);
        }
    }

    /// Removes expired flows, and returns them.
    pub fn expire(&mut self, now: Time) -> Vec<Arc<Flow>> {
        let over = |since: Time, timeout: u16| timeout != 0 && now >= since + Duration::from_secs(u64::from(timeout));
        let dead: Vec<Key> = self
            .timed
            .iter()
            .filter(|key| {
                self.entry(key).is_some_and(|entry| {
                    over(entry.modified, entry.flow.hard_timeout) || over(entry.used, entry.flow.idle_timeout)
                })
            })
            .cloned()
            .collect();
        dead.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// All flows, by table and by the bits they look at.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        let sets = self.tables.values().flat_map(|table| &table.sets);
        sets.flat_map(|set| set.flows.values().flatten()).map(|entry| &entry.flow)
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.flows().count()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.flows().next().is_none()
    }

    /// How many flows of a table have a cookie; what a limit on learning counts.
    fn count(&self, table: u8, cookie: u64) -> usize {
        self.flows().filter(|flow| flow.table == table && flow.cookie == cookie).count()
    }

    pub(crate) fn has_timeouts(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Refreshes the idle timeout of a flow.
    pub(crate) fn touch(&mut self, now: Time, flow: &Flow) {
        let key = Key::of(flow);
        if self.timed.contains(&key)
            && let Some(entry) = self.entry_mut(&key)
        {
            entry.used = now;
        }
    }

    /// Flows that a modify or delete request matches.
    fn chosen(&self, wanted: &Flow, cookie_mask: u64, strict: bool) -> Vec<Key> {
        let chosen = |flow: &&Arc<Flow>| {
            let same = flow.table == wanted.table && flow.priority == wanted.priority && flow.matches == wanted.matches;
            (flow.cookie ^ wanted.cookie) & cookie_mask == 0
                && if strict {
                    same
                } else {
                    (wanted.table == ALL_TABLES || wanted.table == flow.table) && covers(&wanted.matches, &flow.matches)
                }
        };
        self.flows().filter(chosen).map(|flow| Key::of(flow)).collect()
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        let (bits, values) = bits_of(&key.matches);
        let set = self.tables.get(&key.table)?.sets.iter().find(|set| set.bits == bits)?;
        set.flows.get(&values)?.iter().find(|entry| entry.flow.priority == key.priority)
    }

    fn entry_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let (bits, values) = bits_of(&key.matches);
        let set = self.tables.get_mut(&key.table)?.sets.iter_mut().find(|set| set.bits == bits)?;
        set.flows.get_mut(&values)?.iter_mut().find(|entry| entry.flow.priority == key.priority)
    }

    fn put(&mut self, entry: Entry) {
        let key = Key::of(&entry.flow);
        let old = self.entry(&key).map(|entry| entry.flow.clone());
        for teacher in teaches(&entry.flow) {
            *self.teachers.entry(teacher).or_default() += 1;
        }
        if entry.flow.idle_timeout != 0 || entry.flow.hard_timeout != 0 {
            self.timed.insert(key.clone());
        } else {
            self.timed.remove(&key);
        }
        if let Some(slot) = self.entry_mut(&key) {
            *slot = entry;
        } else {
            self.insert(&key, entry);
        }
        if let Some(old) = old {
            self.forget_lessons(&old);
        }
    }

    fn insert(&mut self, key: &Key, entry: Entry) {
        let (bits, values) = bits_of(&key.matches);
        let table = self.tables.entry(key.table).or_default();
        let at = table.sets.iter().position(|set| set.bits == bits).unwrap_or_else(|| {
            self.born += 1;
            table.sets.push(BitSet { bits, born: self.born, priorities: BTreeMap::new(), flows: BTreeMap::new() });
            table.sets.len() - 1
        });
        if let Some(set) = table.sets.get_mut(at) {
            let before = set.priorities.last_key_value().map(|(priority, _)| *priority);
            *set.priorities.entry(key.priority).or_default() += 1;
            let flows = set.flows.entry(values).or_default();
            let place = flows.partition_point(|other| other.flow.priority > key.priority);
            flows.insert(place, entry);
            if before.is_none_or(|before| before < key.priority) {
                table.sort();
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Flow>> {
        let (bits, values) = bits_of(&key.matches);
        let table = self.tables.get_mut(&key.table)?;
        let at = table.sets.iter().position(|set| set.bits == bits)?;
        let set = table.sets.get_mut(at)?;
        let flows = set.flows.get_mut(&values)?;
        let place = flows.iter().position(|entry| entry.flow.priority == key.priority)?;
        let removed = flows.remove(place).flow;
        if flows.is_empty() {
            set.flows.remove(&values);
        }
        if let Some(count) = set.priorities.get_mut(&key.priority) {
            *count -= 1;
            if *count == 0 {
                set.priorities.remove(&key.priority);
            }
        }
        if set.flows.is_empty() {
            table.sets.remove(at);
        }
        table.sort();
        self.timed.remove(key);
        self.forget_lessons(&removed);
        Some(removed)
    }

    /// Removes learned flows (`delete_learned`), unless another flow learns with the same cookie.
    fn forget_lessons(&mut self, flow: &Flow) {
        for (cookie, table) in teaches(flow) {
            let left = self.teachers.entry((cookie, table)).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.teachers.remove(&(cookie, table));
                let learned: Vec<Key> = self
                    .flows()
                    .filter(|flow| flow.table == table && flow.cookie == cookie)
                    .map(|flow| Key::of(flow))
                    .collect();
                for key in learned {
                    self.remove(&key);
                }
            }
        }
    }
}

impl Table {
    fn sort(&mut self) {
        self.sets.sort_by_key(|set| (std::cmp::Reverse(set.max_priority()), set.born));
    }
}

/// Cookie and table of what a flow learns and takes along when it goes.
fn teaches(flow: &Flow) -> Vec<(u64, u8)> {
    let lesson = |action: &Action| match action {
        Action::Learn(learn) if learn.delete_learned => Some((learn.cookie, learn.table)),
        _ => None,
    };
    flow.actions.iter().filter_map(lesson).collect()
}

/// Whether every packet that meets `narrow` meets `wide`, as a loose delete asks: the same conditions, or more.
fn covers(wide: &Match, narrow: &Match) -> bool {
    wide.fields().all(|(field, value, mask)| {
        narrow.get(field).is_some_and(|(other, bits)| bits & mask == mask && other & mask == value)
    })
}

#[cfg(test)]
mod tests;
