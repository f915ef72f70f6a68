//! What a ledger needs to know about the objects in it, and about the claims on each of them.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::report::Subject;
use crate::target::Target;

/// A flow, a group or a meter, in the form of the message that installs it.
pub(crate) trait Object: Clone + Eq {
    /// The first part of the key: tells most objects apart without reading the rest.
    type Prefix: Ord;

    fn key_prefix(&self) -> Self::Prefix;
    fn key_hash(&self) -> u32;
    fn cmp_key(&self, other: &Self) -> Ordering;
    /// Whether the switch would replace one with the other.
    fn same_key(&self, other: &Self) -> bool;
    /// The length of the message that installs it.
    fn len(&self) -> usize;
    /// The groups and meters that it points at.
    fn targets(&self) -> Vec<Target>;
    /// How other objects point at it; `None` if they cannot.
    fn as_target(&self) -> Option<Target>;
    /// An object with the key of a target; `None` for flows, which are no targets.
    fn key_of(target: Target) -> Option<Self>;
    /// How a report names it.
    fn subject(&self) -> Subject;
}

/// The claims of all owners on one object, and the object that results from them.
///
/// The owner `None`, smaller than any other, stands for a leftover: an object that a resync found in the switch, and that
/// an owner may still claim.
pub(crate) trait Claims: Sized {
    type Owner: Ord + Clone;
    type Object: Object;

    fn one(owner: Option<Self::Owner>, object: Self::Object) -> Self;
    /// No claims: keeps no more of the object than its key.
    fn none(object: &Self::Object) -> Self;
    /// An object with the right key; the rest of it is unspecified.
    fn key(&self) -> &Self::Object;
    /// The object that the switch should have; without claims, one with the right key.
    fn effective(&self) -> Cow<'_, Self::Object>;
    /// At least the length of the effective object.
    fn len_bound(&self) -> usize;
    /// What the objects of all claims point at.
    fn targets(&self) -> Vec<Target>;
    /// Whether there is a claim or a leftover.
    fn is_present(&self) -> bool;
    /// Whether there is a claim, leftovers apart.
    fn is_claimed(&self) -> bool;
    fn has_leftover(&self) -> bool;
    /// Whether this is the only claim.
    fn is_just(&self, owner: &Self::Owner, object: &Self::Object) -> bool;
    /// The owners with a claim, each once, in order.
    fn owners(&self) -> Vec<Self::Owner>;
    /// Whether [`Claims::conflicts`] may return anything.
    fn may_conflict(&self) -> bool;
    /// The owner whose claim is in effect, with each owner whose claim is incompatible with it.
    fn conflicts(&self) -> Vec<(Self::Owner, Self::Owner)>;
    /// Replaces the claims of an owner; returns whether the effective object has changed, appeared or disappeared.
    fn replace(&mut self, owner: Option<&Self::Owner>, objects: Vec<Self::Object>) -> bool;
}
