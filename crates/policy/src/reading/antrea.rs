//! Parses ClusterNetworkPolicies and NetworkPolicies of `crd.antrea.io`.
//!
//! Fails closed: a selector, group, address or port that is invalid or not supported matches nothing, and a rule with only such
//! parts is left out. A field that is unknown makes a rule wider than intended: an Allow rule is left out then, and others are enforced
//! without the field.

use std::collections::BTreeSet;

use selector::Selector;
use types::antrea::{AppliedTo, Peer, PeerNamespaces, Policy, Rule};
use types::control::{Action, Direction, IpBlock, PolicyKind, PolicyName, Priority, Service};
use types::{InvalidField, ObjectName};

use super::group::alone;
use super::{ALLOWS_NOTHING, Field, Problems, Selected};

/// The Tier of policies that name none.
const DEFAULT_TIER: &str = "application";
/// The Tier whose rules cannot pass: there is nothing after it.
const BASELINE: &str = "baseline";
/// Tiers that always exist. Policies may name them with a capital letter.
const SYSTEM_TIERS: [&str; 6] = ["emergency", "securityops", "networkops", "platform", DEFAULT_TIER, BASELINE];

const NOT_SUPPORTED: &str = "is not supported yet; it matches nothing";
const ENFORCED_WITHOUT: &str = "is an unknown field; the rule is enforced without it";

/// A parsed policy. Groups are named, and Namespaces are not expanded yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AntreaReading {
    /// The name of the Tier object.
    pub(crate) tier: String,
    /// `None` is invalid: the policy cannot be enforced.
    pub(crate) priority: Option<Priority>,
    /// What rules without their own apply to.
    pub(crate) applied_to: Vec<Target>,
    pub(crate) rules: Vec<AntreaRule>,
    pub(crate) problems: Vec<InvalidField>,
}

/// Selected Pods, or what a group selects.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Target {
    Pods(Selected),
    /// With the field that names the group, for messages.
    Group(ObjectName, String),
}

/// A parsed rule of a policy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AntreaRule {
    pub(crate) direction: Direction,
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) action: Action,
    /// `None` means those of the policy.
    pub(crate) applied_to: Option<Vec<Target>>,
    /// `None` matches all peers.
    pub(crate) peers: Option<AntreaPeers>,
    /// `None` matches all ports of all protocols. `known_by` of named ports is not set yet.
    pub(crate) services: Option<Vec<Service>>,
}

/// The peers of a rule.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct AntreaPeers {
    pub(crate) targets: Vec<Target>,
    pub(crate) blocks: Vec<IpBlock>,
    pub(crate) relative: Vec<Relative>,
    /// ExternalEntities by their labels, not Pods.
    pub(crate) entities: Vec<Selected>,
}

/// Pods in Namespaces relative to that of each Pod that the rule applies to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Relative {
    pub(crate) namespaces: RelativeNamespaces,
    pub(crate) pods: Selector,
}

/// Namespaces relative to that of a Pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RelativeNamespaces {
    /// The namespace of the Pod.
    Own,
    /// The Namespaces with the same values of these labels; none if that of the Pod lacks one of them.
    SameLabels(BTreeSet<String>),
}

impl AntreaReading {
    /// Parses a policy; `name` is its name, without namespace for a ClusterNetworkPolicy.
    pub(crate) fn new(name: &ObjectName, policy: &Policy) -> Self {
        let spec = &policy.spec;
        let mut reader = Reader { name, problems: Problems::new(kind(name).name(), name) };
        let tier = tier_name(&spec.tier);
        let priority = spec.priority.and_then(|priority| Priority::try_from(priority.value()).ok());
        if priority.is_none() {
            let problem = "needs a number from 1 to 10000; the policy is not enforced";
            reader.problems.report("spec.priority".to_owned(), problem);
        }
        let is_known = reader.problems.has_no_unknown(&spec.unknown, ENFORCED_WITHOUT, || "spec".to_owned());
        let applied_to = reader.targets(&spec.applied_to, "spec");
        let mut rules = Vec::new();
        for (direction, written) in [(Direction::Ingress, &spec.ingress), (Direction::Egress, &spec.egress)] {
            for (index, rule) in (0..).zip(written) {
                let field = match direction {
                    Direction::Ingress => Field { rules: "ingress", index, peers: "from" },
                    Direction::Egress => Field { rules: "egress", index, peers: "to" },
                };
                let read = reader.rule(direction, rule, &tier, &applied_to, field);
                rules.extend(read.filter(|rule| is_known || !rule.action.is_allow()));
            }
        }
        reader.rule_names(policy);
        Self { tier, priority, applied_to: applied_to.all, rules, problems: reader.problems.found }
    }

