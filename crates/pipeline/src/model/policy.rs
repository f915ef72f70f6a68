//! Policy rules, as a Node enforces them: selectors have become addresses and ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::port::Port;

pub use types::control::{Direction, IpBlock, Ports};
pub use types::meta::Protocol;

/// What a rule says of what it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// It passes.
    Allow,
    /// It is dropped.
    Drop,
    /// It is refused: the client is told.
    Reject,
    /// Rules of later tiers and Kubernetes policies decide.
    Pass,
}

/// Whose rule it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleKind {
    /// A Kubernetes NetworkPolicy's: it can only allow.
    Kubernetes,
    /// An Antrea policy's in a tier before Kubernetes policies.
    Antrea {
        /// The priority of its flows.
        priority: u16,
        /// What it says.
        action: RuleAction,
    },
    /// An Antrea policy's in the baseline tier, after Kubernetes policies.
    Baseline {
        /// The priority of its flows.
        priority: u16,
        /// What it says.
        action: RuleAction,
    },
}

/// A Pod on this Node that a rule applies to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Applied {
    /// Its port.
    pub port: Port,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The number by which its flows find each other; no two live rules have the same.
    pub id: u32,
    /// Which way it looks.
    pub direction: Direction,
    /// Whose it is.
    pub kind: RuleKind,
    /// The Pods that it applies to.
    pub applied_to: BTreeSet<Applied>,
    /// The other ends; `None`: whatever they are.
    pub peers: Option<BTreeSet<IpBlock>>,
    /// The ports; `None`: whatever they are, of whatever protocol.
    pub ports: Option<BTreeSet<Ports>>,
}
