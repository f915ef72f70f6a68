//! From a parsed Antrea policy to the policy that Nodes get: resolves groups, and expands rules with relative namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use types::control::{Direction, GroupId, IpBlock, Member, Order, Policy, Ports, Rank, Rule, Service};
use types::meta::Labels;
use types::{InvalidField, ObjectName};

use super::super::compile::{AppliedToGroups, CompiledPolicy, Compiler, Several, Uses};
use super::super::selections::{SelectionId, Selections};
use super::{Dependency, Tiered, TieredPolicy};
use crate::reading::{
    AntreaRule, ReadPeers, ReadRule, Relative, RelativeNamespaces, Scope, Selected, Target, flatten, kind, policy_name,
};

/// A compiled policy, if it can be enforced.
pub(super) struct Output {
    pub(super) compiled: Option<CompiledPolicy>,
    pub(super) problems: Vec<InvalidField>,
    pub(super) dependencies: BTreeSet<Dependency>,
}

/// Compiles a policy, and acquires the selections that it uses.
pub(super) fn compile(
    tiered: &Tiered,
    selections: &mut Selections,
    name: &ObjectName,
    policy: &TieredPolicy,
) -> Output {
    let reading = &policy.reading;
    let mut problems = reading.problems.clone();
    let mut dependencies = BTreeSet::from([Dependency::Tier(reading.tier.clone())]);
    let tier = tiered.tiers.get(&reading.tier);
    if tier.is_none() {
        problems.push(reading.missing_tier(name));
    }
    let (Some(tier), Some(priority)) = (tier, reading.priority) else {
        return Output { compiled: None, problems, dependencies };
    };
    let mut compiler = TieredCompiler {
        tiered,
        name,
        compiler: Compiler::new(selections),
        applied_to: BTreeSet::new(),
        links: BTreeSet::new(),
        rules: Vec::new(),
        problems: &mut problems,
        dependencies: &mut dependencies,
    };
    let of_policy = compiler.targets(&reading.applied_to);
    for rule in &reading.rules {
        let own = rule.applied_to.as_ref().map(|targets| compiler.targets(targets));
        compiler.rule(rule, own.as_deref().unwrap_or(&of_policy));
    }
    let TieredCompiler { compiler: Compiler { addresses, selections, .. }, applied_to, links, mut rules, .. } =
        compiler;
    let groups: BTreeSet<GroupId> = applied_to.iter().map(|id| selections.group_id(*id)).collect();
    let several = Several { groups: applied_to.into_iter().collect(), links: links.into_iter().collect() };
    let uses = Uses { applied_to: AppliedToGroups::Several(Box::new(several)), addresses };
    let groups: Vec<GroupId> = groups.into_iter().collect();
    for rule in &mut rules {
        rule.applied_to = rule.applied_to.take().filter(|own| *own != groups);
    }
    let policy = Policy {
        name: policy_name(name.clone()),
        uid: policy.uid.clone(),
        generation: policy.generation,
        order: Order::Tiered(Rank { tier: *tier, priority }),
        applied_to: groups,
        rules,
    };
    // The problems are kept with the policy object, which may not be enforceable.
    let compiled = CompiledPolicy { policy: Arc::new(policy), uses, problems: Vec::new() };
    Output { compiled: Some(compiled), problems, dependencies }
}

struct TieredCompiler<'a> {
    tiered: &'a Tiered,
    name: &'a ObjectName,
    compiler: Compiler<'a>,
    applied_to: BTreeSet<SelectionId>,
    links: BTreeSet<(SelectionId, SelectionId)>,
    rules: Vec<Rule>,
    problems: &'a mut Vec<InvalidField>,
    dependencies: &'a mut BTreeSet<Dependency>,
}

