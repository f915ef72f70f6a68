//! Rules with everything in them found: names of ports, members of groups.

use std::collections::{BTreeMap, BTreeSet};

use types::ObjectName;
use types::control::{Direction, IpBlock, Member, Ports, Service};
use types::meta::Protocol;

/// What one rule of a policy allows. A rule with named ports may be several of these, as a name means other numbers to
/// other Pods.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyRule {
    /// The policy.
    pub policy: ObjectName,
    /// Which way.
    pub direction: Direction,
    /// Which of the policy's rules in this direction.
    pub index: u32,
    /// The Pods that it applies to.
    pub applied_to: BTreeSet<ObjectName>,
    /// The other ends; `None`: whatever they are.
    pub peers: Option<BTreeSet<IpBlock>>,
    /// The ports; `None`: whatever they are, of whatever protocol.
    pub ports: Option<BTreeSet<Ports>>,
}

/// A rule and whom it is about.
pub(crate) struct Unresolved<'a> {
    pub(crate) policy: &'a ObjectName,
    pub(crate) direction: Direction,
    pub(crate) index: u32,
    pub(crate) applied_to: &'a [&'a Member],
    /// The other ends; `None`: whatever they are.
    pub(crate) peers: Option<(&'a [IpBlock], Vec<&'a Member>)>,
    pub(crate) services: Option<&'a [Service]>,
}

impl<'a> Unresolved<'a> {
    /// Resolves the rule. `known_by` is asked who knows the name of a port, where that may be somebody else than the peers' members.
    pub(crate) fn resolve(&self, known_by: impl Fn(&Service) -> Vec<&'a Member>) -> Vec<PolicyRule> {
        let all = || self.applied_to.iter().map(|member| member.pod.clone()).collect();
        if self.applied_to.is_empty() {
            return Vec::new();
        }
        let Some(services) = self.services else {
            return vec![self.rule(all(), self.all_peers(), None)];
        };
        let mut rules = Vec::new();
        let numbers: BTreeSet<Ports> = services
            .iter()
            .filter_map(|service| match service {
                Service::Ports(ports) => Some(*ports),
                Service::Named { .. } => None,
            })
            .collect();
        if !numbers.is_empty() {
            rules.push(self.rule(all(), self.all_peers(), Some(numbers)));
        }
        for service in services {
            let Service::Named { protocol, name, .. } = service else { continue };
            let ports = |port| Some([Ports { protocol: *protocol, range: Some((port, port)) }].into());
            match self.direction {
                Direction::Ingress => {
                    for (port, applied_to) in self.own_pods_by_number(*protocol, name) {
                        rules.push(self.rule(applied_to, self.all_peers(), ports(port)));
                    }
                }
                Direction::Egress => {
                    for (port, peers) in self.peers_by_number(*protocol, name, || known_by(service)) {
                        rules.push(self.rule(all(), Some(peers), ports(port)));
                    }
                }
            }
        }
        rules
    }

    fn rule(
        &self,
        applied_to: BTreeSet<ObjectName>,
        peers: Option<BTreeSet<IpBlock>>,
        ports: Option<BTreeSet<Ports>>,
    ) -> PolicyRule {
        let (policy, direction, index) = (self.policy.clone(), self.direction, self.index);
        PolicyRule { policy, direction, index, applied_to, peers, ports }
    }

    fn all_peers(&self) -> Option<BTreeSet<IpBlock>> {
        let (blocks, members) = self.peers.as_ref()?;
        Some(blocks.iter().cloned().chain(members.iter().flat_map(|member| addresses(member))).collect())
    }

    fn own_pods_by_number(&self, protocol: Protocol, name: &str) -> BTreeMap<u16, BTreeSet<ObjectName>> {
        let mut by_number: BTreeMap<u16, BTreeSet<ObjectName>> = BTreeMap::new();
        for member in self.applied_to {
            if let Some(port) = member.port(protocol, name) {
                by_number.entry(port).or_default().insert(member.pod.clone());
            }
        }
        by_number
    }

    /// Any Pod that knows the name is meant, if it is a peer: by a selector, by its address, or as there are none named. An address
    /// outside the cluster knows no names.
    fn peers_by_number(
        &self,
        protocol: Protocol,
        name: &str,
        known_by: impl Fn() -> Vec<&'a Member>,
    ) -> BTreeMap<u16, BTreeSet<IpBlock>> {
        let (blocks, members) =
            self.peers.as_ref().map_or((None, &[][..]), |(blocks, members)| (Some(*blocks), members));
        let found = match blocks {
            Some([]) => Vec::new(),
            None | Some(_) => known_by(),
        };
        let is_peer = |address: &IpBlock| blocks.is_none_or(|blocks| blocks.iter().any(|block| covers(block, address)));
        let mut by_number: BTreeMap<u16, BTreeSet<IpBlock>> = BTreeMap::new();
        for member in members {
            if let Some(port) = member.port(protocol, name) {
                by_number.entry(port).or_default().extend(addresses(member));
            }
        }
        for member in found {
            if let Some(port) = member.port(protocol, name) {
                by_number.entry(port).or_default().extend(addresses(member).filter(is_peer));
            }
        }
        by_number.retain(|_, peers| !peers.is_empty());
        by_number
    }
}

fn covers(block: &IpBlock, address: &IpBlock) -> bool {
    block.cidr.contains(&address.cidr) && !block.except.iter().any(|hole| hole.contains(&address.cidr))
}

fn addresses(member: &Member) -> impl Iterator<Item = IpBlock> + '_ {
    member.addresses.iter().copied().map(IpBlock::from)
}