    /// The problem of a policy whose Tier does not exist.
    pub(crate) fn missing_tier(&self, name: &ObjectName) -> InvalidField {
        let problem = format!("Tier {} does not exist; the policy is not enforced until it is created", self.tier);
        InvalidField { kind: kind(name).name(), name: name.clone(), field: "spec.tier".to_owned(), problem }
    }
}

/// The kind of a policy with this name.
pub(crate) fn kind(name: &ObjectName) -> PolicyKind {
    if name.namespace.is_empty() { PolicyKind::AntreaCluster } else { PolicyKind::Antrea }
}

/// The name of an Antrea policy among all policies.
pub(crate) fn policy_name(object: ObjectName) -> PolicyName {
    PolicyName { kind: kind(&object), object }
}

fn tier_name(written: &str) -> String {
    let is_capitalised =
        |tier: &&&str| tier.eq_ignore_ascii_case(written) && tier.bytes().skip(1).eq(written.bytes().skip(1));
    match written {
        "" => DEFAULT_TIER.to_owned(),
        _ => (*SYSTEM_TIERS.iter().find(is_capitalised).unwrap_or(&written)).to_owned(),
    }
}

/// What a policy or a rule applies to.
struct Targets {
    is_set: bool,
    all: Vec<Target>,
    /// Without entries that have unknown fields, if there are any: an Allow rule does not apply to those.
    known: Option<Vec<Target>>,
}

/// The state of parsing a policy.
struct Reader<'a> {
    name: &'a ObjectName,
    problems: Problems<'a>,
}

