//! Batches from the controller in the switch, and Pods that wait until the controller has seen them.

use std::collections::BTreeMap;
use std::sync::Arc;

use node::{Change, Effect, Event, Notice, Owner, Source};
use pipeline::model::Mode;
use policy::OutOfStep;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use types::control::{Batch, GroupChange, GroupId, Patch, PodChange, Seen};

use crate::fixture::*;

/// A cluster as the controller knows it, and the batches for Node `n1`.
pub(crate) struct Controller {
    brain: policy::Brain,
    subscription: policy::Subscription,
}

impl Controller {
    pub(crate) fn new() -> Self {
        let mut brain = policy::Brain::default();
        let subscription = brain.subscribe("n1");
        brain.step(policy::Event::Namespace(
            serde_json::from_value(json!({"metadata": {"name": "shop", "labels": {"team": "shop"}}})).unwrap(),
        ));
        for kind in [policy::Kind::Pod, policy::Kind::Namespace, policy::Kind::Policy] {
            brain.step(policy::Event::Synced(kind));
        }
        Self { brain, subscription }
    }

    /// Pod `p<index>` is on a Node and has these labels.
    pub(crate) fn pod(&mut self, index: u8, node: &str, labels: Value, with_address: bool) {
        let address = if with_address { format!("10.10.1.{index}") } else { String::new() };
        let pod = json!({
            "metadata": {"namespace": "shop", "name": format!("p{index}"), "uid": format!("uid-of-p{index}"), "labels": labels},
            "spec": {"nodeName": node, "containers": [{"ports": [{"name": "web", "containerPort": 8000 + u16::from(index)}]}]},
            "status": {"phase": "Running", "podIP": address},
        });
        self.brain.step(policy::Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    pub(crate) fn policy(&mut self, policy_name: &str, spec: Value) {
        let metadata =
            json!({"namespace": "shop", "name": policy_name, "uid": format!("uid-of-{policy_name}"), "generation": 1});
        let policy = json!({"metadata": metadata, "spec": spec});
        self.brain.step(policy::Event::Policy(Box::new(serde_json::from_value(policy).unwrap())));
    }

    pub(crate) fn policy_gone(&mut self, policy_name: &str) {
        self.brain.step(policy::Event::PolicyGone(name(policy_name)));
    }

    pub(crate) fn take(&mut self) -> Option<Batch> {
        self.brain.take(&self.subscription).unwrap()
    }

    /// A complete snapshot, as for a Node that starts.
    pub(crate) fn snapshot(&mut self) -> Batch {
        let subscription = self.brain.subscribe("n1");
        let batch = self.brain.take(&subscription).unwrap().unwrap();
        self.subscription = subscription;
        batch
    }
}

/// A Node after the initial sync of every source but policies.
fn node_without_policies() -> Agent {
    let mut brain = Agent::new(own(Mode::Encap));
    for source in Source::ALL.into_iter().filter(|source| *source != Source::Policies) {
        brain.handle(Event::Synced(source));
    }
    brain
}

fn deny_all() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
}

fn allow_web_from(label: &str) -> Value {
    json!({
        "podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": label}}}], "ports": [{"port": 80}, {"port": "web"}]}],
    })
}

fn holds(brain: &Agent, text: &str) -> bool {
    flows(brain).iter().any(|flow| flow.contains(text))
}

#[test]
fn a_pod_is_connected_when_the_controller_has_seen_it_together_with_its_policies() {
    let mut controller = Controller::new();
    controller.policy("deny", deny_all());
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    assert!(!holds(&brain, "in_port=5"), "its policies are unknown");
    brain.enforce(&controller.snapshot()).unwrap();
    assert!(brain.is_synced() && !holds(&brain, "in_port=5"), "the controller has not seen it");
    assert!(brain.is_held(&Owner::Interface(interface(5).name)));

    controller.pod(5, "n1", json!({}), false);
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert!(holds(&brain, "in_port=5") && !brain.is_held(&Owner::Interface(interface(5).name)));
    assert!(holds(&brain, "table=60, priority=200,ip,nw_src=10.10.1.5 actions=drop"), "egress");
    assert!(holds(&brain, "table=100, priority=200,ip,reg1=0x5 actions=drop"), "ingress");
}

