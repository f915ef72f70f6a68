//! The claims on one flow: `conjunction` actions of several owners are united, equal flows are shared.

use std::borrow::Cow;
use std::collections::BTreeSet;

use openflow::action::Action;
use openflow::flow::{EncodedFlow, Flow};

use crate::ledger::Claims;
use crate::target::{Target, targets};

/// The arguments of one `conjunction` action.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Clause {
    id: u32,
    clause: u8,
    of: u8,
}

/// The claim of an owner on one clause of a flow.
#[derive(Clone, Debug)]
struct Share<O> {
    owner: Option<O>,
    cookie: u64,
    clause: Clause,
}

/// The claims on a flow, in the most compact form.
#[derive(Clone, Debug)]
enum Shares<O> {
    /// No claim: the flow is only a key.
    None,
    /// One owner, which claims exactly the flow.
    One(Option<O>),
    /// Owners that claim nothing but clauses, by owner and clause; the flow has no cookie and no actions.
    #[expect(clippy::box_collection, reason = "one word in each of very many flows")]
    Clauses(Box<Vec<Share<O>>>),
    /// Anything else, by owner; the flow is only a key.
    #[expect(clippy::box_collection, reason = "one word in each of very many flows")]
    Mixed(Box<Vec<(Option<O>, EncodedFlow)>>),
}

/// A flow and the claims on it.
#[derive(Clone, Debug)]
pub(crate) struct SharedFlow<O> {
    flow: EncodedFlow,
    shares: Shares<O>,
}

/// The claim of one owner, decoded.
type Part<O> = (Option<O>, Flow);

impl<O: Ord + Clone> Claims for SharedFlow<O> {
    type Owner = O;
    type Object = EncodedFlow;

    fn one(owner: Option<O>, flow: EncodedFlow) -> Self {
        Self { flow, shares: Shares::One(owner) }
    }

    fn none(flow: &EncodedFlow) -> Self {
        Self::key_only(&flow.decode())
    }

    fn key(&self) -> &EncodedFlow {
        &self.flow
    }

    fn effective(&self) -> Cow<'_, EncodedFlow> {
        match &self.shares {
            Shares::None | Shares::One(_) => Cow::Borrowed(&self.flow),
            Shares::Clauses(list) => {
                let cookie = list.first().map_or(0, |share| share.cookie);
                let clauses = list.iter().map(|share| share.clause).collect();
                Cow::Owned(encode(&with_clauses(self.flow.decode(), cookie, clauses)))
            }
            Shares::Mixed(_) => Cow::Owned(encode(&unite(&self.parts()))),
        }
    }

    fn len_bound(&self) -> usize {
        match &self.shares {
            Shares::None | Shares::One(_) => self.flow.len(),
            Shares::Clauses(list) => self.flow.len() + 8 + list.len() * 16,
            Shares::Mixed(list) => list.iter().map(|(_, flow)| flow.len()).sum(),
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.parts().iter().flat_map(|(_, flow)| targets(&flow.actions)).collect()
    }

    fn is_present(&self) -> bool {
        !matches!(self.shares, Shares::None)
    }

    fn is_claimed(&self) -> bool {
        match &self.shares {
            Shares::None => false,
            Shares::One(owner) => owner.is_some(),
            Shares::Clauses(list) => list.last().is_some_and(|share| share.owner.is_some()),
            Shares::Mixed(list) => list.last().is_some_and(|(owner, _)| owner.is_some()),
        }
    }

    fn has_leftover(&self) -> bool {
        match &self.shares {
            Shares::None => false,
            Shares::One(owner) => owner.is_none(),
            Shares::Clauses(list) => list.first().is_some_and(|share| share.owner.is_none()),
            Shares::Mixed(list) => list.first().is_some_and(|(owner, _)| owner.is_none()),
        }
    }

    fn is_just(&self, owner: &O, flow: &EncodedFlow) -> bool {
        matches!(&self.shares, Shares::One(Some(o)) if o == owner) && self.flow == *flow
    }

    fn owners(&self) -> Vec<O> {
        let mut owners: Vec<O> = match &self.shares {
            Shares::None => Vec::new(),
            Shares::One(owner) => owner.iter().cloned().collect(),
            Shares::Clauses(list) => list.iter().filter_map(|share| share.owner.clone()).collect(),
            Shares::Mixed(list) => list.iter().filter_map(|(owner, _)| owner.clone()).collect(),
        };
        owners.dedup();
        owners
    }

    fn may_conflict(&self) -> bool {
        matches!(self.shares, Shares::Mixed(_))
    }

    fn conflicts(&self) -> Vec<(O, O)> {
        let Shares::Mixed(_) = &self.shares else { return Vec::new() };
        let parts = self.parts();
        let mut claimed = parts.iter().filter_map(|(owner, flow)| Some((owner.as_ref()?, flow)));
        let Some((winner, first)) = claimed.next() else { return Vec::new() };
        let mut losers: Vec<_> =
            claimed.filter(|(_, flow)| !agree(first, flow)).map(|(loser, _)| loser.clone()).collect();
        losers.dedup();
        losers.into_iter().map(|loser| (winner.clone(), loser)).collect()
    }

    fn replace(&mut self, owner: Option<&O>, mut flows: Vec<EncodedFlow>) -> bool {
        if let (Shares::One(only), [flow]) = (&mut self.shares, flows.as_slice()) {
            let same = *flow == self.flow;
            if only.as_ref() == owner || (same && only.is_none()) {
                *only = owner.cloned();
                self.flow = flows.pop().unwrap_or_else(|| self.flow.clone());
                return !same;
            }
        }
        if let Shares::Clauses(list) = &mut self.shares
            && let Some((cookie, clauses)) = all_clauses(&self.flow, &flows)
        {
            let changed = replace_clauses(list, owner, cookie, &clauses);
            if self.is_alone() {
                *self = Self::of(&self.flow.decode(), self.parts());
            }
            return changed;
        }
        let claimed = flows.iter().map(EncodedFlow::decode);
        let before = self.is_present().then(|| self.effective().into_owned());
        let mut parts = self.parts();
        parts.retain(|(other, _)| other.as_ref() != owner);
        parts.extend(claimed.map(|flow| (owner.cloned(), flow)));
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        *self = Self::of(&self.flow.decode(), parts);
        before.as_ref() != self.is_present().then(|| self.effective()).as_deref()
    }
}