impl Reader<'_> {
    fn rule(
        &mut self,
        direction: Direction,
        rule: &Rule,
        tier: &str,
        of_policy: &Targets,
        field: Field<'_>,
    ) -> Option<AntreaRule> {
        let action = self.action(rule, field);
        let effect = if action.is_allow() { ALLOWS_NOTHING } else { ENFORCED_WITHOUT };
        let mut is_known = self.problems.has_no_unknown(&rule.unknown, effect, || field.rule());
        let (peers, (other, others)) = match direction {
            Direction::Ingress => (&rule.from, ("to", &rule.to)),
            Direction::Egress => (&rule.to, ("from", &rule.from)),
        };
        if !others.is_empty() {
            self.problems.report(format!("{}.{other}", field.rule()), effect);
            is_known = false;
        }
        if rule.enable_logging {
            let problem = "is not supported yet; the rule is enforced without a log";
            self.problems.report(format!("{}.enableLogging", field.rule()), problem);
        }
        let services = self.services(rule, action, field);
        let peers = (!peers.is_empty()).then(|| self.peers(peers, action, field));
        let applied_to = self.applied_to(rule, action, of_policy, field);
        let mut is_enforced = is_known || !action.is_allow();
        if !rule.to_services.is_empty() {
            self.problems.report(format!("{}.toServices", field.rule()), NOT_SUPPORTED);
            is_enforced = false;
        }
        if action == Action::Pass && tier == BASELINE {
            let problem = "Pass is not possible in the Tier baseline; the rule is left out";
            self.problems.report(format!("{}.action", field.rule()), problem);
            is_enforced = false;
        }
        let (index, name) = (field.index, rule.name.clone());
        is_enforced.then_some(AntreaRule { direction, index, name, action, applied_to, peers, services })
    }

    fn action(&mut self, rule: &Rule, field: Field<'_>) -> Action {
        match rule.action.as_str() {
            "Allow" => Action::Allow,
            "Drop" => Action::Drop,
            "Reject" => Action::Reject,
            "Pass" => Action::Pass,
            other => {
                let problem = format!("`{other}` is none of Allow, Drop, Reject, Pass; the rule drops");
                self.problems.report(format!("{}.action", field.rule()), problem);
                Action::Drop
            }
        }
    }

    /// What a rule applies to; `None` means the same as the policy.
    fn applied_to(
        &mut self,
        rule: &Rule,
        action: Action,
        of_policy: &Targets,
        field: Field<'_>,
    ) -> Option<Vec<Target>> {
        let allowed = |known: Option<Vec<Target>>| known.filter(|_| action.is_allow());
        if rule.applied_to.is_empty() {
            if !of_policy.is_set {
                let problem = "is needed here, or in the policy; the rule applies to nothing";
                self.problems.report(format!("{}.appliedTo", field.rule()), problem);
            }
            return allowed(of_policy.known.clone());
        }
        if of_policy.is_set {
            let problem = "cannot be set in the policy and in a rule; that of the rule applies";
            self.problems.report(format!("{}.appliedTo", field.rule()), problem);
        }
        let targets = self.targets(&rule.applied_to, &field.rule());
        Some(allowed(targets.known).unwrap_or(targets.all))
    }

    fn targets(&mut self, entries: &[AppliedTo], parent: &str) -> Targets {
        let (mut all, mut known, mut is_known) = (Vec::new(), Vec::new(), true);
        for (n, entry) in entries.iter().enumerate() {
            let field = || format!("{parent}.appliedTo[{n}]");
            let effect = "is an unknown field; rules are enforced without it, and Allow rules do not apply here";
            let entry_is_known = self.problems.has_no_unknown(&entry.unknown, effect, field);
            is_known &= entry_is_known;
            let target = self.target(entry, entry_is_known, field);
            known.extend(target.clone().filter(|_| entry_is_known));
            all.extend(target);
        }
        Targets { is_set: !entries.is_empty(), all, known: (!is_known).then_some(known) }
    }

    fn target(&mut self, entry: &AppliedTo, is_known: bool, field: impl Fn() -> String) -> Option<Target> {
        let mut is_valid = true;
        for (is_set, name) in [
            (entry.external_entity_selector.is_some(), "externalEntitySelector"),
            (entry.node_selector.is_some(), "nodeSelector"),
            (entry.service_account.is_some(), "serviceAccount"),
            (entry.service.is_some(), "service"),
        ] {
            if is_set {
                self.problems.report(format!("{}.{name}", field()), NOT_SUPPORTED);
                is_valid = false;
            }
        }
        if entry.namespace_selector.is_some() && !self.is_cluster() {
            let problem = "is only possible in a ClusterNetworkPolicy; it selects nothing";
            self.problems.report(format!("{}.namespaceSelector", field()), problem);
            is_valid = false;
        }
        let selectors = (entry.pod_selector.as_ref(), entry.namespace_selector.as_ref());
        match (entry.group.as_str(), selectors) {
            _ if !is_valid => None,
            // In the namespace of a policy, an entry without fields means all Pods; it must have no field that is unknown.
            ("", (None, None)) if self.is_cluster() || !is_known => {
                self.problems.report(field(), "needs podSelector, namespaceSelector or group; it selects nothing");
                None
            }
            ("", selectors) => self.problems.selected(selectors, alone(&self.name.namespace), field).map(Target::Pods),
            (group, (None, None)) => Some(self.group(group, field)),
            _ => {
                self.problems.report(field(), "group cannot be combined with a selector; it selects nothing");
                None
            }
        }
    }

    fn peers(&mut self, peers: &[Peer], action: Action, field: Field<'_>) -> AntreaPeers {
        let mut read = AntreaPeers::default();
        for (n, peer) in peers.iter().enumerate() {
            self.peer(peer, action, || field.peer(n), &mut read);
        }
        read
    }

    fn peer(&mut self, peer: &Peer, action: Action, field: impl Fn() -> String + Copy, read: &mut AntreaPeers) {
        let effect = if action.is_allow() { ALLOWS_NOTHING } else { ENFORCED_WITHOUT };
        let block_field = || format!("{}.ipBlock", field());
        let mut is_known = self.problems.has_no_unknown(&peer.unknown, effect, field);
        if let Some(block) = &peer.ip_block {
            is_known &= self.problems.has_no_unknown(&block.unknown, effect, block_field);
        }
        let mut is_valid = is_known || !action.is_allow();
        for (is_set, name) in [
            (!peer.fqdn.is_empty(), "fqdn"),
            (peer.external_entity_selector.is_some() && self.is_cluster(), "externalEntitySelector"),
            (peer.node_selector.is_some(), "nodeSelector"),
            (peer.service_account.is_some(), "serviceAccount"),
            (!matches!(peer.scope.as_str(), "" | "Cluster"), "scope"),
        ] {
            if is_set {
                self.problems.report(format!("{}.{name}", field()), NOT_SUPPORTED);
                is_valid = false;
            }
        }
        if !is_valid {
            return;
        }
        let selectors = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
        if let Some(entities) = &peer.external_entity_selector {
            let is_alone = peer.ip_block.is_none() && peer.group.is_empty() && peer.namespaces.is_none();
            if is_alone && peer.pod_selector.is_none() {
                let labels = self.problems.selector(entities, || format!("{}.externalEntitySelector", field()));
                let scope = self.problems.selected((None, selectors.1), alone(&self.name.namespace), field);
                read.entities.extend(labels.zip(scope).map(|(pods, selected)| Selected { pods, ..selected }));
            } else {
                let problem = "externalEntitySelector can only be combined with namespaceSelector; it matches nothing";
                self.problems.report(field(), problem);
            }
            return;
        }
        match (&peer.ip_block, peer.group.as_str(), &peer.namespaces, selectors) {
            (Some(block), "", None, (None, None)) => read.blocks.extend(self.problems.block(block, block_field)),
            (None, "", None, (None, None)) => {
                let problem = "needs podSelector, namespaceSelector, namespaces, group or ipBlock; it matches nothing";
                self.problems.report(field(), problem);
            }
            (None, "", None, selectors) => {
                let selected = self.problems.selected(selectors, alone(&self.name.namespace), field);
                read.targets.extend(selected.map(Target::Pods));
            }
            (None, "", Some(namespaces), (pods, None)) => {
                let namespaces = self.relative(namespaces, || format!("{}.namespaces", field()));
                let pods = match pods {
                    Some(written) => self.problems.selector(written, || format!("{}.podSelector", field())),
                    None => Some(Selector::default()),
                };
                read.relative.extend(namespaces.zip(pods).map(|(namespaces, pods)| Relative { namespaces, pods }));
            }
            (None, group, None, (None, None)) => read.targets.push(self.group(group, field)),
            _ => {
                let problem = "combines fields that exclude each other; only podSelector can be combined, \
                               with namespaceSelector or namespaces; it matches nothing";
                self.problems.report(field(), problem);
            }
        }
    }

    fn relative(&mut self, written: &PeerNamespaces, field: impl Fn() -> String) -> Option<RelativeNamespaces> {
        // A misspelt field would leave the other one, which means something else.
        let effect = "is an unknown field; the peer matches nothing";
        let is_known = self.problems.has_no_unknown(&written.unknown, effect, &field);
        let problem = match (written.matching.as_str(), &written.same_labels[..]) {
            _ if !self.is_cluster() => "is only possible in a ClusterNetworkPolicy; it matches nothing",
            ("Self", []) => return is_known.then_some(RelativeNamespaces::Own),
            ("", [_, ..]) => {
                let keys = written.same_labels.iter().cloned().collect();
                return is_known.then_some(RelativeNamespaces::SameLabels(keys));
            }
            _ => "needs `match: Self` or at least one of sameLabels; it matches nothing",
        };
        self.problems.report(field(), problem);
        None
    }

    fn services(&mut self, rule: &Rule, action: Action, field: Field<'_>) -> Option<Vec<Service>> {
        if rule.ports.is_empty() && rule.protocols.is_empty() {
            return None;
        }
        let effect = if action.is_allow() { ALLOWS_NOTHING } else { ENFORCED_WITHOUT };
        let mut services = Vec::with_capacity(rule.ports.len());
        for (n, port) in rule.ports.iter().enumerate() {
            let is_known = self.problems.has_no_unknown(&port.unknown, effect, || field.port(n));
            let mut is_valid = is_known || !action.is_allow();
            for (value, name) in [(port.source_port, "sourcePort"), (port.source_end_port, "sourceEndPort")] {
                if value.is_some() {
                    self.problems.report(format!("{}.{name}", field.port(n)), NOT_SUPPORTED);
                    is_valid = false;
                }
            }
            if is_valid {
                let numbers = (port.port.as_ref(), port.end_port);
                services.extend(self.problems.service(&port.protocol, numbers, || field.port(n)));
            }
        }
        for (n, protocol) in rule.protocols.iter().enumerate() {
            let field = || format!("{}.protocols[{n}]", field.rule());
            let effect = "is an unknown field; it matches nothing";
            let is_known = self.problems.has_no_unknown(&protocol.unknown, effect, field);
            match &protocol.icmp {
                Some(_) => self.problems.report(format!("{}.icmp", field()), NOT_SUPPORTED),
                None if is_known => self.problems.report(field(), "needs icmp; it matches nothing"),
                None => {}
            }
        }
        Some(services)
    }

    fn rule_names(&mut self, policy: &Policy) {
        let mut names = BTreeSet::new();
        for (field, rules) in [("ingress", &policy.spec.ingress), ("egress", &policy.spec.egress)] {
            for (n, rule) in rules.iter().enumerate() {
                if !rule.name.is_empty() && !names.insert(&rule.name) {
                    let problem = format!("`{}` is the name of another rule; names must be unique", rule.name);
                    self.problems.report(format!("spec.{field}[{n}].name"), problem);
                }
            }
        }
    }

    fn group(&self, name: &str, field: impl Fn() -> String) -> Target {
        let name = ObjectName { namespace: self.name.namespace.clone(), name: name.to_owned() };
        Target::Group(name, format!("{}.group", field()))
    }

    fn is_cluster(&self) -> bool {
        self.name.namespace.is_empty()
    }
}

#[cfg(test)]
mod tests;
