//! The claims on one group or meter: there is no merging, and the smallest owner gets its value.

use std::borrow::Cow;

use super::{Body, Numbered};
use crate::ledger::{Claims, Object};
use crate::target::Target;

/// A group or a meter and the claims on it.
#[derive(Clone, Debug)]
pub(crate) struct ExclusiveClaims<O, B> {
    /// An object with the id and nothing else.
    key: Numbered<B>,
    /// By owner; the first one is in effect. A leftover is alone.
    claims: Vec<(Option<O>, Numbered<B>)>,
}

impl<O: Ord + Clone, B: Body> Claims for ExclusiveClaims<O, B> {
    type Owner = O;
    type Object = Numbered<B>;

    fn one(owner: Option<O>, value: Numbered<B>) -> Self {
        Self { key: Numbered::key(value.target), claims: vec![(owner, value)] }
    }

    fn none(value: &Numbered<B>) -> Self {
        Self { key: Numbered::key(value.target), claims: Vec::new() }
    }

    fn key(&self) -> &Numbered<B> {
        &self.key
    }

    fn effective(&self) -> Cow<'_, Numbered<B>> {
        Cow::Borrowed(self.claims.first().map_or(&self.key, |(_, value)| value))
    }

    fn len_bound(&self) -> usize {
        self.effective().len()
    }

    fn targets(&self) -> Vec<Target> {
        self.claims.iter().flat_map(|(_, value)| value.targets.iter().copied()).collect()
    }

    fn is_present(&self) -> bool {
        !self.claims.is_empty()
    }

    fn is_claimed(&self) -> bool {
        self.claims.first().is_some_and(|(owner, _)| owner.is_some())
    }

    fn has_leftover(&self) -> bool {
        self.claims.first().is_some_and(|(owner, _)| owner.is_none())
    }

    fn is_just(&self, owner: &O, value: &Numbered<B>) -> bool {
        matches!(&self.claims[..], [(Some(o), v)] if o == owner && v == value)
    }

    fn owners(&self) -> Vec<O> {
        let mut owners: Vec<O> = self.claims.iter().filter_map(|(owner, _)| owner.clone()).collect();
        owners.dedup();
        owners
    }

    fn may_conflict(&self) -> bool {
        self.claims.len() > 1
    }

    fn conflicts(&self) -> Vec<(O, O)> {
        let mut owners = self.claims.iter().filter_map(|(owner, _)| owner.clone());
        let Some(winner) = owners.next() else { return Vec::new() };
        owners.map(|loser| (winner.clone(), loser)).collect()
    }

    fn replace(&mut self, owner: Option<&O>, values: Vec<Numbered<B>>) -> bool {
        let before = self.claims.first().map(|(_, value)| value.clone());
        self.claims.retain(|(other, _)| other.as_ref() != owner);
        // Nearly all objects have one owner: no room for more.
        self.claims.reserve_exact(values.len());
        for value in values {
            let claim = (owner.cloned(), value);
            if !self.claims.contains(&claim) {
                self.claims.push(claim);
            }
        }
        self.claims.sort_by(|a, b| a.0.cmp(&b.0));
        if self.claims.last().is_some_and(|(owner, _)| owner.is_some()) {
            self.claims.retain(|(owner, _)| owner.is_some());
        }
        self.claims.first().map(|(_, value)| value) != before.as_ref()
    }
}
