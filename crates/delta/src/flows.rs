//! Flows as a ledger keeps them.

mod shared;

use std::borrow::Cow;
use std::cmp::Ordering;

use openflow::action::Action;
use openflow::flow::{EncodedFlow, Flow};

use crate::hash::StableHasher;
use crate::ledger::{Claim, ListedObject, Object};
use crate::report::Subject;
use crate::target::{Target, targets};
pub(crate) use shared::SharedFlow;

/// Bytes of a key that are compared first: enough for an address after the fields that flows of a table have in common.
const PREFIX: usize = 28;

impl Object for EncodedFlow {
    type Prefix = [u8; PREFIX];

    #[inline]
    fn key_prefix(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        let [table, high, low, rest @ ..] = &mut prefix;
        *table = self.table();
        [*high, *low] = self.priority().to_be_bytes();
        for (to, from) in rest.iter_mut().zip(self.match_bytes()) {
            *to = *from;
        }
        prefix
    }

    #[inline]
    fn key_hash(&self) -> u32 {
        let mut hash = StableHasher::default();
        hash.write(&[self.table()]);
        hash.write(&self.priority().to_be_bytes());
        hash.write(self.match_bytes());
        (hash.finish() >> 32) as u32
    }

    #[inline]
    fn cmp_key(&self, other: &Self) -> Ordering {
        let key = |flow: &Self| (flow.table(), flow.priority());
        key(self).cmp(&key(other)).then_with(|| self.match_bytes().cmp(other.match_bytes()))
    }

    #[inline]
    fn same_key(&self, other: &Self) -> bool {
        EncodedFlow::same_key(self, other)
    }

    fn len(&self) -> usize {
        EncodedFlow::len(self)
    }

    fn targets(&self) -> Vec<Target> {
        targets(&self.decode().actions).collect()
    }

    fn as_target(&self) -> Option<Target> {
        None
    }

    fn key_of(_target: Target) -> Option<Self> {
        None
    }

    fn subject(&self) -> Subject {
        Subject::Flow { table: self.table(), priority: self.priority(), matches: self.decode().matches }
    }
}

/// A flow that an owner claims; `scratch` is reused.
pub(crate) fn claim(flow: Flow, scratch: &mut Vec<u8>) -> Claim<EncodedFlow> {
    let flow = canonical(Cow::Owned(flow));
    Claim { points: targets(&flow.actions).next().is_some(), object: EncodedFlow::new(&flow, scratch) }
}

/// A flow that the switch reported; `scratch` is reused.
pub(crate) fn listed(flow: &Flow, scratch: &mut Vec<u8>) -> ListedObject<EncodedFlow> {
    let object = EncodedFlow::new(&canonical(Cow::Borrowed(flow)), scratch);
    ListedObject { object, targets: targets(&flow.actions).collect(), foreign: flow.is_foreign() }
}

/// Sorts `conjunction` actions: their order means nothing to the switch.
fn canonical(flow: Cow<'_, Flow>) -> Cow<'_, Flow> {
    let clause = |action: &Action| match *action {
        Action::Conjunction { id, clause, of } => Some((id, clause, of)),
        _ => None,
    };
    if flow.actions.is_sorted_by(|a, b| clause(a) < clause(b)) || !flow.actions.iter().all(|a| clause(a).is_some()) {
        return flow;
    }
    let mut flow = flow.into_owned();
    flow.actions.sort_by_key(clause);
    flow.actions.dedup();
    Cow::Owned(flow)
}
