//! Validates the priorities of Tiers.

use types::antrea::Tier;
use types::{InvalidField, ObjectName};

use super::Problems;

/// The priority of a Tier, if it is valid, and its problems.
pub(crate) fn tier_priority(tier: &Tier) -> (Option<u8>, Vec<InvalidField>) {
    let name = ObjectName { namespace: String::new(), name: tier.metadata.name.clone() };
    let mut problems = Problems::new("Tier", &name);
    // An unknown field does not change the position of the Tier.
    problems.has_no_unknown(&tier.spec.unknown, "is an unknown field; it has no effect", || "spec".to_owned());
    let priority = tier.spec.priority.and_then(|priority| u8::try_from(priority).ok());
    if priority.is_none() {
        let problem = "needs a number from 0 to 255; policies of the Tier are not enforced";
        problems.report("spec.priority".to_owned(), problem);
    }
    (priority, problems.found)
}