#[test]
fn a_pod_that_was_seen_stays_connected_until_it_is_detached() {
    let mut controller = Controller::new();
    controller.pod(5, "n1", json!({}), true);
    let mut brain = node_without_policies();
    brain.enforce(&controller.snapshot()).unwrap();
    brain.handle(attached(interface(5)));
    controller.brain.step(policy::Event::PodGone(name("p5")));
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert!(holds(&brain, "in_port=5"), "its processes may still run");
    let isolated = ["nw_src=10.10.1.5 actions=drop", "reg1=0x5 actions=drop"];
    assert!(isolated.iter().all(|flow| holds(&brain, flow)), "without new connections");
    brain.handle(detached(interface(5).name));
    brain.handle(attached(interface(5)));
    assert!(!holds(&brain, "in_port=5"), "it was attached again, and the controller has not seen it");
}

#[test]
fn another_pod_of_the_same_name_waits_until_the_controller_has_seen_it() {
    let mut controller = Controller::new();
    controller.pod(5, "n1", json!({}), true);
    let mut brain = node_without_policies();
    brain.enforce(&controller.snapshot()).unwrap();
    let mut other = interface(5);
    other.uid = "uid-of-the-next-p5".to_owned();
    brain.handle(attached(other.clone()));
    assert!(!holds(&brain, "in_port=5"));
    other.uid = String::new();
    brain.handle(attached(other));
    assert!(holds(&brain, "in_port=5"), "without a UID from the runtime, the name is enough");
}

#[test]
fn pods_wait_for_the_controller_only_if_there_is_one() {
    let mut brain = node_without_policies();
    let warns = |effects: &[Effect]| effects.contains(&Effect::Log(Notice::NoController));
    assert!(warns(&brain.effects(controller_absent())), "policies are not enforced");
    assert!(!warns(&brain.effects(controller_absent())), "said once");
    brain.handle(attached(interface(5)));
    assert!(brain.is_synced() && holds(&brain, "in_port=5"));
    brain.enforce(&Controller::new().snapshot()).unwrap();
    brain.handle(controller_absent());
    brain.handle(attached(interface(6)));
    assert!(holds(&brain, "in_port=5") && !holds(&brain, "in_port=6"));
}

#[test]
fn a_rule_follows_the_ports_of_its_pods_and_the_members_of_its_groups() {
    let mut controller = Controller::new();
    controller.policy("web", allow_web_from("client"));
    controller.pod(5, "n1", json!({"app": "web"}), true);
    controller.pod(7, "n2", json!({"app": "client"}), true);
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&controller.snapshot()).unwrap();
    assert!(holds(&brain, "ip,nw_src=10.10.1.7 actions=conjunction("));
    assert!(holds(&brain, "ip,reg1=0x5 actions=conjunction("));
    assert!(holds(&brain, "tcp,tp_dst=80 actions=conjunction(") && holds(&brain, "tcp,tp_dst=8005"));
    assert_eq!(brain.rule_counts(), (2, 0), "a named port is a rule of its own");

    let mut moved = interface(5);
    moved.port = openflow::port::Port(9);
    brain.handle(attached(moved));
    assert!(holds(&brain, "ip,reg1=0x9 actions=conjunction(") && !holds(&brain, "reg1=0x5"));
    controller.pod(7, "n2", json!({"app": "other"}), true);
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert!(!holds(&brain, "nw_src=10.10.1.7"));
    controller.brain.step(policy::Event::PolicyGone(name("web")));
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert!(!holds(&brain, "conjunction(") && !holds(&brain, "reg1=0x9 actions=drop"));
    assert_eq!(brain.rule_counts(), (0, 0));
}

/// Pod 5 on this Node, isolated from everything.
fn isolated_pod() -> (Controller, Agent) {
    let mut controller = Controller::new();
    controller.policy("deny", deny_all());
    controller.pod(5, "n1", json!({}), true);
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&controller.snapshot()).unwrap();
    (controller, brain)
}

/// These changes, and a change of an unknown group.
fn out_of_step(mut changes: Vec<types::control::Change>) -> Batch {
    let patch = Patch { id: GroupId([7; 16]), added: vec![], removed: vec![] };
    changes.push(types::control::Change::Address(GroupChange::Patch(Arc::new(patch))));
    Batch { snapshot: false, changes }
}