impl<'a> TieredCompiler<'a> {
    fn rule(&mut self, rule: &AntreaRule, pods: &[Selected]) {
        let own = &self.name.namespace;
        let Some(peers) = &rule.peers else {
            self.push(rule, own, pods, None);
            return;
        };
        let (mut selected, mut blocks) = (Vec::new(), peers.blocks.clone());
        for target in &peers.targets {
            match target {
                Target::Pods(pods) => selected.push(pods.clone()),
                Target::Group(group, field) => {
                    let (pods, addresses) = self.group(group, field);
                    selected.extend(pods);
                    blocks.extend(addresses);
                }
            }
        }
        if peers.relative.is_empty() && peers.entities.is_empty() || !peers.targets.is_empty() || !blocks.is_empty() {
            self.push(rule, own, pods, Some(ReadPeers { selected, blocks }));
        }
        if !peers.entities.is_empty() {
            self.entities(rule, pods, &peers.entities);
        }
        for relative in &peers.relative {
            self.dependencies.insert(Dependency::Namespaces);
            match &relative.namespaces {
                RelativeNamespaces::Own => self.per_namespace(rule, pods, relative),
                RelativeNamespaces::SameLabels(keys) => self.per_labels(rule, pods, relative, keys),
            }
        }
    }

    /// Rules for the addresses of ExternalEntities. For egress, their named ports become numbers: Nodes know those of Pods only.
    fn entities(&mut self, rule: &AntreaRule, pods: &[Selected], of: &[Selected]) {
        self.dependencies.insert(Dependency::Entities);
        let namespaces = self.namespaces();
        let (tiered, own) = (self.tiered, &self.name.namespace);
        let mut found: Vec<&Member> = Vec::new();
        for selected in of {
            let in_scope = |namespace: &String| match &selected.scope {
                Scope::Own => namespace == own,
                Scope::Namespaces(selector) => namespaces.get(namespace).is_some_and(|labels| selector.selects(labels)),
            };
            if selected.scope != Scope::Own {
                self.dependencies.insert(Dependency::Namespaces);
            }
            let entities = tiered.entities.values().filter(|entity| selected.pods.selects(&entity.labels));
            found.extend(entities.map(|entity| &entity.member).filter(|member| in_scope(&member.pod.namespace)));
        }
        let addresses = |members: &[&Member]| -> Option<ReadPeers> {
            let addresses: BTreeSet<IpAddr> = members.iter().flat_map(|member| member.addresses.clone()).collect();
            let blocks: Vec<IpBlock> = addresses.into_iter().map(IpBlock::from).collect();
            (!blocks.is_empty()).then(|| ReadPeers { selected: Vec::new(), blocks })
        };
        let Some(all) = addresses(&found) else { return };
        let named =
            |service: &&Service| rule.direction == Direction::Egress && matches!(service, Service::Named { .. });
        let numbers: Option<Vec<Service>> =
            rule.services.as_ref().map(|services| services.iter().filter(|it| !named(it)).cloned().collect());
        if numbers.as_ref().is_none_or(|numbers| !numbers.is_empty()) {
            self.push(&AntreaRule { services: numbers, ..rule.clone() }, own, pods, Some(all));
        }
        for service in rule.services.iter().flatten().filter(named) {
            let Service::Named { protocol, name, .. } = service else { continue };
            let mut by_number: BTreeMap<u16, Vec<&Member>> = BTreeMap::new();
            for member in &found {
                if let Some(number) = member.port(*protocol, name) {
                    by_number.entry(number).or_default().push(member);
                }
            }
            for (number, members) in by_number {
                let services = vec![Service::Ports(Ports { protocol: *protocol, range: Some((number, number)) })];
                if let Some(peers) = addresses(&members) {
                    self.push(&AntreaRule { services: Some(services), ..rule.clone() }, own, pods, Some(peers));
                }
            }
        }
    }

    /// One rule for each Namespace that has selected Pods, for its own Pods.
    fn per_namespace(&mut self, rule: &AntreaRule, pods: &[Selected], relative: &Relative) {
        for (namespace, labels) in self.namespaces() {
            let here = |pods: &Selected| Selected { scope: Scope::Own, pods: pods.pods.clone() };
            let here: Vec<Selected> = pods.iter().filter(|pods| includes(pods, &labels)).map(here).collect();
            if !here.is_empty() {
                let selected = vec![Selected { scope: Scope::Own, pods: relative.pods.clone() }];
                self.push(rule, &namespace, &here, Some(ReadPeers { selected, blocks: Vec::new() }));
            }
        }
    }

