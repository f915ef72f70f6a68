//! Parses NetworkPolicies of `networking.k8s.io`.

use types::InvalidField;
use types::ObjectName;
use types::control::{Direction, IpBlock, Isolation, PolicyKind, Service};
use types::meta::UnknownFields;
use types::network_policy::{NetworkPolicy, PolicyPeer, PolicyPort};

use super::{ALLOWS_NOTHING, Field, Problems, Scope, Selected};

/// A parsed policy.
///
/// Invalid parts fail closed. An invalid rule, peer or port allows nothing. An invalid requirement of `podSelector` is left out, so
/// that the policy isolates at least the intended Pods; such a policy allows nothing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reading {
    pub(crate) applied_to: Selected,
    pub(crate) isolates: Isolation,
    pub(crate) rules: Vec<ReadRule>,
    pub(crate) problems: Vec<InvalidField>,
}

/// A parsed rule of a policy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ReadRule {
    pub(crate) direction: Direction,
    pub(crate) index: u32,
    /// `None` allows all peers.
    pub(crate) peers: Option<ReadPeers>,
    /// `None` allows all ports. `known_by` of named ports is not set yet.
    pub(crate) services: Option<Vec<Service>>,
}

/// The peers of a rule.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ReadPeers {
    pub(crate) selected: Vec<Selected>,
    pub(crate) blocks: Vec<IpBlock>,
}

impl Reading {
    /// Parses a policy; `name` is its name.
    pub(crate) fn new(name: &ObjectName, policy: &NetworkPolicy) -> Self {
        let mut reader = Reader { policy, problems: Problems::new(PolicyKind::Kubernetes.name(), name) };
        let spec = &policy.spec;
        let (pods, is_valid) = reader.problems.readable(&spec.pod_selector, "spec.podSelector");
        let is_valid = reader.problems.has_no_unknown(&spec.unknown, ALLOWS_NOTHING, || "spec".to_owned()) && is_valid;
        let mut reading = Self {
            applied_to: Selected { scope: Scope::Own, pods },
            isolates: Isolation::default(),
            rules: Vec::new(),
            problems: Vec::new(),
        };
        let (named, guessed) = reader.directions();
        reading.isolates =
            Isolation { ingress: named.ingress || guessed.ingress, egress: named.egress || guessed.egress };
        // Rules of other directions are ignored, as documented.
        if named.ingress && is_valid {
            let rules = spec.ingress.iter().map(|rule| (&rule.from[..], &rule.ports[..], &rule.unknown));
            reading.rules.extend(reader.rules(Direction::Ingress, ("ingress", "from"), rules));
        }
        if named.egress && is_valid {
            let rules = spec.egress.iter().map(|rule| (&rule.to[..], &rule.ports[..], &rule.unknown));
            reading.rules.extend(reader.rules(Direction::Egress, ("egress", "to"), rules));
        }
        reading.problems = reader.problems.found;
        reading
    }
}

/// The state of parsing a policy.
struct Reader<'a> {
    policy: &'a NetworkPolicy,
    problems: Problems<'a>,
}

impl Reader<'_> {
    /// The directions that the policy names, and those that an invalid `policyTypes` may mean. Without `policyTypes`: ingress, and
    /// egress if there are egress rules.
    fn directions(&mut self) -> (Isolation, Isolation) {
        let types = &self.policy.spec.policy_types;
        let (mut named, mut guessed) = (Isolation::default(), Isolation::default());
        if types.is_empty() {
            return (Isolation { ingress: true, egress: !self.policy.spec.egress.is_empty() }, guessed);
        }
        for (index, kind) in types.iter().enumerate() {
            match kind.as_str() {
                "Ingress" => named.ingress = true,
                "Egress" => named.egress = true,
                other => {
                    guessed = Isolation { ingress: true, egress: true };
                    let problem = format!("`{other}` is neither Ingress nor Egress");
                    self.problems.report(format!("spec.policyTypes[{index}]"), problem);
                }
            }
        }
        (named, guessed)
    }

    fn rules<'r>(
        &mut self,
        direction: Direction,
        (rules_field, peers_field): (&str, &str),
        rules: impl Iterator<Item = (&'r [PolicyPeer], &'r [PolicyPort], &'r UnknownFields)>,
    ) -> Vec<ReadRule> {
        let mut read = Vec::with_capacity(rules.size_hint().0);
        for (index, (peers, ports, unknown)) in (0..).zip(rules) {
            let field = Field { rules: rules_field, index, peers: peers_field };
            if !self.problems.has_no_unknown(unknown, ALLOWS_NOTHING, || field.rule()) {
                continue;
            }
            let services = (!ports.is_empty()).then(|| self.services(ports, field));
            let peers = (!peers.is_empty()).then(|| self.peers(peers, field));
            read.push(ReadRule { direction, index, peers, services });
        }
        read
    }

    fn peers(&mut self, peers: &[PolicyPeer], field: Field<'_>) -> ReadPeers {
        let (mut read, problems) = (ReadPeers::default(), &mut self.problems);
        for (n, peer) in peers.iter().enumerate() {
            let mut is_valid = problems.has_no_unknown(&peer.unknown, ALLOWS_NOTHING, || field.peer(n));
            let block_field = || format!("{}.ipBlock", field.peer(n));
            if let Some(block) = &peer.ip_block {
                is_valid &= problems.has_no_unknown(&block.unknown, ALLOWS_NOTHING, block_field);
            }
            if !is_valid {
                continue;
            }
            let selectors = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
            match (&peer.ip_block, selectors) {
                (Some(block), (None, None)) => read.blocks.extend(problems.block(block, block_field)),
                (Some(_), _) => problems.report(field.peer(n), "ipBlock cannot be combined with a selector"),
                (None, (None, None)) => {
                    problems.report(field.peer(n), "needs podSelector, namespaceSelector or ipBlock");
                }
                (None, selectors) => {
                    read.selected.extend(problems.selected(selectors, Scope::Own, || field.peer(n)));
                }
            }
        }
        read
    }

    fn services(&mut self, ports: &[PolicyPort], field: Field<'_>) -> Vec<Service> {
        let (mut services, problems) = (Vec::with_capacity(ports.len()), &mut self.problems);
        for (n, port) in ports.iter().enumerate() {
            if problems.has_no_unknown(&port.unknown, ALLOWS_NOTHING, || field.port(n)) {
                let numbers = (port.port.as_ref(), port.end_port);
                services.extend(problems.service(&port.protocol, numbers, || field.port(n)));
            }
        }
        services
    }
}