#[test]
fn an_out_of_step_batch_is_ignored_until_a_snapshot() {
    let (mut controller, mut brain) = isolated_pod();
    let before = flows(&brain);
    let missing = brain.enforce(&out_of_step(vec![])).unwrap_err();
    assert!(missing.contains("07070707-0707-0707-0707-070707070707"), "{missing}");
    assert_eq!(brain.enforce(&Batch { snapshot: false, changes: vec![] }), Err(OutOfStep::Lost.to_string()));
    assert_eq!(flows(&brain), before);
    brain.enforce(&controller.snapshot()).unwrap();
    assert_eq!(flows(&brain), before);
}

#[test]
fn a_pod_with_a_new_port_after_an_out_of_step_batch_is_unreachable_until_the_snapshot() {
    let (mut controller, mut brain) = isolated_pod();
    assert!(holds(&brain, "in_port=5"));
    brain.enforce(&out_of_step(vec![])).unwrap_err();

    // The isolation flows match port 5: port 9 would be reachable.
    let mut moved = interface(5);
    moved.port = openflow::port::Port(9);
    brain.handle(attached(moved));
    assert!(!holds(&brain, "in_port=9") && !holds(&brain, "in_port=5"));
    assert_eq!(brain.held().count(), 1);
    brain.enforce(&controller.snapshot()).unwrap();
    assert!(holds(&brain, "in_port=9") && holds(&brain, "reg1=0x9 actions=drop"));
    assert_eq!(brain.held().count(), 0);
}

#[test]
fn pod_changes_after_an_out_of_step_batch_wait_for_the_snapshot() {
    let mut controller = Controller::new();
    controller.policy("web", allow_web_from("client"));
    controller.pod(5, "n1", json!({"app": "web"}), true);
    controller.pod(6, "n1", json!({"app": "web"}), true);
    controller.pod(8, "n2", json!({"app": "client"}), true);
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.handle(attached(interface(6)));
    brain.enforce(&controller.snapshot()).unwrap();

    // The first half is in step: a Pod that was seen, and then an unknown group.
    let seen = Seen { pod: name("p7"), uid: interface(7).uid };
    brain.enforce(&out_of_step(vec![types::control::Change::Pod(PodChange::Seen(Arc::new(seen)))])).unwrap_err();
    brain.handle(attached(interface(7)));
    assert!(!holds(&brain, "in_port=7"), "the batch was out of step");
    brain.handle(detached(interface(6).name));
    let mut moved = interface(5);
    moved.port = openflow::port::Port(9);
    brain.handle(attached(moved.clone()));
    assert!(holds(&brain, "reg1=0x5 actions=conjunction("), "existing flows stay");

    brain.enforce(&controller.snapshot()).unwrap();
    let mut fresh = node_without_policies();
    fresh.handle(attached(moved));
    fresh.handle(attached(interface(7)));
    fresh.enforce(&controller.snapshot()).unwrap();
    assert_eq!(flows(&brain), flows(&fresh));
}

#[test]
fn pods_wait_for_a_controller_that_appears() {
    let mut brain = node_without_policies();
    brain.handle(controller_absent());
    brain.handle(attached(interface(5)));
    brain.handle(controller_deployed());
    brain.handle(attached(interface(6)));
    assert!(holds(&brain, "in_port=5") && !holds(&brain, "in_port=6"));
}

#[test]
fn a_rule_whose_group_is_missing_allows_nothing_and_is_reported() {
    let mut controller = Controller::new();
    controller.policy("web", allow_web_from("client"));
    controller.pod(5, "n1", json!({"app": "web"}), true);
    let mut snapshot = controller.snapshot();
    snapshot.changes.retain(|change| !matches!(change, types::control::Change::Address(_)));
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&snapshot).unwrap();
    assert!(!holds(&brain, "conjunction(") && holds(&brain, "ip,reg1=0x5 actions=drop"));
    let problem = brain.problems()[0].to_string();
    assert!(
        problem.starts_with("NetworkPolicy shop/web: group ") && problem.contains("has not arrived yet"),
        "{problem}"
    );
}