impl<O: Ord + Clone> SharedFlow<O> {
    /// A flow without claims.
    fn key_only(flow: &Flow) -> Self {
        let key = Flow::at(flow.table, flow.priority).when(flow.matches.clone());
        Self { flow: encode(&key), shares: Shares::None }
    }

    /// Whether a list of clauses has one owner, and need not be a list.
    fn is_alone(&self) -> bool {
        let Shares::Clauses(list) = &self.shares else { return false };
        list.first().map(|share| &share.owner) == list.last().map(|share| &share.owner)
    }

    fn parts(&self) -> Vec<Part<O>> {
        match &self.shares {
            Shares::None => Vec::new(),
            Shares::One(owner) => vec![(owner.clone(), self.flow.decode())],
            Shares::Clauses(list) => list
                .chunk_by(|a, b| a.owner == b.owner)
                .filter_map(|run| {
                    let first = run.first()?;
                    let clauses = run.iter().map(|share| share.clause).collect();
                    Some((first.owner.clone(), with_clauses(self.flow.decode(), first.cookie, clauses)))
                })
                .collect(),
            Shares::Mixed(list) => list.iter().map(|(owner, flow)| (owner.clone(), flow.decode())).collect(),
        }
    }

    /// The most compact form of these parts, which are sorted by owner.
    fn of(flow: &Flow, mut parts: Vec<Part<O>>) -> Self {
        parts.dedup_by(|b, a| a.0 == b.0 && alike(&a.1, &b.1));
        if let Some(((None, leftover), claimed)) = parts.split_first()
            && let Some((_, first)) = claimed.first()
            && (!agree(leftover, first) || unite(claimed) == *leftover)
        {
            parts.remove(0);
        }
        if parts.len() < 2 {
            return match parts.pop() {
                Some((owner, flow)) => Self::one(owner, encode(&flow)),
                None => Self::key_only(flow),
            };
        }
        let mut list = Vec::new();
        let head = parts.first().map_or_else(|| head(flow), |(_, flow)| head(flow));
        for run in parts.chunk_by(|a, b| a.0 == b.0) {
            let Some((owner, first)) = run.first() else { continue };
            let mut own: Vec<Clause> = Vec::new();
            for (_, flow) in run {
                match clauses(flow) {
                    Some(clauses) if head == self::head(flow) => own.extend(clauses),
                    _ => {
                        let all = parts.iter().map(|(owner, flow)| (owner.clone(), encode(flow))).collect();
                        return Self { shares: Shares::Mixed(Box::new(all)), ..Self::key_only(flow) };
                    }
                }
            }
            own.sort();
            own.dedup();
            list.extend(own.into_iter().map(|clause| Share { owner: owner.clone(), cookie: first.cookie, clause }));
        }
        forget_covered(&mut list, None);
        list.shrink_to_fit();
        let shared = Self { flow: encode(&head), shares: Shares::Clauses(Box::new(list)) };
        if shared.is_alone() { Self::of(flow, shared.parts()) } else { shared }
    }
}

/// Cookie and clauses of flows that do nothing else, all with this head.
fn all_clauses(head: &EncodedFlow, flows: &[EncodedFlow]) -> Option<(u64, Vec<Clause>)> {
    let mut all = Vec::new();
    for flow in flows {
        let clauses = flow.conjunctions().filter(|_| flow.same_head(head))?;
        all.extend(clauses.map(|(id, clause, of)| Clause { id, clause, of }));
    }
    all.sort();
    all.dedup();
    Some((flows.first().map_or(0, EncodedFlow::cookie), all))
}

