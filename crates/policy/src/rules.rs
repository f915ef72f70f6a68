//! NetworkPolicies to rules, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use selector::{InvalidSelector, Selector};
use types::meta::{IntOrString, LabelSelector, Protocol};
use types::network_policy::{NetworkPolicy, PolicyPeer, PolicyPort};
use types::{InvalidField, ObjectName};

use crate::cluster::{Cluster, Endpoint};

/// Which way a rule looks at its Pods' connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Into the Pods.
    Ingress,
    /// Out of the Pods.
    Egress,
}

/// A range of addresses with holes in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IpBlock {
    /// The range.
    pub cidr: IpNet,
    /// Its holes.
    pub except: Vec<IpNet>,
}

impl IpBlock {
    fn covers(&self, other: &IpBlock) -> bool {
        self.cidr.contains(&other.cidr) && !self.except.iter().any(|hole| hole.contains(&other.cidr))
    }
}

/// Destination ports of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ports {
    /// The protocol.
    pub protocol: Protocol,
    /// First and last port; all if not given.
    pub range: Option<(u16, u16)>,
}

/// What one rule of a policy allows. A rule with named ports may be several of these, as a name means other numbers to
/// other Pods.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PolicyRule {
    /// The policy.
    pub policy: ObjectName,
    /// Which way.
    pub direction: Direction,
    /// Which of the policy's rules in this direction.
    pub index: usize,
    /// The Pods that it applies to.
    pub applied_to: BTreeSet<ObjectName>,
    /// The other ends; `None`: whatever they are.
    pub peers: Option<BTreeSet<IpBlock>>,
    /// The ports; `None`: whatever they are, of whatever protocol.
    pub ports: Option<BTreeSet<Ports>>,
}

/// All that follows from the policies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// What is allowed.
    pub rules: BTreeSet<PolicyRule>,
    /// The Pods of whose connections only those pass that are allowed.
    pub isolated: BTreeSet<(Direction, ObjectName)>,
    /// What could not be understood.
    pub errors: Vec<InvalidField>,
}

/// Looks at everything and says what follows.
pub fn compute(cluster: &Cluster) -> Computed {
    let mut computed = Computed::default();
    for (name, policy) in &cluster.policies {
        One { cluster, name, policy, computed: &mut computed }.compute();
    }
    computed
}

/// One policy, while it is looked at.
struct One<'a> {
    cluster: &'a Cluster,
    name: &'a ObjectName,
    policy: &'a NetworkPolicy,
    computed: &'a mut Computed,
}

/// Ports by number, and ports by names that Pods give a number.
#[derive(Default)]
struct WrittenPorts {
    numbers: BTreeSet<Ports>,
    names: BTreeSet<(Protocol, String)>,
}

