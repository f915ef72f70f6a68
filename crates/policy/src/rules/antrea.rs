//! Antrea policies: looks at every Pod that a rule applies to, one by one.

use std::collections::{BTreeMap, BTreeSet};

use types::control::{Action, Direction, IpBlock, Member, Service};
use types::{InvalidField, ObjectName};

use super::{Computed, selected};
use crate::cluster::Cluster;
use crate::reading::{
    AntreaReading, AntreaRule, EntityReading, GroupReading, Relative, RelativeNamespaces, Scope, Selected, Target,
    flatten, kind, policy_name, tier_priority,
};
use crate::resolve::Unresolved;

/// Adds the rules of the Antrea policies of a cluster.
pub(super) fn compute(cluster: &Cluster, computed: &mut Computed) {
    let groups: BTreeMap<ObjectName, GroupReading> =
        cluster.groups.iter().map(|(name, group)| (name.clone(), GroupReading::new(name, group))).collect();
    let entities: Vec<EntityReading> =
        cluster.entities.iter().map(|(name, entity)| EntityReading::new(name, entity).0).collect();
    for (name, policy) in &cluster.antrea_policies {
        let mut reading = AntreaReading::new(name, policy);
        let problems = std::mem::take(&mut reading.problems);
        let mut reference = Reference { cluster, groups: &groups, name, problems };
        if cluster.tiers.get(&reading.tier).is_none_or(|tier| tier_priority(tier).0.is_none()) {
            reference.problems.push(reading.missing_tier(name));
        } else if reading.priority.is_some() {
            let of_policy = reference.applied_to(&reading.applied_to);
            for rule in &reading.rules {
                let own = rule.applied_to.as_ref().map(|targets| reference.applied_to(targets));
                let pods = own.as_deref().unwrap_or(&of_policy);
                reference.rule(rule, pods, computed);
                let selected = rule.peers.iter().flat_map(|peers| &peers.entities);
                let found: Vec<&Member> = selected.flat_map(|it| reference.entities(&entities, it)).collect();
                if !found.is_empty() {
                    reference.add(rule, pods, Some((&[], found)), computed);
                }
            }
        }
        computed.errors.extend(reference.problems);
    }
}

struct Reference<'a> {
    cluster: &'a Cluster,
    groups: &'a BTreeMap<ObjectName, GroupReading>,
    name: &'a ObjectName,
    problems: Vec<InvalidField>,
}

impl<'a> Reference<'a> {
    fn rule(&mut self, rule: &AntreaRule, pods: &[&'a Member], computed: &mut Computed) {
        let Some(peers) = &rule.peers else {
            self.add(rule, pods, None, computed);
            return;
        };
        let (mut members, mut blocks) = (Vec::new(), peers.blocks.clone());
        for target in &peers.targets {
            match target {
                Target::Pods(pods) => members.extend(selected(self.cluster, self.name, pods)),
                Target::Group(group, field) => {
                    let (found, addresses) = self.group(group, field);
                    members.extend(found);
                    blocks.extend(addresses);
                }
            }
        }
        if peers.relative.is_empty() && peers.entities.is_empty() || !peers.targets.is_empty() || !blocks.is_empty() {
            self.add(rule, pods, Some((&blocks, members)), computed);
        }
        for pod in pods {
            for (relative, namespaces) in peers.relative.iter().flat_map(|relative| {
                self.namespaces(relative, &pod.pod.namespace).map(|namespaces| (relative, namespaces))
            }) {
                let everyone = Selected { pods: relative.pods.clone(), ..Selected::everyone() };
                let mut found = selected(self.cluster, self.name, &everyone);
                found.retain(|member| namespaces.contains(&member.pod.namespace));
                self.add(rule, &[*pod], Some((&[], found)), computed);
            }
        }
    }

    fn entities<'e>(&self, entities: &'e [EntityReading], of: &Selected) -> Vec<&'e Member> {
        let in_scope = |namespace: &String| match &of.scope {
            Scope::Own => *namespace == self.name.namespace,
            Scope::Namespaces(selector) => {
                self.cluster.namespaces.get(namespace).is_some_and(|labels| selector.selects(labels))
            }
        };
        let found = entities.iter().filter(|it| in_scope(&it.member.pod.namespace) && of.pods.selects(&it.labels));
        found.map(|entity| &entity.member).filter(|member| !member.addresses.is_empty()).collect()
    }

    fn add<'m>(
        &self,
        rule: &AntreaRule,
        applied_to: &[&'m Member],
        peers: Option<(&[IpBlock], Vec<&'m Member>)>,
        computed: &mut Computed,
    ) {
        let policy = policy_name(self.name.clone());
        let (direction, index, action): (Direction, u32, Action) = (rule.direction, rule.index, rule.action);
        let services: Option<&[Service]> = rule.services.as_deref();
        let unresolved =
            Unresolved { policy: &policy, direction, index, action, own_groups: &[], applied_to, peers, services };
        let everyone = |_: &Service| selected(self.cluster, self.name, &Selected::everyone());
        computed.rules.extend(unresolved.resolve(everyone));
    }

    /// The Namespaces of a peer, seen from one Namespace; `None` if there is no rule for it.
    fn namespaces(&self, relative: &Relative, own: &str) -> Option<BTreeSet<&'a String>> {
        let labels = self.cluster.namespaces.get(own)?;
        let all = self.cluster.namespaces.iter();
        Some(match &relative.namespaces {
            RelativeNamespaces::Own => all.filter(|(name, _)| *name == own).map(|(name, _)| name).collect(),
            RelativeNamespaces::SameLabels(keys) => {
                let values = keys.iter().map(|key| labels.get(key)).collect::<Option<Vec<_>>>()?;
                let same = all
                    .filter(|(_, labels)| keys.iter().zip(&values).all(|(key, value)| labels.get(key) == Some(value)));
                same.map(|(name, _)| name).collect()
            }
        })
    }

    fn applied_to(&mut self, targets: &[Target]) -> Vec<&'a Member> {
        let mut pods: BTreeMap<&ObjectName, &'a Member> = BTreeMap::new();
        for target in targets {
            let found = match target {
                Target::Pods(pods) => selected(self.cluster, self.name, pods),
                Target::Group(group, field) => {
                    let (groups, namespace) = (self.groups, &self.name.namespace);
                    let flat = flatten(group, |name| groups.get(name));
                    self.report(field, flat.problems_applied_to(namespace));
                    flat.selected_by(namespace).flat_map(|it| selected(self.cluster, self.name, it)).collect()
                }
            };
            pods.extend(found.into_iter().map(|member| (&member.pod, member)));
        }
        pods.into_values().collect()
    }

    fn group(&mut self, group: &ObjectName, field: &str) -> (Vec<&'a Member>, Vec<IpBlock>) {
        let groups = self.groups;
        let flat = flatten(group, |name| groups.get(name));
        self.report(field, flat.problems);
        let members = flat.selected.iter().flat_map(|it| selected(self.cluster, self.name, it)).collect();
        (members, flat.blocks.into_iter().cloned().collect())
    }

    fn report(&mut self, field: &str, problems: Vec<String>) {
        let (kind, name) = (kind(self.name).name(), self.name);
        let invalid = |problem| InvalidField { kind, name: name.clone(), field: field.to_owned(), problem };
        self.problems.extend(problems.into_iter().map(invalid));
    }
}
