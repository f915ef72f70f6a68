//! Policy rules, as a Node enforces them: selectors have become addresses and ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::port::Port;

pub use types::control::{Action as RuleAction, Direction, IpBlock, Ports};
pub use types::meta::Protocol;

/// The kind of policy that has the rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuleKind {
    /// A Kubernetes NetworkPolicy: its rules can only allow.
    Kubernetes,
    /// An Antrea policy in a tier before Kubernetes policies.
    Antrea {
        /// OpenFlow priority of the rule's flows.
        priority: u16,
        /// What happens to matched packets.
        action: RuleAction,
    },
    /// An Antrea policy in the baseline tier, after Kubernetes policies.
    Baseline {
        /// OpenFlow priority of the rule's flows.
        priority: u16,
        /// What happens to matched packets.
        action: RuleAction,
    },
}

/// A Pod on this Node that a rule applies to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Applied {
    /// OpenFlow port of the Pod, matched for ingress.
    pub port: Port,
    /// Addresses of the Pod, matched for egress.
    pub addresses: Vec<IpAddr>,
}

/// A rule of a policy, as this Node enforces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `conj_id` of the rule's flows, unique among the rules in the switch.
    pub id: u32,
    /// Whether the rule restricts connections to or from its Pods.
    pub direction: Direction,
    /// The kind of its policy.
    pub kind: RuleKind,
    /// The Pods that it applies to.
    pub applied_to: BTreeSet<Applied>,
    /// The other ends; `None`: any.
    pub peers: Option<BTreeSet<IpBlock>>,
    /// The destination ports; `None`: any port of any protocol.
    pub ports: Option<BTreeSet<Ports>>,
}
