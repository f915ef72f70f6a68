//! Policies in the switch, and the Pods that wait for theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use delta::Observed;
use openflow::field::Field;
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::model::{Applied, Pod};
use policy::{OutOfStep, Replica};
use types::ObjectName;
use types::control::{Batch, Change, Direction, Policy, Report};
use types::network_policy::NetworkPolicy;

use super::{Brain, Problem};
use crate::event::{Event, Interface, Source};
use crate::owner::Owner;
use crate::policies::{Effect, Policies, rule_model};

impl Brain {
    /// What the controller has told of policies.
    pub fn replica(&self) -> &Replica {
        self.policies.replica()
    }

    /// How many rules of policies are enforced here: of what comes in, and of what goes out.
    pub fn rule_counts(&self) -> (usize, usize) {
        self.policies.rule_counts()
    }

    /// The policy that a rule with this number is of.
    pub fn policy_of(&self, rule: u32) -> Option<&ObjectName> {
        self.policies.policy_of(rule)
    }

    /// Takes in what the controller says. If it does not fit, what is in the switch stays, and only a snapshot is taken.
    pub fn enforce(&mut self, batch: &Batch) -> Result<(), OutOfStep> {
        let touched = self.policies.apply(batch)?;
        self.unpoliced = false;
        self.policy_version += 1;
        if self.synced.contains(&Source::Policies) {
            self.enforce_policies(&touched);
            for pod in std::mem::take(&mut self.moved) {
                self.enforce_for(&pod);
            }
            if batch.snapshot || batch.changes.iter().any(|change| matches!(change, Change::Pod(_))) {
                self.isolate_all();
            }
            self.connect_all();
        } else {
            self.handle(Event::Synced(Source::Policies));
        }
        Ok(())
    }

    /// Takes in what can be told without the controller of a Pod that waits for it, given the policies of its namespace.
    pub fn presume(&mut self, pod: types::pod::Pod, policies: &[NetworkPolicy]) {
        let name = pod.metadata.object_name();
        if self.synced.contains(&Source::Policies) && self.held().any(|interface| interface.pod == name) {
            let batch = policy::presume(self.policies.replica(), pod, policies);
            if !batch.changes.is_empty() {
                // It was made to fit.
                let _ = self.enforce(&batch);
            }
        }
    }

    /// What is reported of the policies that are held: that the switch enforces them, unless it refuses to.
    pub fn reports(&self) -> Vec<Report> {
        let mut problems: BTreeMap<&ObjectName, String> = BTreeMap::new();
        for rejection in self.switch.rejections() {
            let rules = rejection.owners.iter().filter_map(|owner| match owner {
                Owner::Rule(id) => self.policies.policy_of(*id),
                _ => None,
            });
            for policy in rules {
                problems.insert(policy, format!("the switch refuses {}: {}", rejection.subject, rejection.reason));
            }
        }
        for (policy, group) in self.policies.missing() {
            problems.entry(policy).or_insert_with(|| Problem::Group(policy.clone(), group).to_string());
        }
        let report = |policy: &Arc<Policy>| Report {
            policy: policy.name.clone(),
            uid: policy.uid.clone(),
            generation: policy.generation,
            problem: problems.get(&policy.name).cloned(),
        };
        self.policies.replica().policies().values().map(report).collect()
    }

    /// Grows whenever something is told of policies.
    pub fn policy_version(&self) -> u64 {
        self.policy_version
    }

    /// The switch holds this flow.
    pub fn observe_flow(&mut self, flow: &Flow) -> Observed {
        self.policies.observe(flow);
        self.switch.observe_flow(flow)
    }

    /// The switch has been listed.
    pub fn end_resync(&mut self) {
        self.switch.end_resync();
        self.policies.observed();
        self.handle(Event::Synced(Source::Switch));
    }

    /// The Pods that are attached and not connected, since the controller has not seen them.
    pub fn held(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values().filter(|interface| !self.admitted.contains(&interface.name))
    }

    /// Whether an owner's flows are held back until the controller has seen a Pod.
    pub fn is_held(&self, owner: &Owner) -> bool {
        matches!(owner, Owner::Interface(name) if self.interfaces.contains_key(name) && !self.admitted.contains(name))
    }

    pub(super) fn unpoliced(&mut self) {
        // Once there was a controller, its absence is an outage.
        if !self.synced.contains(&Source::Policies) {
            self.unpoliced = true;
            self.handle(Event::Synced(Source::Policies));
        }
    }

    /// There is a controller after all: Pods wait for it from now on.
    pub(super) fn policed(&mut self) {
        self.unpoliced = false;
    }

    pub(super) fn policy_problems(&self) -> Vec<Problem> {
        let missing = self.policies.missing().map(|(policy, group)| Problem::Group(policy.clone(), group));
        missing.chain(self.policies.exhausted().cloned().map(Problem::Rules)).collect()
    }