/// [`SharedFlow::replace`] for the common case with many owners.
fn replace_clauses<O: Ord + Clone>(
    list: &mut Vec<Share<O>>,
    owner: Option<&O>,
    cookie: u64,
    clauses: &[Clause],
) -> bool {
    let cookie_before = list.first().map(|share| share.cookie);
    let start = list.partition_point(|share| share.owner.as_ref() < owner);
    let end = list.partition_point(|share| share.owner.as_ref() <= owner);
    let same = |share: &Share<O>, clause: &Clause| share.clause == *clause && share.cookie == cookie;
    let before = list.get(start..end).unwrap_or_default();
    if before.len() == clauses.len() && before.iter().zip(clauses).all(|(share, clause)| same(share, clause)) {
        return false;
    }
    if list.capacity() < list.len() + clauses.len() {
        // Doubling would waste too much memory.
        list.reserve_exact(clauses.len() + list.len() / 4);
    }
    let new = clauses.iter().map(|clause| Share { owner: owner.cloned(), cookie, clause: *clause });
    let old: Vec<Share<O>> = list.splice(start..end, new).collect();
    let others = |clause: &Clause| {
        let (below, rest) = list.split_at(start);
        let above = rest.get(clauses.len()..).unwrap_or_default();
        below.iter().chain(above).any(|share| share.clause == *clause)
    };
    let gone = old.iter().map(|share| &share.clause).filter(|clause| !clauses.contains(clause));
    let come = clauses.iter().filter(|clause| !old.iter().any(|share| share.clause == **clause));
    let changed = gone.chain(come).any(|clause| !others(clause));
    let changed = changed || cookie_before != list.first().map(|share| share.cookie);
    forget_covered(list, owner.map(|_| clauses));
    changed
}

/// Drops the clauses of the leftover that an owner claims: `claimed`, or all of them. The effective flow stays the same: the
/// last clause of the leftover keeps its cookie until the cookie is the owner's too.
fn forget_covered<O>(list: &mut Vec<Share<O>>, claimed: Option<&[Clause]>) {
    let (leftover, owned) = list.split_at(list.partition_point(|share| share.owner.is_none()));
    let (Some(oldest), Some(first)) = (leftover.first(), owned.first()) else { return };
    let same_cookie = oldest.cookie == first.cookie;
    let owned: BTreeSet<Clause> = match claimed {
        Some(claimed) if leftover.len() > 1 => claimed.iter().copied().collect(),
        _ => owned.iter().map(|share| share.clause).collect(),
    };
    let mut left = leftover.len();
    list.retain(|share| {
        let covered = share.owner.is_none() && owned.contains(&share.clause) && (left > 1 || same_cookie);
        left -= usize::from(covered);
        !covered
    });
}

/// The flow that results from parts, sorted by owner: the first one, with the clauses of all that agree with it.
fn unite<O>(parts: &[Part<O>]) -> Flow {
    let Some(((_, first), _)) = parts.split_first() else { return Flow::default() };
    if clauses(first).is_none() {
        return first.clone();
    }
    let agreeing = parts.iter().filter(|(_, flow)| agree(first, flow));
    let all = agreeing.filter_map(|(_, flow)| clauses(flow)).flatten().collect();
    with_clauses(first.clone(), first.cookie, all)
}

/// Whether two flows with the same key can be merged.
fn agree(a: &Flow, b: &Flow) -> bool {
    alike(a, b) || (clauses(a).is_some() && clauses(b).is_some() && head(a) == head(b))
}

/// Whether at most the cookies differ.
fn alike(a: &Flow, b: &Flow) -> bool {
    a.actions == b.actions && a.goto_table == b.goto_table && a.unknown == b.unknown && head(a) == head(b)
}

/// The clauses of a flow that does nothing else.
fn clauses(flow: &Flow) -> Option<Vec<Clause>> {
    let clause = |action: &Action| match *action {
        Action::Conjunction { id, clause, of } => Some(Clause { id, clause, of }),
        _ => None,
    };
    let pure = !flow.actions.is_empty() && flow.goto_table.is_none() && flow.unknown.is_empty();
    if pure { flow.actions.iter().map(clause).collect() } else { None }
}

fn with_clauses(flow: Flow, cookie: u64, mut clauses: Vec<Clause>) -> Flow {
    clauses.sort();
    clauses.dedup();
    let actions = clauses.into_iter().map(|Clause { id, clause, of }| Action::Conjunction { id, clause, of }).collect();
    Flow { cookie, actions, ..flow }
}

/// The flow without cookie, actions and instructions.
fn head(flow: &Flow) -> Flow {
    Flow {
        cookie: 0,
        actions: Vec::new(),
        goto_table: None,
        unknown: Vec::new(),
        matches: flow.matches.clone(),
        ..*flow
    }
}

fn encode(flow: &Flow) -> EncodedFlow {
    EncodedFlow::new(flow, &mut Vec::new())
}