#[test]
fn rules_keep_their_numbers_across_a_restart() {
    let mut controller = Controller::new();
    for (index, label) in ["a", "b", "c"].into_iter().enumerate() {
        controller.policy(&format!("web{index}"), allow_web_from(label));
        controller.pod(u8::try_from(index).unwrap() + 7, "n2", json!({"app": label}), true);
    }
    controller.pod(5, "n1", json!({"app": "web"}), true);
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&controller.snapshot()).unwrap();
    let mut held: Vec<_> = brain.desired_flows().collect();

    // Occupy the number that the first rule would take: another key had it first.
    let verdict = held.iter().position(|flow| flow.to_string().contains("conj_id=")).unwrap();
    let text = held[verdict].to_string();
    let id: u32 = text.split("conj_id=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    for flow in &mut held {
        let moved = flow.to_string().replace(&format!("conj_id={id},"), &format!("conj_id={},", id.wrapping_add(1)));
        let moved = moved.replace(&format!("conjunction({id},"), &format!("conjunction({},", id.wrapping_add(1)));
        let moved = moved.replace(&format!("{id:#x}"), &format!("{:#x}", id.wrapping_add(1)));
        *flow = moved.parse().unwrap();
    }

    let mut again = Agent::new(own(Mode::Encap));
    again.handle(attached(interface(5)));
    again.enforce(&controller.snapshot()).unwrap();
    assert!(!holds(&again, "conjunction("), "not before the numbers in the switch are known");
    assert_eq!(again.connect_switch(held), 0);
    for source in Source::ALL {
        again.handle(Event::Synced(source));
    }
    assert_eq!(again.bundle().count(), 0, "nothing is swept either");
    assert!(holds(&again, &format!("conj_id={},", id.wrapping_add(1))));
}

#[test]
fn peers_that_are_written_differently_make_another_rule() {
    let mut controller = Controller::new();
    controller.pod(5, "n1", json!({"app": "web"}), true);
    let block = |cidr: &str| json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]});
    let number = |brain: &Agent| {
        let flows = flows(brain);
        flows.iter().find_map(|flow| flow.split("conj_id=").nth(1)?.split(',').next().map(str::to_owned)).unwrap()
    };
    controller.policy("p", block("10.0.0.0/8"));
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&controller.snapshot()).unwrap();
    let first = number(&brain);
    controller.policy("p", block("172.16.0.0/12"));
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert_ne!(number(&brain), first, "the two must not share a number");
    controller.policy("p", block("10.0.0.0/8"));
    brain.enforce(&controller.take().unwrap()).unwrap();
    assert_eq!(number(&brain), first);
}

#[derive(Clone, Debug)]
enum Step {
    Pod(u8, &'static str, &'static str, bool),
    PodGone(u8),
    Policy(usize, &'static str, &'static str, u8),
    PolicyGone(usize),
    Namespace(bool),
    Attach(u8),
    Detach(u8),
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    let label = || select(&["web", "client", "db"][..]);
    let pod = (5..12u8, select(&["n1", "n1", "n2"][..]), label(), any::<bool>());
    prop_oneof![
        4 => pod.prop_map(|(n, node, label, ip)| Step::Pod(n, node, label, ip)),
        1 => (5..12u8).prop_map(Step::PodGone),
        3 => (0..4usize, label(), label(), 0..6u8).prop_map(|(n, to, from, kind)| Step::Policy(n, to, from, kind)),
        1 => (0..4usize).prop_map(Step::PolicyGone),
        1 => any::<bool>().prop_map(Step::Namespace),
        3 => (5..12u8).prop_map(Step::Attach),
        2 => (5..12u8).prop_map(Step::Detach),
        3 => Just(Step::Tell),
    ]
}

