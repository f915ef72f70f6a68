//! Groups and meters as the targets of flows and groups.

use std::collections::BTreeMap;
use std::fmt;

use openflow::action::Action;

/// A group or meter that an action points at. It has to exist first, and the switch deletes flows together with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// The group with this id.
    Group(u32),
    /// The meter with this id.
    Meter(u32),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Group(id) => write!(f, "group {id}"),
            Target::Meter(id) => write!(f, "meter {id}"),
        }
    }
}

/// The targets of a list of actions.
pub(crate) fn targets(actions: &[Action]) -> impl Iterator<Item = Target> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(id) => Some(Target::Group(*id)),
        Action::Meter(id) => Some(Target::Meter(*id)),
        Action::Controller(controller) => controller.meter.map(Target::Meter),
        _ => None,
    })
}

/// The number of claims that point at each target.
#[derive(Debug, Default)]
pub(crate) struct Pointers(BTreeMap<Target, usize>);

impl Pointers {
    pub(crate) fn add(&mut self, target: Target) {
        *self.0.entry(target).or_default() += 1;
    }

    pub(crate) fn sub(&mut self, target: Target) {
        if let Some(count) = self.0.get_mut(&target) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&target);
            }
        }
    }

    pub(crate) fn any(&self, target: Target) -> bool {
        self.0.contains_key(&target)
    }
}
