//! Resolves rules: named ports to numbers, members of groups to addresses.

use std::collections::{BTreeMap, BTreeSet};

use types::ObjectName;
use types::control::{Action, Direction, GroupId, IpBlock, Member, PolicyName, Ports, Service};
use types::meta::Protocol;

/// A resolved rule. A rule with named ports becomes several of these, if Pods give the name different numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyRule {
    /// The policy that has the rule.
    pub policy: PolicyName,
    /// The direction of the connections.
    pub direction: Direction,
    /// The index of the rule among those of its policy and direction.
    pub index: u32,
    /// What happens to connections that the rule matches.
    pub action: Action,
    /// The Pods that the rule applies to.
    pub applied_to: BTreeSet<ObjectName>,
    /// `None` means all peers.
    pub peers: Option<BTreeSet<IpBlock>>,
    /// `None` means all ports of all protocols.
    pub ports: Option<BTreeSet<Ports>>,
    /// The AppliedToGroups that the rule itself has. They tell rules apart that the controller made of one rule, such as one for
    /// each Namespace.
    pub own_groups: Vec<GroupId>,
}

/// A rule with the members of its groups.
pub(crate) struct Unresolved<'a> {
    pub(crate) policy: &'a PolicyName,
    pub(crate) direction: Direction,
    pub(crate) index: u32,
    pub(crate) action: Action,
    pub(crate) own_groups: &'a [GroupId],
    pub(crate) applied_to: &'a [&'a Member],
    /// `None` means all peers.
    pub(crate) peers: Option<(&'a [IpBlock], Vec<&'a Member>)>,
    pub(crate) services: Option<&'a [Service]>,
}

impl<'a> Unresolved<'a> {
    /// Resolves the rule. `known_by` returns the Pods that define a named port, for peers that are not given by a group.
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
        let Unresolved { direction, index, action, .. } = *self;
        let (policy, own_groups) = (self.policy.clone(), self.own_groups.to_vec());
        PolicyRule { policy, direction, index, action, applied_to, peers, ports, own_groups }
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

    /// The peers that define the named port, by its number: members of groups, Pods in an ipBlock, or all Pods if the rule has no
    /// peers. Addresses outside the cluster define no named ports.
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
