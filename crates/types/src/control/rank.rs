use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::Isolation;

/// What happens to connections that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub enum Action {
    /// No other rule of this direction is evaluated.
    #[default]
    Allow,
    /// The packet is dropped silently.
    Drop,
    /// The packet is dropped, and the client receives a TCP RST or an ICMP error.
    Reject,
    /// The remaining tiers are skipped: Kubernetes policies decide, then the baseline tier.
    Pass,
}

impl Action {
    /// Whether the rule allows connections.
    pub fn is_allow(&self) -> bool {
        *self == Self::Allow
    }
}

/// The priority of a policy within its tier; lower values are evaluated first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Priority(f64);

/// A priority that is not a number from 1 to 10000.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("the priority {0} of a policy is not a number from 1 to 10000")]
pub struct InvalidPriority(f64);

impl Priority {
    /// The lowest and the highest value.
    pub const RANGE: (f64, f64) = (1.0, 10_000.0);

    /// The priority as written in the policy.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Priority {
    type Error = InvalidPriority;

    fn try_from(value: f64) -> Result<Self, InvalidPriority> {
        let (first, last) = Self::RANGE;
        if (first..=last).contains(&value) { Ok(Self(value)) } else { Err(InvalidPriority(value)) }
    }
}

impl From<Priority> for f64 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

impl PartialEq for Priority {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Priority {}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Priority {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a tiered policy among all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Rank {
    /// The priority of the Tier; lower values are evaluated first.
    pub tier: u8,
    /// The priority within the Tier.
    pub priority: Priority,
}

impl Rank {
    /// The priority of the last Tier that is evaluated before Kubernetes policies.
    pub const LAST_TIER: u8 = 250;

    /// Whether the policy is evaluated after Kubernetes policies.
    pub fn is_baseline(self) -> bool {
        self.tier > Self::LAST_TIER
    }
}

/// When the rules of a policy are evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Order {
    /// A Kubernetes NetworkPolicy: after the tiers and before the baseline. The order of its rules does not matter. It isolates
    /// its Pods in these directions.
    #[serde(rename = "isolates")]
    Kubernetes(Isolation),
    /// A policy in a Tier.
    #[serde(rename = "rank")]
    Tiered(Rank),
}