    /// Whether what is told of policies is whole, and rules can be numbered: not before it is known which numbers the switch holds.
    pub(super) fn knows_policies(&self) -> bool {
        let told = self.synced.contains(&Source::Policies) && !self.policies.replica().is_lost();
        told && self.synced.contains(&Source::Switch)
    }

    /// Whether the controller has seen the Pod behind an interface, and no other of its name.
    fn is_seen(&self, interface: &Interface) -> bool {
        is_seen(&self.policies, interface)
    }

    pub(super) fn enforce_everything(&mut self) {
        let all = self.policies.replica().policies().keys().cloned().collect();
        self.enforce_policies(&all);
        self.isolate_all();
        self.connect_all();
    }

    /// A Pod of this Node has another port now, or none.
    pub(super) fn enforce_for(&mut self, pod: &ObjectName) {
        if self.knows_policies() {
            let applying = self.policies.applying_to(pod);
            self.enforce_each(&applying, Some(pod));
            self.isolate(pod);
        } else {
            self.moved.insert(pod.clone());
        }
    }

    fn enforce_policies(&mut self, names: &BTreeSet<ObjectName>) {
        if self.knows_policies() {
            self.enforce_each(names, None);
        }
    }

    fn enforce_each(&mut self, names: &BTreeSet<ObjectName>, moved: Option<&ObjectName>) {
        let mut isolation = BTreeSet::new();
        let Self { policies, switch, pipeline, interfaces, .. } = self;
        for name in names {
            policies.enforce(name, moved, |effect| match effect {
                Effect::Rule { id, fingerprint, rule } => {
                    let flows = rule_flows(pipeline, interfaces, id, fingerprint, rule);
                    switch.set_flows(&Owner::Rule(id), flows);
                }
                Effect::Gone(id) => switch.remove(&Owner::Rule(id)),
                Effect::Isolation(pod) => _ = isolation.insert(pod),
            });
        }
        for pod in &isolation {
            self.isolate(pod);
        }
    }

    fn isolate(&mut self, pod: &ObjectName) {
        self.isolate_those(|interface| interface.pod == *pod);
    }

    fn isolate_all(&mut self) {
        if self.knows_policies() {
            self.isolate_those(|_| true);
        }
    }

    /// A Pod is isolated as its policies say. One that the controller does not know, or no longer, may go on with what it has
    /// begun and do nothing else: it may run on after the API has forgotten it.
    fn isolate_those(&mut self, which: impl Fn(&Interface) -> bool) {
        let Self { policies, switch, pipeline, interfaces, unpoliced, .. } = self;
        for interface in interfaces.values().filter(|interface| which(interface)) {
            let directions = match *unpoliced || is_seen(policies, interface) {
                true => policies.isolation(&interface.pod),
                false => [Direction::Ingress, Direction::Egress].into(),
            };
            let flows = directions.into_iter().flat_map(|direction| pipeline.isolated(direction, &applied(interface)));
            switch.set_flows(&Owner::Isolation(interface.name.clone()), flows);
        }
    }

    fn connect_all(&mut self) {
        let held: Vec<String> = self.held().map(|interface| interface.name.clone()).collect();
        for name in held {
            self.connect(&name);
        }
    }

    /// Connects a Pod if the controller has seen it, so that its policies are there, or if there are none to wait for.
    pub(super) fn connect(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get(name) else { return };
        let is_told = || self.knows_policies() && (self.unpoliced || self.is_seen(interface));
        if !self.admitted.contains(name) && !is_told() {
            return;
        }
        let pod = Pod { port: interface.port, mac: interface.mac, addresses: interface.addresses.clone() };
        self.switch.set_flows(&Owner::Interface(name.to_owned()), self.pipeline.pod(&pod));
        self.admitted.insert(name.to_owned());
    }
}

fn applied(interface: &Interface) -> Applied {
    Applied { port: interface.port, addresses: interface.addresses.clone() }
}

fn rule_flows(
    pipeline: &Pipeline,
    interfaces: &BTreeMap<String, Interface>,
    id: u32,
    fingerprint: u64,
    rule: policy::PolicyRule,
) -> Vec<Flow> {
    let here = interfaces.values().filter(|interface| rule.applied_to.contains(&interface.pod));
    let applied_to: BTreeSet<Applied> = here.map(applied).collect();
    let mut flows = pipeline.rule(&rule_model(rule, id, applied_to));
    for verdict in flows.iter_mut().filter(|flow| flow.matches.get(Field::ConjId).is_some()) {
        verdict.cookie = fingerprint;
    }
    flows
}

fn is_seen(policies: &Policies, interface: &Interface) -> bool {
    let seen = policies.replica().seen().get(&interface.pod);
    seen.is_some_and(|uid| interface.uid.is_empty() || interface.uid == *uid)
}
