//! Groups and meters as a ledger keeps them: objects with an id, of which each belongs to one owner.

mod exclusive;

use std::cmp::Ordering;
use std::collections::BTreeSet;

use openflow::group::{Bucket, Group, GroupMod, GroupType};
use openflow::meter::{Band, Meter};
use openflow::wire::Reader;

use crate::ledger::{Claim, ListedObject, Object};
use crate::report::Subject;
use crate::target::{Target, targets};
pub(crate) use exclusive::ExclusiveClaims;

/// A group or a meter, which is the target of flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Numbered<B> {
    target: Target,
    /// The groups and meters that it points at.
    targets: Box<[Target]>,
    /// `None` if this is only a key.
    pub(crate) body: Option<B>,
}

/// The body of the message that installs a group.
pub(crate) type EncodedGroup = Box<[u8]>;

/// The contents of a group or a meter.
pub(crate) trait Body: Clone + Eq {
    /// The length of the message that installs it.
    fn len(&self) -> usize;
}

impl Body for EncodedGroup {
    fn len(&self) -> usize {
        self.as_ref().len()
    }
}

impl Body for Meter {
    fn len(&self) -> usize {
        self.bands.len() * 16 + 8
    }
}

impl<B> Numbered<B> {
    fn key(target: Target) -> Self {
        Self { target, targets: Box::default(), body: None }
    }

    pub(crate) fn id(&self) -> u32 {
        let (Target::Group(id) | Target::Meter(id)) = self.target;
        id
    }
}

impl<B: Body> Object for Numbered<B> {
    type Prefix = Target;

    fn key_prefix(&self) -> Target {
        self.target
    }

    fn key_hash(&self) -> u32 {
        // Ids are often small and consecutive; an odd factor spreads them without collisions.
        self.id().wrapping_mul(0x9e37_79b1)
    }

    fn cmp_key(&self, other: &Self) -> Ordering {
        self.target.cmp(&other.target)
    }

    fn same_key(&self, other: &Self) -> bool {
        self.target == other.target
    }

    fn len(&self) -> usize {
        self.body.as_ref().map_or(0, B::len)
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.to_vec()
    }

    fn as_target(&self) -> Option<Target> {
        Some(self.target)
    }

    fn key_of(target: Target) -> Option<Self> {
        Some(Self::key(target))
    }

    fn subject(&self) -> Subject {
        self.target.into()
    }
}

/// Encodes a group, with the defaults that the switch would report.
fn encode(mut group: Group) -> Numbered<EncodedGroup> {
    let pointed = |bucket: &Bucket| {
        let watched = bucket.watch_group.map(Target::Group);
        targets(&bucket.actions).chain(watched).collect::<Vec<_>>()
    };
    let targets: BTreeSet<Target> = group.buckets.iter().flat_map(pointed).collect();
    if group.kind == GroupType::Select {
        for bucket in &mut group.buckets {
            bucket.weight.get_or_insert(1);
        }
    }
    let (target, mut body) = (Target::Group(group.id), Vec::new());
    GroupMod::AddOrModify(group).encode(&mut body);
    Numbered { target, targets: targets.into_iter().collect(), body: Some(body.into()) }
}

impl Numbered<EncodedGroup> {
    /// The group; `None` if this is only a key.
    pub(crate) fn decode(&self) -> Option<Group> {
        match GroupMod::decode(&mut Reader::new(self.body.as_ref()?)) {
            Ok(GroupMod::AddOrModify(group)) => Some(group),
            _ => None,
        }
    }
}

/// A group that an owner claims.
pub(crate) fn claim_group(group: Group) -> Claim<Numbered<EncodedGroup>> {
    let object = encode(group);
    Claim { points: !object.targets.is_empty(), object }
}

/// A meter that an owner claims.
pub(crate) fn claim_meter(meter: Meter) -> Claim<Numbered<Meter>> {
    let target = Target::Meter(meter.id.0);
    Claim { object: Numbered { body: Some(meter), ..Numbered::key(target) }, points: false }
}

/// A group that the switch reported.
pub(crate) fn listed_group(group: Group) -> ListedObject<Numbered<EncodedGroup>> {
    let foreign = group.is_foreign();
    let object = encode(group);
    ListedObject { targets: object.targets.to_vec(), object, foreign }
}

/// A meter that the switch reported.
pub(crate) fn listed_meter(meter: Meter) -> ListedObject<Numbered<Meter>> {
    let foreign = meter.bands.iter().any(|band| matches!(band, Band::Unknown { .. }));
    ListedObject { object: claim_meter(meter).object, targets: Vec::new(), foreign }
}