impl One<'_> {
    fn compute(&mut self) {
        let spec = &self.policy.spec;
        let Some(selector) = self.selector(&spec.pod_selector, "spec.podSelector") else { return };
        let applied_to: BTreeSet<ObjectName> =
            self.pods(&self.name.namespace, &selector).into_iter().map(|(name, _)| name.clone()).collect();
        let directions = self.directions();
        for direction in &directions {
            self.computed.isolated.extend(applied_to.iter().map(|pod| (*direction, pod.clone())));
        }
        if applied_to.is_empty() {
            return;
        }
        // Rules of a direction that the policy is not about say nothing.
        let ingress = directions.contains(&Direction::Ingress).then_some(&spec.ingress);
        let egress = directions.contains(&Direction::Egress).then_some(&spec.egress);
        for (index, rule) in ingress.into_iter().flatten().enumerate() {
            let field = format!("spec.ingress[{index}]");
            self.rule(
                Direction::Ingress,
                index,
                &applied_to,
                (&rule.from, &format!("{field}.from")),
                (&rule.ports, &field),
            );
        }
        for (index, rule) in egress.into_iter().flatten().enumerate() {
            let field = format!("spec.egress[{index}]");
            self.rule(Direction::Egress, index, &applied_to, (&rule.to, &format!("{field}.to")), (&rule.ports, &field));
        }
    }

    /// Ingress always, unless only the other is named; egress if it is named, or if there are rules for it.
    fn directions(&mut self) -> Vec<Direction> {
        let types = &self.policy.spec.policy_types;
        if types.is_empty() {
            let egress = (!self.policy.spec.egress.is_empty()).then_some(Direction::Egress);
            return [Direction::Ingress].into_iter().chain(egress).collect();
        }
        let mut directions = Vec::new();
        for (index, kind) in types.iter().enumerate() {
            match kind.as_str() {
                "Ingress" => directions.push(Direction::Ingress),
                "Egress" => directions.push(Direction::Egress),
                other => {
                    self.error(
                        format!("spec.policyTypes[{index}]"),
                        format!("`{other}` is neither Ingress nor Egress"),
                    );
                }
            }
        }
        directions
    }

    fn rule(
        &mut self,
        direction: Direction,
        index: usize,
        applied_to: &BTreeSet<ObjectName>,
        (peers, peers_field): (&[PolicyPeer], &str),
        (ports, field): (&[PolicyPort], &str),
    ) {
        let written = self.ports(ports, field);
        let (blocks, peer_pods) = self.peers(peers, peers_field);
        let all_peers = |pods: &BTreeMap<ObjectName, Endpoint>| -> Option<BTreeSet<IpBlock>> {
            (!peers.is_empty()).then(|| blocks.iter().cloned().chain(pods.values().flat_map(addresses)).collect())
        };
        let policy = self.name.clone();
        let rule = |applied_to, peers, ports| PolicyRule {
            policy: policy.clone(),
            direction,
            index,
            applied_to,
            peers,
            ports,
        };
        if ports.is_empty() {
            self.computed.rules.insert(rule(applied_to.clone(), all_peers(&peer_pods), None));
            return;
        }
        if !written.numbers.is_empty() {
            self.computed.rules.insert(rule(applied_to.clone(), all_peers(&peer_pods), Some(written.numbers)));
        }
        // A name belongs to the Pod that is connected to: the rule's own going in, the other end going out.
        for (protocol, name) in written.names {
            let number = |pod: &Endpoint| pod.ports.get(&(protocol, name.clone())).copied();
            let ports = |port| Some([Ports { protocol, range: Some((port, port)) }].into());
            match direction {
                Direction::Ingress => {
                    let mut by_number: BTreeMap<u16, BTreeSet<ObjectName>> = BTreeMap::new();
                    for pod in applied_to {
                        if let Some(port) = self.cluster.pods.get(pod).and_then(number) {
                            by_number.entry(port).or_default().insert(pod.clone());
                        }
                    }
                    for (port, applied_to) in by_number {
                        self.computed.rules.insert(rule(applied_to, all_peers(&peer_pods), ports(port)));
                    }
                }
                Direction::Egress => {
                    // Any Pod that knows the name is meant, if it is a peer: by a selector, by its address, or as there are none
                    // named. An address outside the cluster knows no names.
                    let mut by_number: BTreeMap<u16, BTreeSet<IpBlock>> = BTreeMap::new();
                    for (name, pod) in &self.cluster.pods {
                        let is_peer = |ip: &IpBlock| {
                            peers.is_empty()
                                || peer_pods.contains_key(name)
                                || blocks.iter().any(|block| block.covers(ip))
                        };
                        if let Some(port) = number(pod) {
                            by_number.entry(port).or_default().extend(addresses(pod).filter(is_peer));
                        }
                    }
                    by_number.retain(|_, peers| !peers.is_empty());
                    for (port, peers) in by_number {
                        self.computed.rules.insert(rule(applied_to.clone(), Some(peers), ports(port)));
                    }
                }
            }
        }
    }

    fn peers(&mut self, peers: &[PolicyPeer], field: &str) -> (BTreeSet<IpBlock>, BTreeMap<ObjectName, Endpoint>) {
        let (mut blocks, mut pods) = (BTreeSet::new(), BTreeMap::new());
        for (index, peer) in peers.iter().enumerate() {
            let field = format!("{field}[{index}]");
            if let Some(block) = &peer.ip_block {
                if peer.pod_selector.is_some() || peer.namespace_selector.is_some() {
                    self.error(field, "ipBlock cannot stand beside a selector".to_owned());
                    continue;
                }
                let cidr = self.cidr(&block.cidr, format!("{field}.ipBlock.cidr"));
                let except: Option<Vec<IpNet>> = (0..)
                    .zip(&block.except)
                    .map(|(n, hole)| self.cidr(hole, format!("{field}.ipBlock.except[{n}]")))
                    .collect();
                blocks.extend(cidr.zip(except).map(|(cidr, except)| IpBlock { cidr, except }));
                continue;
            }
            let everything = LabelSelector::default();
            let pod_selector =
                self.selector(peer.pod_selector.as_ref().unwrap_or(&everything), &format!("{field}.podSelector"));
            let namespace_selector = match &peer.namespace_selector {
                Some(written) => match self.selector(written, &format!("{field}.namespaceSelector")) {
                    Some(selector) => Some(selector),
                    None => continue,
                },
                None if peer.pod_selector.is_none() => {
                    self.error(field, "needs podSelector, namespaceSelector or ipBlock".to_owned());
                    continue;
                }
                None => None,
            };
            let Some(pod_selector) = pod_selector else { continue };
            let cluster = self.cluster;
            for (namespace, labels) in &cluster.namespaces {
                let selected = match &namespace_selector {
                    Some(selector) => selector.selects(labels),
                    None => *namespace == self.name.namespace,
                };
                if selected {
                    pods.extend(
                        self.pods(namespace, &pod_selector).into_iter().map(|(name, pod)| (name.clone(), pod.clone())),
                    );
                }
            }
        }
        (blocks, pods)
    }

    fn ports(&mut self, ports: &[PolicyPort], field: &str) -> WrittenPorts {
        let mut written = WrittenPorts::default();
        for (index, port) in ports.iter().enumerate() {
            let field = format!("{field}.ports[{index}]");
            let protocol = port.protocol;
            let range = match (&port.port, port.end_port) {
                (None, None) => Ok(None),
                (Some(IntOrString::String(name)), None) => {
                    written.names.insert((protocol, name.clone()));
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
                Ok(range) => drop(written.numbers.insert(Ports { protocol, range })),
                Err((name, problem)) => self.error(format!("{field}.{name}"), problem.to_owned()),
            }
        }
        written
    }

    fn pods(&self, namespace: &str, selector: &Selector) -> Vec<(&ObjectName, &Endpoint)> {
        let selected =
            |(name, pod): &(&ObjectName, &Endpoint)| name.namespace == namespace && selector.selects(&pod.labels);
        self.cluster.pods.iter().filter(selected).collect()
    }

    fn selector(&mut self, written: &LabelSelector, field: &str) -> Option<Selector> {
        match Selector::new(written) {
            Ok(selector) => Some(selector),
            Err(InvalidSelector { index, problem }) => {
                self.error(format!("{field}.matchExpressions[{index}]"), problem);
                None
            }
        }
    }

    fn cidr(&mut self, text: &str, field: String) -> Option<IpNet> {
        match text.parse() {
            Ok(cidr) => Some(cidr),
            Err(_) => {
                self.error(field, format!("`{text}` is not a range of addresses such as 10.0.0.0/8"));
                None
            }
        }
    }

    fn error(&mut self, field: String, problem: String) {
        self.computed.errors.push(InvalidField { kind: "NetworkPolicy", name: self.name.clone(), field, problem });
    }
}

fn addresses(pod: &Endpoint) -> impl Iterator<Item = IpBlock> {
    pod.addresses.iter().map(|address: &IpAddr| IpBlock { cidr: (*address).into(), except: Vec::new() })
}

#[cfg(test)]
mod tests;
