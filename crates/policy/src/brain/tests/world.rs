//! A small random cluster, and everything that must hold of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use types::antrea::Tier;
use types::control::{Action, Direction, Group, GroupId, IpBlock, Policy, PolicyName, Ports};
use types::meta::{IntOrString, LabelRequirement, LabelSelector, Protocol, UnknownFields, WrittenProtocol};
use types::network_policy::{EgressRule, IngressRule, NetworkPolicy, PolicyPeer, PolicyPort};
use types::node::Namespace;
use types::pod::{Container, ContainerPort, Pod, PodIp};
use types::{InvalidField, ObjectName};

use super::antrea::{antrea_event, tier};
use crate::brain::{Brain, Event, Kind, Subscription};
use crate::reading::policy_name;
use crate::{Cluster, Replica, compute};

pub(super) const NAMESPACES: &[&str] = &["x", "y", "z"];
const NODES: &[&str] = &["n1", "n2", "n3"];

/// A step of a random history.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Event(Event),
    /// The agent of the Node connects, or reconnects.
    Subscribe(&'static str),
    Unsubscribe(&'static str),
    /// The agent of the Node takes its pending changes.
    Take(&'static str),
}

pub(super) fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

pub(super) fn selector(keys: &'static [&'static str]) -> impl Strategy<Value = LabelSelector> {
    let operator = prop_oneof![20 => text(&["In", "NotIn", "Exists", "DoesNotExist"]), 1 => text(&["Like"])];
    let requirement = (text(keys), operator, vec(text(&["a", "b", "c"]), 1..3)).prop_map(|(key, operator, values)| {
        let values = if operator.ends_with("In") { values } else { vec![] };
        LabelRequirement { key, operator, values }
    });
    let labels = btree_map(text(keys), text(&["a", "b"]), 0..2);
    (labels, vec(requirement, 0..2))
        .prop_map(|(match_labels, match_expressions)| LabelSelector { match_labels, match_expressions })
}

fn peer() -> impl Strategy<Value = PolicyPeer> {
    let pods = || selector(&["app", "tier"]);
    let namespaces = || selector(&["team", "stage"]);
    let cidr = text(&["10.0.0.0/24", "10.0.0.0/29", "0.0.0.0/0", "192.168.0.0/16", "10.0.0.0/40"]);
    let except = vec(text(&["10.0.0.2/32", "10.0.0.4/30"]), 0..2);
    let block =
        (cidr, except).prop_map(|(cidr, except)| types::network_policy::IpBlock { cidr, except, ..Default::default() });
    prop_oneof![
        4 => pods().prop_map(|s| PolicyPeer { pod_selector: Some(s), ..PolicyPeer::default() }),
        4 => namespaces().prop_map(|s| PolicyPeer { namespace_selector: Some(s), ..PolicyPeer::default() }),
        4 => (pods(), namespaces()).prop_map(|(p, n)| PolicyPeer {
            pod_selector: Some(p),
            namespace_selector: Some(n),
            ..PolicyPeer::default()
        }),
        3 => block.prop_map(|b| PolicyPeer { ip_block: Some(b), ..PolicyPeer::default() }),
        1 => Just(PolicyPeer::default()),
        1 => pods().prop_map(|s| PolicyPeer {
            pod_selector: Some(s),
            unknown: UnknownFields(["nodeSelector".to_owned()].into()),
            ..PolicyPeer::default()
        }),
    ]
}

pub(super) fn port() -> impl Strategy<Value = PolicyPort> {
    let what = prop_oneof![
        1 => Just((None, None)),
        3 => select(&[80, 443, 70000][..]).prop_map(|n| (Some(IntOrString::Int(n)), None)),
        1 => Just((Some(IntOrString::Int(80)), Some(90))),
        4 => text(&["web", "dns"]).prop_map(|n| (Some(IntOrString::String(n)), None)),
    ];
    let protocol = prop_oneof![
        12 => select(&[Protocol::Tcp, Protocol::Udp][..]).prop_map(WrittenProtocol::from),
        1 => Just(WrittenProtocol::Other("ICMP".to_owned())),
    ];
    (protocol, what).prop_map(|(protocol, (port, end_port))| PolicyPort {
        protocol,
        port,
        end_port,
        ..Default::default()
    })
}

fn policy() -> impl Strategy<Value = NetworkPolicy> {
    let kinds = select(vec![&[][..], &["Ingress"], &["Egress"], &["Ingress", "Egress"], &["Sideways"]]);
    let rules = || vec((vec(peer(), 0..3), vec(port(), 0..3)), 0..3);
    let name = (text(NAMESPACES), text(&["p", "q", "r"]), 0..3i64);
    (name, selector(&["app", "tier"]), kinds, rules(), rules()).prop_map(|(name, pods, kinds, ingress, egress)| {
        let mut policy = NetworkPolicy::default();
        (policy.metadata.namespace, policy.metadata.name, policy.metadata.generation) = name;
        policy.spec.pod_selector = pods;
        policy.spec.policy_types = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        policy.spec.ingress =
            ingress.into_iter().map(|(from, ports)| IngressRule { from, ports, ..Default::default() }).collect();
        policy.spec.egress =
            egress.into_iter().map(|(to, ports)| EgressRule { to, ports, ..Default::default() }).collect();
        policy
    })
}

fn pod_name() -> impl Strategy<Value = ObjectName> {
    (text(NAMESPACES), text(&["a", "b", "c", "d"])).prop_map(|(namespace, name)| ObjectName { namespace, name })
}

fn pod() -> impl Strategy<Value = Pod> {
    let labels = btree_map(text(&["app", "tier"]), text(&["a", "b", "c"]), 0..3);
    // Few addresses, so that Pods sometimes share one; an unscheduled Pod has none.
    let place = prop_oneof![
        1 => Just((String::new(), vec![])),
        1 => text(NODES).prop_map(|node| (node, vec![])),
        8 => (text(NODES), (1..7u8), (0..12u8)).prop_map(|(node, ip, odd)| {
            let second = match odd {
                0 => vec!["fd00::1".to_owned()],
                1 => vec!["nowhere".to_owned()],
                _ => vec![],
            };
            (node, [format!("10.0.0.{ip}")].into_iter().chain(second).collect())
        }),
    ];
    let state = prop_oneof![12 => Just((false, "Running")), 1 => Just((true, "Running")), 1 => Just((false, "Failed"))];
    let port = (text(&["web", "dns"]), select(&[80u16, 81][..]), select(&[Protocol::Tcp, Protocol::Udp][..]));
    // A Pod may be replaced by one of the same name without a deletion event.
    let name = (pod_name(), text(&["1", "1", "1", "2"]));
    (name, labels, place, state, vec(port, 0..2)).prop_map(
        |((name, uid), labels, (node, ips), (host_network, phase), ports)| {
            let mut pod = Pod::default();
            (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) = (name.namespace, name.name, uid);
            pod.metadata.labels = labels;
            (pod.spec.node_name, pod.spec.host_network) = (node, host_network);
            pod.status.phase = phase.to_owned();
            pod.status.pod_ips = ips.into_iter().map(|ip| PodIp { ip }).collect();
            let port = |(name, container_port, protocol)| ContainerPort { name, container_port, protocol };
            pod.spec.containers = vec![Container { ports: ports.into_iter().map(port).collect() }];
            pod
        },
    )
}

fn namespace() -> impl Strategy<Value = Namespace> {
    (text(NAMESPACES), btree_map(text(&["team", "stage"]), text(&["a", "b", "c"]), 0..3)).prop_map(|(name, labels)| {
        let mut namespace = Namespace::default();
        (namespace.metadata.name, namespace.metadata.labels) = (name, labels);
        namespace
    })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        12 => pod().prop_map(|pod| Event::Pod(Box::new(pod))),
        4 => pod_name().prop_map(Event::PodGone),
        4 => namespace().prop_map(Event::Namespace),
        1 => text(NAMESPACES).prop_map(Event::NamespaceGone),
        6 => policy().prop_map(|policy| Event::Policy(Box::new(policy))),
        2 => (text(NAMESPACES), text(&["p", "q", "r"]))
            .prop_map(|(namespace, name)| Event::PolicyGone(ObjectName { namespace, name })),
    ];
    prop_oneof![
        10 => event.prop_map(Step::Event),
        6 => antrea_event().prop_map(Step::Event),
        1 => select(NODES).prop_map(Step::Subscribe),
        1 => select(NODES).prop_map(Step::Unsubscribe),
        4 => select(NODES).prop_map(Step::Take),
    ]
}

