//! What flows and groups point at.

use std::collections::BTreeMap;
use std::fmt;

use openflow::action::Action;

/// What an action needs to be there, and whose removal makes the switch remove the flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// The group with this number.
    Group(u32),
    /// The meter with this number.
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

/// What a list of actions points at.
pub(crate) fn targets(actions: &[Action]) -> impl Iterator<Item = Target> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(id) => Some(Target::Group(*id)),
        Action::Meter(id) => Some(Target::Meter(*id)),
        Action::Controller(controller) => controller.meter.map(Target::Meter),
        _ => None,
    })
}

/// How many of those who want something point at each target.
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