    /// One rule for all Namespaces with the same values of the labels. A Namespace that lacks one of them has no rule.
    fn per_labels(&mut self, rule: &AntreaRule, pods: &[Selected], relative: &Relative, keys: &BTreeSet<String>) {
        let mut by_values: BTreeMap<Labels, BTreeSet<usize>> = BTreeMap::new();
        for (_, labels) in self.namespaces() {
            let value = |key: &String| Some((key.clone(), labels.get(key)?.clone()));
            let Some(values) = keys.iter().map(value).collect::<Option<Labels>>() else { continue };
            let here = pods.iter().enumerate().filter(|(_, pods)| includes(pods, &labels));
            by_values.entry(values).or_default().extend(here.map(|(n, _)| n));
        }
        for (values, here) in by_values.iter().filter(|(_, here)| !here.is_empty()) {
            let with_values = |Selected { scope, pods }: &Selected| {
                let scope = match scope {
                    Scope::Namespaces(selector) => Scope::Namespaces(selector.with_labels(values)),
                    Scope::Own => Scope::Own,
                };
                Selected { scope, pods: pods.clone() }
            };
            let here: Vec<Selected> = here.iter().filter_map(|n| pods.get(*n)).map(with_values).collect();
            let peers = with_values(&Selected { pods: relative.pods.clone(), ..Selected::everyone() });
            let own = &self.name.namespace;
            self.push(rule, own, &here, Some(ReadPeers { selected: vec![peers], blocks: Vec::new() }));
        }
    }

    /// Adds a rule; `own` is the namespace of selectors without namespaces.
    fn push(&mut self, rule: &AntreaRule, own: &str, pods: &[Selected], peers: Option<ReadPeers>) {
        if pods.is_empty() {
            return;
        }
        let (direction, index, services) = (rule.direction, rule.index, rule.services.clone());
        let compiled = self.compiler.rule(own, ReadRule { direction, index, peers, services });
        let mut groups = BTreeSet::new();
        for selected in pods {
            let selection = self.compiler.selections.acquire(own, selected);
            groups.insert(self.compiler.selections.group_id(selection));
            if !self.applied_to.insert(selection) {
                self.compiler.selections.release(selection);
            }
            self.links.extend(self.compiler.used.iter().map(|address| (selection, *address)));
        }
        let applied_to = Some(groups.into_iter().collect());
        self.rules.push(Rule { name: rule.name.clone(), action: rule.action, applied_to, ..compiled });
    }

    /// The Pods that a policy or a rule applies to.
    fn targets(&mut self, targets: &[Target]) -> Vec<Selected> {
        let mut pods = Vec::new();
        for target in targets {
            match target {
                Target::Pods(selected) => pods.push(selected.clone()),
                Target::Group(group, field) => {
                    let groups = &self.tiered.groups;
                    let flat = flatten(group, |name| groups.get(name));
                    pods.extend(flat.selected_by(&self.name.namespace).cloned());
                    self.depend(&flat.groups);
                    self.report(field, flat.problems_applied_to(&self.name.namespace));
                }
            }
        }
        pods
    }

    fn group(&mut self, group: &ObjectName, field: &str) -> (Vec<Selected>, Vec<IpBlock>) {
        let groups = &self.tiered.groups;
        let flat = flatten(group, |name| groups.get(name));
        self.depend(&flat.groups);
        self.report(field, flat.problems);
        (flat.selected.into_iter().cloned().collect(), flat.blocks.into_iter().cloned().collect())
    }

    fn depend(&mut self, groups: &[&ObjectName]) {
        self.dependencies.extend(groups.iter().map(|group| Dependency::Group((*group).clone())));
    }

    fn report(&mut self, field: &str, problems: Vec<String>) {
        let (kind, name) = (kind(self.name).name(), self.name);
        let invalid = |problem| InvalidField { kind, name: name.clone(), field: field.to_owned(), problem };
        self.problems.extend(problems.into_iter().map(invalid));
    }

    /// The known Namespaces with their labels, sorted.
    fn namespaces(&self) -> BTreeMap<String, Labels> {
        let known = self.compiler.selections.namespaces();
        known.map(|(name, labels)| (name.to_owned(), labels.clone())).collect()
    }
}

/// Whether Pods of a Namespace with these labels may be selected. Only ClusterNetworkPolicies have relative namespaces, and they
/// have no namespace of their own.
fn includes(pods: &Selected, labels: &Labels) -> bool {
    match &pods.scope {
        Scope::Namespaces(selector) => selector.selects(labels),
        Scope::Own => false,
    }
}