/// Groups by id and policies by name, with the Nodes that need them.
pub(super) type Listing = (Listed<GroupId, Group>, Listed<GroupId, Group>, Listed<PolicyName, Arc<Policy>>);
pub(super) type Listed<K, V> = BTreeMap<K, (V, Vec<Arc<str>>)>;

pub(super) fn listing(brain: &Brain) -> Listing {
    let by_id = |(group, span): (Group, Vec<Arc<str>>)| (group.id, (group, span));
    let policies = brain.policies().map(|(policy, span)| (policy.name.clone(), (policy, span)));
    (brain.applied_to_groups().map(by_id).collect(), brain.address_groups().map(by_id).collect(), policies.collect())
}

/// The brain under test, its subscribers, and the current objects.
#[derive(Default)]
pub(super) struct World {
    brain: Brain,
    agents: BTreeMap<&'static str, (Subscription, Replica)>,
    pods: BTreeMap<ObjectName, Pod>,
    namespaces: BTreeMap<String, Namespace>,
    policies: BTreeMap<ObjectName, NetworkPolicy>,
    tiers: BTreeMap<String, Tier>,
    antrea_policies: BTreeMap<ObjectName, types::antrea::Policy>,
    groups: BTreeMap<ObjectName, types::antrea::Group>,
    entities: BTreeMap<ObjectName, types::antrea::ExternalEntity>,
    pub(super) batches: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self::default();
        for kind in [Kind::Pod, Kind::Namespace, Kind::Policy] {
            world.brain.step(Event::Synced(kind));
        }
        let application = Event::Tier(Box::new(tier("application", 250)));
        world.track(&application);
        world.brain.step(application);
        world
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Event(event) => {
                self.track(&event);
                self.brain.step(event);
            }
            Step::Subscribe(node) => {
                let replica = self.agents.remove(node).map(|(_, replica)| replica).unwrap_or_default();
                self.agents.insert(node, (self.brain.subscribe(node), replica));
            }
            Step::Unsubscribe(node) => {
                if let Some((subscription, _)) = self.agents.remove(node) {
                    self.brain.unsubscribe(&subscription);
                }
            }
            Step::Take(node) => self.take(node)?,
        }
        Ok(())
    }

    fn track(&mut self, event: &Event) {
        match event {
            Event::Pod(pod) => drop(self.pods.insert(pod.metadata.object_name(), (**pod).clone())),
            Event::PodGone(name) => drop(self.pods.remove(name)),
            Event::Namespace(namespace) => {
                self.namespaces.insert(namespace.metadata.name.clone(), namespace.clone());
            }
            Event::NamespaceGone(name) => drop(self.namespaces.remove(name)),
            Event::Policy(policy) => drop(self.policies.insert(policy.metadata.object_name(), (**policy).clone())),
            Event::PolicyGone(name) => drop(self.policies.remove(name)),
            Event::Tier(tier) => drop(self.tiers.insert(tier.metadata.name.clone(), (**tier).clone())),
            Event::TierGone(name) => drop(self.tiers.remove(name)),
            Event::AntreaPolicy(policy) => {
                self.antrea_policies.insert(policy.metadata.object_name(), (**policy).clone());
            }
            Event::AntreaPolicyGone(name) => drop(self.antrea_policies.remove(name)),
            Event::Group(group) => drop(self.groups.insert(group.metadata.object_name(), (**group).clone())),
            Event::GroupGone(name) => drop(self.groups.remove(name)),
            Event::ExternalEntity(entity) => {
                self.entities.insert(entity.metadata.object_name(), (**entity).clone());
            }
            Event::ExternalEntityGone(name) => drop(self.entities.remove(name)),
            Event::Watched(_) | Event::Synced(_) => {}
        }
    }

    fn take(&mut self, node: &str) -> Result<(), String> {
        let Some((subscription, replica)) = self.agents.get_mut(node) else { return Ok(()) };
        if let Some(batch) = self.brain.take(subscription).map_err(|error| format!("{node}: {error}"))? {
            replica.apply(&batch).map_err(|error| format!("{node}: {error}"))?;
            self.batches += 1;
        }
        Ok(())
    }

    /// A brain that gets only the current objects, in another order.
    fn recomputed(&self) -> Brain {
        let mut brain = Brain::default();
        for policy in self.antrea_policies.values() {
            brain.step(Event::AntreaPolicy(Box::new(policy.clone())));
        }
        for policy in self.policies.values().rev() {
            brain.step(Event::Policy(Box::new(policy.clone())));
        }
        for pod in self.pods.values() {
            brain.step(Event::Pod(Box::new(pod.clone())));
        }
        for namespace in self.namespaces.values() {
            brain.step(Event::Namespace(namespace.clone()));
        }
        for group in self.groups.values().rev() {
            brain.step(Event::Group(Box::new(group.clone())));
        }
        for entity in self.entities.values() {
            brain.step(Event::ExternalEntity(Box::new(entity.clone())));
        }
        for tier in self.tiers.values() {
            brain.step(Event::Tier(Box::new(tier.clone())));
        }
        for kind in [Kind::Policy, Kind::Namespace, Kind::Pod] {
            brain.step(Event::Synced(kind));
        }
        brain
    }

    /// Compares everything with a computation from scratch.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut scratch = self.recomputed();
        equal("listing", &listing(&self.brain), &listing(&scratch))?;
        let nodes: Vec<&'static str> = self.agents.keys().copied().collect();
        for node in nodes {
            self.take(node)?;
            let (_, replica) = &self.agents[node];
            equal(&format!("replica of {node}"), replica, &snapshot(&mut scratch, node)?)?;
        }
        self.check_against_the_reference(&mut scratch)
    }

    fn check_against_the_reference(&self, scratch: &mut Brain) -> Result<(), String> {
        let mut cluster = Cluster::default();
        let labels = |(name, namespace): (&String, &Namespace)| (name.clone(), namespace.metadata.labels.clone());
        cluster.namespaces = self.namespaces.iter().map(labels).collect();
        // A Pod with an invalid address keeps the others.
        self.pods.values().for_each(|pod| drop(cluster.add_pod(pod)));
        cluster.policies = self.policies.clone();
        (cluster.tiers, cluster.groups) = (self.tiers.clone(), self.groups.clone());
        (cluster.antrea_policies, cluster.entities) = (self.antrea_policies.clone(), self.entities.clone());
        let reference = compute(&cluster);

        let names = self.policies.keys().cloned().map(PolicyName::kubernetes);
        let names = names.chain(self.antrea_policies.keys().cloned().map(policy_name));
        let problems: Vec<&InvalidField> = names.flat_map(|name| self.brain.problems(&name)).collect();
        equal("problems", &problems, &reference.errors.iter().collect())?;

        let (mut rules, mut isolated) = (BTreeMap::<RuleKey, BTreeSet<ObjectName>>::new(), BTreeSet::new());
        let has_address = |pod: &ObjectName| cluster.pods.contains_key(pod);
        for node in NODES {
            let enforced = snapshot(scratch, node)?.enforced();
            equal("missing groups", &enforced.missing, &BTreeSet::new())?;
            isolated.extend(enforced.isolated.into_iter().filter(|(_, pod)| has_address(pod)));
            for rule in enforced.rules {
                let key = (rule.policy, rule.direction, rule.index, rule.action, rule.peers, rule.ports);
                rules.entry(key).or_default().extend(rule.applied_to.into_iter().filter(has_address));
            }
        }
        rules.retain(|_, applied_to| !applied_to.is_empty());
        // Two port names with one number give equal rules for different Pods.
        let mut expected = BTreeMap::<RuleKey, BTreeSet<ObjectName>>::new();
        for rule in reference.rules {
            let key = (rule.policy, rule.direction, rule.index, rule.action, rule.peers, rule.ports);
            expected.entry(key).or_default().extend(rule.applied_to);
        }
        equal("isolated Pods", &isolated, &reference.isolated)?;
        equal("rules", &rules, &expected)
    }

    /// Deletes all objects; nothing may be left.
    pub(super) fn end(mut self) -> Result<(), String> {
        for name in self.pods.keys() {
            self.brain.step(Event::PodGone(name.clone()));
        }
        for name in self.namespaces.keys() {
            self.brain.step(Event::NamespaceGone(name.clone()));
        }
        for name in self.policies.keys() {
            self.brain.step(Event::PolicyGone(name.clone()));
        }
        for name in self.antrea_policies.keys() {
            self.brain.step(Event::AntreaPolicyGone(name.clone()));
        }
        for name in self.groups.keys() {
            self.brain.step(Event::GroupGone(name.clone()));
        }
        for name in self.entities.keys() {
            self.brain.step(Event::ExternalEntityGone(name.clone()));
        }
        for name in self.tiers.keys() {
            self.brain.step(Event::TierGone(name.clone()));
        }
        (self.pods, self.namespaces, self.policies) = Default::default();
        (self.tiers, self.antrea_policies, self.groups, self.entities) = Default::default();
        self.check()?;
        for (subscription, _) in self.agents.values() {
            self.brain.unsubscribe(subscription);
        }
        if self.brain.is_empty() { Ok(()) } else { Err(format!("not empty: {:?}", self.brain)) }
    }
}

/// A rule without the Pods that it applies to.
type RuleKey = (PolicyName, Direction, u32, Action, Option<BTreeSet<IpBlock>>, Option<BTreeSet<Ports>>);

fn snapshot(brain: &mut Brain, node: &str) -> Result<Replica, String> {
    let subscription = brain.subscribe(node);
    let batch = brain.take(&subscription).map_err(|error| error.to_string())?.ok_or("no snapshot")?;
    brain.unsubscribe(&subscription);
    let mut replica = Replica::default();
    replica.apply(&batch).map_err(|error| error.to_string())?;
    Ok(replica)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, left: &T, right: &T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what}:\n  {left:#?}\nis not\n  {right:#?}")) }
}
