//! Groups and meters as they are kept.

use std::collections::BTreeSet;

use openflow::group::{Bucket, Group, GroupMod, GroupType};
use openflow::meter::{Band, Meter};

use crate::report::Subject;
use crate::target::{Target, targets};

/// What is kept of a thing with a number.
pub(crate) trait Value: Clone + Eq {
    /// What it points at.
    fn targets(&self) -> &[Target];
    /// How long the message that installs it is.
    fn len(&self) -> usize;
    /// How a report names one.
    fn subject(id: u32) -> Subject;
    /// How one is pointed at.
    fn target(id: u32) -> Target;
    /// The number, if the target is one of these.
    fn number(target: Target) -> Option<u32>;
}

/// A group as the message that installs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EncodedGroup {
    pub(crate) body: Box<[u8]>,
    targets: Box<[Target]>,
}

impl EncodedGroup {
    /// Takes a group, with the defaults filled in that the switch would list.
    pub(crate) fn new(mut group: Group) -> Self {
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
        let mut body = Vec::new();
        GroupMod::AddOrModify(group).encode(&mut body);
        Self { body: body.into(), targets: targets.into_iter().collect() }
    }
}

impl Value for EncodedGroup {
    fn targets(&self) -> &[Target] {
        &self.targets
    }
    fn len(&self) -> usize {
        self.body.len()
    }
    fn subject(id: u32) -> Subject {
        Subject::Group(id)
    }
    fn target(id: u32) -> Target {
        Target::Group(id)
    }
    fn number(target: Target) -> Option<u32> {
        if let Target::Group(id) = target { Some(id) } else { None }
    }
}

impl Value for Meter {
    fn targets(&self) -> &[Target] {
        &[]
    }
    fn len(&self) -> usize {
        self.bands.len() * 16 + 8
    }
    fn subject(id: u32) -> Subject {
        Subject::Meter(id)
    }
    fn target(id: u32) -> Target {
        Target::Meter(id)
    }
    fn number(target: Target) -> Option<u32> {
        if let Target::Meter(id) = target { Some(id) } else { None }
    }
}

/// Whether a meter holds anything that cannot be compared.
pub(crate) fn is_foreign_meter(meter: &Meter) -> bool {
    meter.bands.iter().any(|band| matches!(band, Band::Unknown { .. }))
}
