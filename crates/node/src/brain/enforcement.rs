//! Policies in the switch, and Pods that wait until the controller has seen them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::field::Field;
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::model::{Applied, Pod};
use policy::{OutOfStep, Replica};
use types::ObjectName;
use types::control::{Batch, Change, Direction, Policy, PolicyName, Report};
use types::network_policy::NetworkPolicy;

use super::{Brain, Problem};
use crate::effect::{Effect, Notice};
use crate::event::{Event, Interface, Source};
use crate::owner::Owner;
use crate::policies::{Policies, RuleChange, RuleName, rule_model};

impl Brain {
    /// The policies and groups that the controller has sent.
    pub fn replica(&self) -> &Replica {
        self.policies.replica()
    }

    /// Number of policy rules enforced on this Node: ingress and egress.
    pub fn rule_counts(&self) -> (usize, usize) {
        self.policies.rule_counts()
    }

    /// The policy that the rule with this number belongs to.
    pub fn policy_of(&self, rule: u32) -> Option<&PolicyName> {
        self.policies.policy_of(rule)
    }

    /// The policy, direction and index of the rule with this number.
    pub fn rule(&self, id: u32) -> Option<RuleName<'_>> {
        self.policies.rule(id)
    }

    /// Applies a batch from the controller. If it is out of step, flows stay as they are, and only a snapshot is accepted next.
    pub(super) fn enforce(&mut self, batch: &Batch) -> Result<(), OutOfStep> {
        let touched = self.policies.apply(batch)?;
        self.without_controller = false;
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

    /// Computes policies locally for a Pod that the controller has not seen, given the policies of its namespace. Returns whether
    /// the Pod is still waiting for them.
    pub(super) fn evaluate_locally(&mut self, pod: policy::Waiting, policies: &[NetworkPolicy]) -> bool {
        let name = pod.name();
        let waits = self.synced.contains(&Source::Policies) && self.held().any(|interface| interface.pod == name);
        if waits {
            let batch = policy::presume(self.policies.replica(), pod, policies);
            // The batch was computed from this replica, so it is in step.
            if !batch.changes.is_empty() && self.enforce(&batch).is_ok() {
                self.effects.push(Effect::SaveSnapshot);
            }
        }
        waits
    }

    /// Status of each policy: enforced by the switch, or the problem.
    pub fn reports(&self) -> Vec<Report> {
        let mut problems: BTreeMap<&PolicyName, String> = BTreeMap::new();
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
        for policy in self.policies.unordered() {
            problems.entry(policy).or_insert_with(|| Problem::Order(policy.clone()).to_string());
        }
        let report = |policy: &Arc<Policy>| Report {
            policy: policy.name.clone(),
            uid: policy.uid.clone(),
            generation: policy.generation,
            problem: problems.get(&policy.name).cloned(),
        };
        self.policies.replica().policies().values().map(report).collect()
    }

    /// Increases with every batch of policies.
    pub fn policy_version(&self) -> u64 {
        self.policy_version
    }

    /// Attached Pods that are not connected yet, because the controller has not seen them.
    pub fn held(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values().filter(|interface| !self.admitted.contains(&interface.name))
    }

    /// Whether an owner's flows are held back until the controller has seen its Pod.
    pub fn is_held(&self, owner: &Owner) -> bool {
        matches!(owner, Owner::Interface(name) if self.interfaces.contains_key(name) && !self.admitted.contains(name))
    }

    /// No controller is deployed in this cluster: Pods need not wait for policies.
    pub(super) fn controller_absent(&mut self) {
        // After the controller was there once, its absence is an outage.
        if !self.synced.contains(&Source::Policies) {
            self.log(Notice::NoController);
            self.without_controller = true;
            self.handle(Event::Synced(Source::Policies));
        }
    }

    /// A controller is deployed: from now on, Pods wait for it.
    pub(super) fn controller_deployed(&mut self) {
        self.without_controller = false;
    }

    pub(super) fn policy_problems(&self) -> Vec<Problem> {
        let missing = self.policies.missing().map(|(policy, group)| Problem::Group(policy.clone(), group));
        let unordered = self.policies.unordered().cloned().map(Problem::Order);
        missing.chain(unordered).chain(self.policies.exhausted().cloned().map(Problem::Rules)).collect()
    }

    /// Whether policies are complete and rules can be numbered: not before the numbers in use in the switch are known.
    pub(super) fn knows_policies(&self) -> bool {
        let complete = self.synced.contains(&Source::Policies) && !self.policies.replica().is_lost();
        complete && self.synced.contains(&Source::Switch)
    }

    /// Whether the controller has seen this Pod, and not another one of the same name.
    fn is_seen(&self, interface: &Interface) -> bool {
        is_seen(&self.policies, interface)
    }

    pub(super) fn enforce_everything(&mut self) {
        let all = self.policies.replica().policies().keys().cloned().collect();
        self.enforce_policies(&all);
        self.isolate_all();
        self.connect_all();
    }

    /// Updates the flows for a Pod of this Node that has another port now, or none.
    pub(super) fn enforce_for(&mut self, pod: &ObjectName) {
        if self.knows_policies() {
            let applying = self.policies.applying_to(pod);
            self.enforce_each(&applying, Some(pod));
            self.isolate(pod);
        } else {
            self.moved.insert(pod.clone());
        }
    }

    fn enforce_policies(&mut self, names: &BTreeSet<PolicyName>) {
        if self.knows_policies() {
            self.enforce_each(names, None);
        }
    }

    fn enforce_each(&mut self, names: &BTreeSet<PolicyName>, moved: Option<&ObjectName>) {
        let mut isolation = BTreeSet::new();
        let Self { policies, switch, pipeline, interfaces, .. } = self;
        let mut enforce = |name: &PolicyName, moved| {
            policies.enforce(name, moved, |effect| match effect {
                RuleChange::Rule { id, fingerprint, kind, rule } => {
                    let here = interfaces.values().filter(|interface| rule.applied_to.contains(&interface.pod));
                    let applied_to = here.map(applied).collect();
                    let model = rule_model(rule, id, kind, applied_to);
                    switch.set_flows(&Owner::Rule(id), rule_flows(pipeline, fingerprint, &model));
                }
                RuleChange::Gone(id) => switch.remove(&Owner::Rule(id)),
                RuleChange::Isolation(pod) => _ = isolation.insert(pod),
            })
        };
        let renumbered: BTreeSet<PolicyName> = names.iter().flat_map(|name| enforce(name, moved)).collect();
        // All levels are in use now, so nothing is renumbered a second time.
        for name in &renumbered {
            enforce(name, None);
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

    /// Isolates a Pod in the directions of its policies. A Pod that the controller does not know, or no longer, keeps its
    /// established connections and gets no new ones: it may still run after its deletion from the API.
    fn isolate_those(&mut self, which: impl Fn(&Interface) -> bool) {
        let Self { policies, switch, pipeline, interfaces, without_controller, .. } = self;
        for interface in interfaces.values().filter(|interface| which(interface)) {
            let directions = match *without_controller || is_seen(policies, interface) {
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

    /// Connects a Pod if the controller has seen it, so that its policies are complete, or if there is no controller.
    pub(super) fn connect(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get(name) else { return };
        let may_connect = || self.knows_policies() && (self.without_controller || self.is_seen(interface));
        if self.admitted.contains(name) || may_connect() {
            self.admit(name);
        }
    }

    /// Installs the flows of an attached Pod.
    pub(super) fn admit(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get(name) else { return };
        let pod = Pod { port: interface.port, mac: interface.mac, addresses: interface.addresses.clone() };
        self.switch.set_flows(&Owner::Interface(name.to_owned()), self.pipeline.pod(&pod));
        self.admitted.insert(name.to_owned());
    }
}

fn applied(interface: &Interface) -> Applied {
    Applied { port: interface.port, addresses: interface.addresses.clone() }
}

fn rule_flows(pipeline: &Pipeline, fingerprint: u64, rule: &pipeline::model::Rule) -> Vec<Flow> {
    let mut flows = pipeline.rule(rule);
    for verdict in flows.iter_mut().filter(|flow| flow.matches.get(Field::ConjId).is_some()) {
        verdict.cookie = fingerprint;
    }
    flows
}

fn is_seen(policies: &Policies, interface: &Interface) -> bool {
    let seen = policies.replica().seen().get(&interface.pod);
    seen.is_some_and(|uid| interface.uid.is_empty() || interface.uid == *uid)
}
