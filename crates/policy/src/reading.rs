//! Parses and validates NetworkPolicies.

use std::fmt;

use ipnet::IpNet;
use selector::{InvalidSelector, Selector};
use types::control::{Direction, IpBlock, Isolation, Ports, Service};
use types::meta::{IntOrString, LabelSelector, UnknownFields, WrittenProtocol};
use types::network_policy::{NetworkPolicy, PolicyPeer, PolicyPort};
use types::{InvalidField, ObjectName};

/// The namespaces in which Pods are selected.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Scope {
    /// The namespace of the policy.
    Own,
    /// All namespaces that the selector selects.
    Namespaces(Selector),
}

/// A selector of Pods, with its namespaces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Selected {
    pub(crate) scope: Scope,
    pub(crate) pods: Selector,
}

impl Selected {
    /// All Pods of all known namespaces.
    pub(crate) fn everyone() -> Self {
        Self { scope: Scope::Namespaces(Selector::default()), pods: Selector::default() }
    }
}

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
        let mut reader = Reader { name, policy, problems: Vec::new() };
        let spec = &policy.spec;
        let (pods, is_valid) = reader.readable(&spec.pod_selector, "spec.podSelector");
        let is_valid = reader.has_no_unknown(&spec.unknown, || "spec".to_owned()) && is_valid;
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
        reading.problems = reader.problems;
        reading
    }
}

/// The state of parsing a policy.
struct Reader<'a> {
    name: &'a ObjectName,
    policy: &'a NetworkPolicy,
    problems: Vec<InvalidField>,
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
                    self.problem(format!("spec.policyTypes[{index}]"), problem);
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
            if !self.has_no_unknown(unknown, || field.rule()) {
                continue;
            }
            let services = (!ports.is_empty()).then(|| self.services(ports, field));
            let peers = (!peers.is_empty()).then(|| self.peers(peers, field));
            read.push(ReadRule { direction, index, peers, services });
        }
        read
    }

    fn peers(&mut self, peers: &[PolicyPeer], field: Field<'_>) -> ReadPeers {
        let mut read = ReadPeers::default();
        for (n, peer) in peers.iter().enumerate() {
            let mut is_valid = self.has_no_unknown(&peer.unknown, || field.peer(n));
            if let Some(block) = &peer.ip_block {
                is_valid &= self.has_no_unknown(&block.unknown, || format!("{}.ipBlock", field.peer(n)));
            }
            if !is_valid {
                continue;
            }
            if let Some(block) = &peer.ip_block {
                if peer.pod_selector.is_some() || peer.namespace_selector.is_some() {
                    self.problem(field.peer(n), "ipBlock cannot be combined with a selector");
                    continue;
                }
                let cidr = self.cidr(&block.cidr, || format!("{}.ipBlock.cidr", field.peer(n)));
                let except: Option<Vec<IpNet>> = block
                    .except
                    .iter()
                    .enumerate()
                    .map(|(hole, text)| self.cidr(text, || format!("{}.ipBlock.except[{hole}]", field.peer(n))))
                    .collect();
                read.blocks.extend(cidr.zip(except).map(|(cidr, except)| IpBlock { cidr, except }));
                continue;
            }
            if peer.pod_selector.is_none() && peer.namespace_selector.is_none() {
                self.problem(field.peer(n), "needs podSelector, namespaceSelector or ipBlock");
                continue;
            }
            let pods = match &peer.pod_selector {
                Some(written) => self.selector(written, || format!("{}.podSelector", field.peer(n))),
                None => Some(Selector::default()),
            };
            let scope = match &peer.namespace_selector {
                Some(written) => {
                    self.selector(written, || format!("{}.namespaceSelector", field.peer(n))).map(Scope::Namespaces)
                }
                None => Some(Scope::Own),
            };
            read.selected.extend(pods.zip(scope).map(|(pods, scope)| Selected { scope, pods }));
        }
        read
    }

    fn services(&mut self, ports: &[PolicyPort], field: Field<'_>) -> Vec<Service> {
        let mut services = Vec::with_capacity(ports.len());
        for (n, port) in ports.iter().enumerate() {
            if !self.has_no_unknown(&port.unknown, || field.port(n)) {
                continue;
            }
            let protocol = match &port.protocol {
                WrittenProtocol::Known(protocol) => *protocol,
                WrittenProtocol::Other(text) => {
                    self.problem(format!("{}.protocol", field.port(n)), format!("`{text}` is not TCP, UDP or SCTP"));
                    continue;
                }
            };
            let range = match (&port.port, port.end_port) {
                (None, None) => Ok(None),
                (Some(IntOrString::String(name)), None) => {
                    services.push(Service::Named { protocol, name: name.clone(), known_by: None });
                    continue;
                }
                (Some(IntOrString::Int(first)), last) => {
                    match (u16::try_from(*first), u16::try_from(last.unwrap_or(*first))) {
                        (Ok(first @ 1..), Ok(last)) if first <= last => Ok(Some((first, last))),
                        (Ok(1..), _) => Err(("endPort", "needs a port from `port` to 65535")),
                        _ => Err(("port", "needs a number from 1 to 65535, or a name")),
                    }
                }
                (_, Some(_)) => Err(("endPort", "needs `port` to be a number")),
            };
            match range {
                Ok(range) => services.push(Service::Ports(Ports { protocol, range })),
                Err((name, problem)) => self.problem(format!("{}.{name}", field.port(n)), problem),
            }
        }
        services
    }

    /// Reports unknown fields. Returns whether there are none.
    fn has_no_unknown(&mut self, unknown: &UnknownFields, field: impl Fn() -> String) -> bool {
        for name in &unknown.0 {
            self.problem(format!("{}.{name}", field()), "is an unknown field; nothing is allowed by it");
        }
        unknown.0.is_empty()
    }

    /// A selector, if it is valid.
    fn selector(&mut self, written: &LabelSelector, field: impl Fn() -> String) -> Option<Selector> {
        match Selector::new(written) {
            Ok(selector) => Some(selector),
            Err(InvalidSelector { index, problem }) => {
                self.problem(format!("{}.matchExpressions[{index}]", field()), problem);
                None
            }
        }
    }

    /// The valid requirements of a selector, and whether all are valid.
    fn readable(&mut self, written: &LabelSelector, field: &str) -> (Selector, bool) {
        let (selector, invalid) = Selector::readable(written);
        let is_valid = invalid.is_empty();
        for InvalidSelector { index, problem } in invalid {
            self.problem(format!("{field}.matchExpressions[{index}]"), problem);
        }
        (selector, is_valid)
    }

    fn cidr(&mut self, text: &str, field: impl Fn() -> String) -> Option<IpNet> {
        match text.parse() {
            Ok(cidr) => Some(cidr),
            Err(_) => {
                self.problem(field(), format!("`{text}` is not a CIDR such as 10.0.0.0/8"));
                None
            }
        }
    }

    fn problem(&mut self, field: String, problem: impl fmt::Display) {
        let problem = problem.to_string();
        self.problems.push(InvalidField { kind: "NetworkPolicy", name: self.name.clone(), field, problem });
    }
}

/// The field path of a rule, for messages.
#[derive(Clone, Copy)]
struct Field<'a> {
    rules: &'a str,
    index: u32,
    peers: &'a str,
}

impl Field<'_> {
    fn peer(self, n: usize) -> String {
        format!("{}.{}[{n}]", self.rule(), self.peers)
    }

    fn port(self, n: usize) -> String {
        format!("{}.ports[{n}]", self.rule())
    }

    fn rule(self) -> String {
        format!("spec.{}[{}]", self.rules, self.index)
    }
}
