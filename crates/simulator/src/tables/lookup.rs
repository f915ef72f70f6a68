//! The lookup of the flow that matches a packet.

use std::collections::BTreeMap;
use std::sync::Arc;

use openflow::action::Action;
use openflow::flow::Flow;

use super::{Entry, Tables};
use crate::fields::View;

/// The result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The matching flow with the highest priority.
    pub flow: Arc<Flow>,
    /// The conjunction that made it match.
    pub conjunction: Option<u32>,
    /// Whether another flow of the same priority with other actions matches too: the switch may apply either.
    pub tie: bool,
}

/// The best flow so far.
#[derive(Clone, Copy)]
struct Best<'a> {
    entry: &'a Entry,
    tie: bool,
}

impl Tables {
    /// The flow of a table that a packet meets. The view comes back as it was.
    ///
    /// A flow with `conjunction` actions is a clause. When the clauses of the highest priority make a conjunction whole,
    /// the table is searched again with its number, and only among ordinary flows; what is found wins, whatever its
    /// priority. When they do not, flows with the same match and a lower priority take the place of these clauses.
    pub fn lookup(&self, table: u8, view: &mut View) -> Option<Found> {
        let mut clauses = Vec::new();
        let mut best = self.search(table, view, Some(&mut clauses));
        loop {
            let floor = best.map(|best| best.entry.flow.priority);
            clauses.retain(|list: &&[Entry]| {
                list.first().is_some_and(|head| floor.is_none_or(|floor| head.flow.priority > floor))
            });
            let Some(top) = clauses.iter().filter_map(|list| list.first()).map(|head| head.flow.priority).max() else {
                break;
            };
            let heads: Vec<&Entry> =
                clauses.iter().filter_map(|list| list.first()).filter(|head| head.flow.priority == top).collect();
            if let Some(found) = self.conjunction(table, view, &heads) {
                return Some(found);
            }
            for list in &mut clauses {
                if list.first().is_some_and(|head| head.flow.priority == top) {
                    *list = list.get(1..).unwrap_or_default();
                    if let Some(head) = list.first().filter(|head| !head.conjunctive) {
                        best = Best::better(best, head);
                        *list = &[];
                    }
                }
            }
        }
        best.map(|best| Found { flow: best.entry.flow.clone(), conjunction: None, tie: best.tie })
    }

    /// The best ordinary flow; clauses that may beat it are collected, or passed over with all that they hide.
    fn search<'a>(&'a self, table: u8, view: &View, mut clauses: Option<&mut Vec<&'a [Entry]>>) -> Option<Best<'a>> {
        let mut best: Option<Best<'a>> = None;
        for set in &self.tables.get(&table)?.sets {
            if best.is_some_and(|best| set.max_priority() < best.entry.flow.priority) {
                break;
            }
            let values: Vec<u128> = set.bits.iter().map(|(field, mask)| view.get(*field) & mask).collect();
            let Some(list) = set.flows.get(&values) else { continue };
            let Some(head) = list.first() else { continue };
            if !head.conjunctive {
                best = Best::better(best, head);
            } else if let Some(clauses) = &mut clauses {
                clauses.push(list);
            }
        }
        best
    }

    /// The flow of the first conjunction that the clauses of one priority make whole and that has one.
    fn conjunction(&self, table: u8, view: &mut View, heads: &[&Entry]) -> Option<Found> {
        let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
        let mut found: Option<Found> = None;
        for head in heads {
            for action in &head.flow.actions {
                let Action::Conjunction { id, clause, of } = *action else { continue };
                // Each clause takes a flow of its own.
                if usize::from(of) > heads.len() || clause == 0 {
                    continue;
                }
                let mask = seen.entry(id).or_insert(u64::MAX.checked_shl(u32::from(of)).unwrap_or(0));
                *mask |= 1 << ((clause - 1) & 63);
                if *mask != u64::MAX {
                    continue;
                }
                let before = std::mem::replace(&mut view.meta.conj_id, id);
                let flow = self.search(table, view, None);
                view.meta.conj_id = before;
                match (&mut found, flow) {
                    (None, Some(best)) => {
                        let flow = best.entry.flow.clone();
                        found = Some(Found { flow, conjunction: Some(id), tie: best.tie });
                    }
                    (Some(first), Some(other)) if first.flow.actions != other.entry.flow.actions => first.tie = true,
                    _ => {}
                }
                break;
            }
        }
        found
    }
}

impl<'a> Best<'a> {
    fn better(best: Option<Best<'a>>, entry: &'a Entry) -> Option<Best<'a>> {
        match best {
            Some(best) if best.entry.flow.priority > entry.flow.priority => Some(best),
            Some(best) if best.entry.flow.priority == entry.flow.priority => {
                let differs = best.entry.flow.actions != entry.flow.actions;
                Some(Best { tie: best.tie || differs, ..best })
            }
            _ => Some(Best { entry, tie: false }),
        }
    }
}