fn spec(to: &str, from: &str, kind: u8) -> Value {
    let to = json!({"matchLabels": {"app": to}});
    let peer = json!({"podSelector": {"matchLabels": {"app": from}}});
    match kind {
        0 => deny_all(),
        1 => json!({"podSelector": to, "ingress": [{"from": [peer], "ports": [{"port": 80}, {"port": "web"}]}]}),
        2 => {
            json!({"podSelector": to, "policyTypes": ["Egress"], "egress": [{"to": [peer], "ports": [{"port": "web"}]}]})
        }
        3 => {
            json!({"podSelector": to, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]}]})
        }
        4 => {
            json!({"podSelector": to, "ingress": [{"from": [{"ipBlock": {"cidr": "10.10.1.0/28", "except": ["10.10.1.7/32"]}}]}]})
        }
        _ => json!({"podSelector": to, "ingress": [{}], "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}),
    }
}

/// Takes every step on one Node, and gives another one the result at once: both have the same flows.
fn walk(steps: impl IntoIterator<Item = Step>) -> Result<(), TestCaseError> {
    let mut controller = Controller::new();
    let mut walked = node_without_policies();
    walked.enforce(&controller.snapshot()).unwrap();
    let mut interfaces: BTreeMap<u8, node::Interface> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Pod(n, node, label, ip) => controller.pod(n, node, json!({"app": label}), ip),
            Step::PodGone(n) => drop(controller.brain.step(policy::Event::PodGone(name(&format!("p{n}"))))),
            Step::Policy(n, to, from, kind) => controller.policy(&format!("policy{n}"), spec(to, from, kind)),
            Step::PolicyGone(n) => controller.policy_gone(&format!("policy{n}")),
            Step::Namespace(shop) => {
                let labels = if shop { json!({"team": "shop"}) } else { json!({}) };
                let namespace = json!({"metadata": {"name": "shop", "labels": labels}});
                controller.brain.step(policy::Event::Namespace(serde_json::from_value(namespace).unwrap()));
            }
            Step::Attach(n) => {
                walked.handle(attached(interface(n)));
                interfaces.insert(n, interface(n));
            }
            Step::Detach(n) => {
                walked.handle(detached(interface(n).name));
                interfaces.remove(&n);
            }
            Step::Tell => {
                if let Some(batch) = controller.take() {
                    walked.enforce(&batch).unwrap();
                }
            }
        }
    }
    if let Some(batch) = controller.take() {
        walked.enforce(&batch).unwrap();
    }
    let mut direct = node_without_policies();
    let snapshot = controller.snapshot();
    let mut seen_once = snapshot.clone();
    let held: Vec<String> = walked.held().map(|interface| interface.name.clone()).collect();
    for interface in interfaces.into_values() {
        // A Pod that was seen once stays connected.
        if !held.contains(&interface.name) {
            let seen = Seen { pod: interface.pod.clone(), uid: interface.uid.clone() };
            seen_once.changes.push(types::control::Change::Pod(PodChange::Seen(Arc::new(seen))));
        }
        direct.handle(attached(interface));
    }
    direct.enforce(&seen_once).unwrap();
    direct.enforce(&snapshot).unwrap();
    prop_assert_eq!(flows(&walked), flows(&direct));
    prop_assert_eq!(walked.problems(), direct.problems());
    prop_assert_eq!(walked.rule_counts(), direct.rule_counts());
    Ok(())
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

proptest! {
    #![proptest_config(Config { cases: number("PROPTEST_CASES").unwrap_or(48), failure_persistence: None, ..Config::default() })]

    #[test]
    fn flows_depend_on_the_current_objects_and_not_on_history(steps in vec(step(), 0..80)) {
        walk(steps)?;
    }
}

#[test]
fn a_long_history_of_policies_ends_with_the_flows_of_the_final_objects() {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let steps = (0..number("STEPS").unwrap_or(300)).map(|_| step().new_tree(&mut runner).unwrap().current());
    walk(steps).unwrap();
}

#[test]
fn a_change_of_a_service_touches_no_rule() {
    let mut controller = Controller::new();
    controller.policy("deny", deny_all());
    controller.pod(5, "n1", json!({}), true);
    let mut brain = node_without_policies();
    brain.handle(attached(interface(5)));
    brain.enforce(&controller.snapshot()).unwrap();
    let policies = |brain: &Agent| flows(brain).into_iter().filter(|flow| flow.contains("drop")).count();
    let before = policies(&brain);
    brain.handle(set_service(service(1, 0)));
    brain.handle(Event::EndpointSlice(Change::Set(slice(1, &[5]))));
    assert_eq!(policies(&brain), before);
}
