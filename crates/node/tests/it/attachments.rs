//! The order of the steps of CNI calls, their rollback, and removals that outlive a call.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use node::database::{Assigned, BridgeSpec, PodPort, PortRow};
use node::{
    AddRequest, AllocationError, AttachmentId, CallId, Change, CniError, CniErrorKind, CniEvent, CommitError, Effect,
    Event, PortEvent, SwitchEvent, Time, interface_name,
};
use pipeline::model::Mode;
use proptest::prelude::*;

use crate::fixture::*;

const CONTAINER: &str = "0a1b2c";
const ADDRESS: &str = "10.10.1.5";

/// A brain that is ready for calls, with a switch that commits when it is asked to.
struct Node {
    agent: Agent,
    now: Time,
    /// Effects that were not expected yet.
    effects: Vec<Effect>,
    commits: bool,
}

fn id(container: &str) -> AttachmentId {
    AttachmentId { container: container.to_owned(), device: "eth0".to_owned() }
}

fn veth() -> String {
    interface_name("web", CONTAINER)
}

fn add(call: u64, container: &str) -> CniEvent {
    let request = AddRequest {
        id: id(container),
        pod: name("web"),
        uid: "uid-of-web".to_owned(),
        netns: format!("/netns/{container}"),
        mtu: None,
    };
    CniEvent::Add { call: CallId(call), request: Box::new(request) }
}

fn delete(call: u64) -> CniEvent {
    CniEvent::Delete { call: CallId(call), id: id(CONTAINER), pod: Some("web".to_owned()) }
}

fn allocated(call: u64) -> CniEvent {
    let address: IpAddr = ADDRESS.parse().unwrap();
    CniEvent::Allocated { call: CallId(call), outcome: Ok(vec![address]) }
}

impl Node {
    fn new() -> Self {
        let mut agent = synced(Mode::Encap);
        agent.connect_switch(Vec::new());
        let mut node = Self { agent, now: Duration::from_secs(60), effects: Vec::new(), commits: true };
        node.go(Event::Cni(CniEvent::Open));
        node.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
        node.effects.clear();
        node
    }

    fn go(&mut self, event: Event) {
        let mut events = vec![event];
        while !events.is_empty() {
            self.agent.step(self.now, events);
            self.effects.extend(self.agent.take_effects());
            events = Vec::new();
            if self.commits && self.takes(&Effect::Commit) {
                events.push(Event::Switch(SwitchEvent::Committed(Ok(()))));
            }
        }
    }

    fn cni(&mut self, event: CniEvent) {
        self.go(Event::Cni(event));
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
        self.go(Event::Tick);
    }

    fn takes(&mut self, effect: &Effect) -> bool {
        let found = self.effects.iter().position(|other| other == effect);
        found.map(|index| self.effects.remove(index)).is_some()
    }

    #[track_caller]
    fn expect(&mut self, effect: &Effect) {
        assert!(self.takes(effect), "{effect:?} is not among {:?}", self.effects);
    }

    fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(is)
    }

    /// The reply to a call, if there is one: whether ADD or DEL succeeded.
    fn reply(&mut self, call: u64) -> Option<Result<(), CniError>> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Reply { call: of, .. } if of.0 == call);
        let index = self.effects.iter().position(is_it)?;
        match self.effects.remove(index) {
            Effect::Reply { outcome, .. } => Some(outcome.map(drop)),
            _ => None,
        }
    }

    /// The ports that OVSDB should have.
    fn desired(&self) -> BTreeSet<String> {
        let bridge = BridgeSpec {
            bridge: "br-int".into(),
            datapath: "netdev".into(),
            gateway: "gw".into(),
            mtu: 1450,
            tunnel: None,
            transport: None,
        };
        self.agent.database(bridge).pods.into_keys().collect()
    }

    /// OVSDB has the port, and the switch has assigned a number, or not.
    fn row(&mut self, assigned: Assigned) {
        let bridge = BridgeSpec {
            bridge: "br-int".into(),
            datapath: "netdev".into(),
            gateway: "gw".into(),
            mtu: 1450,
            tunnel: None,
            transport: None,
        };
        let (port, requested) = self.agent.database(bridge).pods[&veth()].clone();
        let row = PortRow { name: veth(), pod: Some(PodPort::clone(&port)), requested, assigned };
        self.go(Event::Port(PortEvent::Set(Box::new(row))));
    }

    fn row_is_gone(&mut self) {
        self.go(Event::Port(PortEvent::Gone(veth())));
    }

    /// Attaches the Pod completely.
    fn attach(&mut self, call: u64) {
        self.cni(add(call, CONTAINER));
        self.expect(&Effect::Allocate { call: CallId(call), id: id(CONTAINER) });
        self.cni(allocated(call));
        self.cni(CniEvent::VethCreated { call: CallId(call) });
        self.row(Assigned::Port(16));
        self.cni(CniEvent::VethAttached { call: CallId(call), outcome: Ok(()) });
        self.cni(CniEvent::AddressesPrepared { call: CallId(call), outcome: Ok(()) });
        assert_eq!(self.reply(call), Some(Ok(())));
        self.effects.clear();
    }

    fn is_clean(&self) -> bool {
        self.agent.is_idle() && self.desired().is_empty() && self.agent.interfaces().next().is_none()
    }

    /// Does what a rollback asks for, and asserts that nothing is left.
    #[track_caller]
    fn assert_rolled_back(&mut self, has_row: bool) {
        assert!(self.desired().is_empty() && !flows(&self.agent).iter().any(|flow| flow.contains(ADDRESS)));
        if has_row {
            assert!(!self.has(|effect| matches!(effect, Effect::DeleteVeth(_))), "the port is deleted before the veth");
            self.row_is_gone();
        }
        self.expect(&Effect::DeleteVeth(veth()));
        self.cni(CniEvent::VethDeleted { name: veth(), outcome: Ok(()) });
        self.expect(&Effect::Release { id: id(CONTAINER), flush: true });
        self.cni(CniEvent::Released { id: id(CONTAINER), outcome: Ok(()) });
        assert!(self.is_clean());
    }
}

#[test]
fn add_creates_the_veth_while_flows_are_installed_and_replies_when_all_is_done() {
    let mut node = Node::new();
    node.cni(add(1, CONTAINER));
    node.expect(&Effect::Allocate { call: CallId(1), id: id(CONTAINER) });
    node.cni(allocated(1));
    assert!(node.has(|effect| matches!(effect, Effect::CreateVeth { link, .. } if link.host_device == veth())));
    assert!(flows(&node.agent).iter().any(|flow| flow.contains("in_port=16")), "with the requested port");
    assert!(node.desired().is_empty(), "the port is added when its veth exists");
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    assert_eq!(node.desired(), [veth()].into());
    node.expect(&Effect::PrepareAddresses { call: CallId(1), addresses: vec![ADDRESS.parse().unwrap()] });
    node.row(Assigned::Pending);
    node.row(Assigned::Port(16));
    node.cni(CniEvent::AddressesPrepared { call: CallId(1), outcome: Ok(()) });
    assert_eq!(node.reply(1), None, "the veth has no addresses yet");
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    assert_eq!(node.reply(1), Some(Ok(())));
    assert!(node.has(|effect| matches!(effect, Effect::Announce(_))));
}

#[test]
fn add_waits_for_the_flows_of_the_port_that_the_switch_assigns() {
    let mut node = Node::new();
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    node.cni(CniEvent::AddressesPrepared { call: CallId(1), outcome: Ok(()) });
    node.commits = false;
    node.row(Assigned::Port(77));
    assert_eq!(node.reply(1), None, "the flows are for port 16");
    node.expect(&Effect::Commit);
    node.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
    assert_eq!(node.reply(1), Some(Ok(())));
    assert!(flows(&node.agent).iter().any(|flow| flow.contains("in_port=77")));
}

#[test]
fn a_repeated_add_succeeds_without_changes_if_the_veth_is_as_it_should_be() {
    let mut node = Node::new();
    node.attach(1);
    node.cni(add(2, CONTAINER));
    node.cni(allocated(2));
    assert!(node.has(|effect| matches!(effect, Effect::CheckVeth { .. })));
    node.cni(CniEvent::Checked { call: CallId(2), is_same: true });
    assert_eq!(node.reply(2), Some(Ok(())));
    assert!(!node.has(|effect| matches!(effect, Effect::CreateVeth { .. } | Effect::DeleteVeth(_))));

    // One that drifted is created again, with the same addresses.
    node.cni(add(3, CONTAINER));
    node.cni(allocated(3));
    node.cni(CniEvent::Checked { call: CallId(3), is_same: false });
    node.row_is_gone();
    node.expect(&Effect::DeleteVeth(veth()));
    assert!(!node.has(|effect| matches!(effect, Effect::CreateVeth { .. })), "the old veth is there");
    node.cni(CniEvent::VethDeleted { name: veth(), outcome: Ok(()) });
    assert!(node.has(|effect| matches!(effect, Effect::CreateVeth { .. })));
    assert!(!node.has(|effect| matches!(effect, Effect::Release { .. })));
}

#[test]
fn a_failed_veth_is_rolled_back() {
    let mut node = Node::new();
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Err("no such network namespace".to_owned()) });
    let error = node.reply(1).unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (CniErrorKind::Interface, "no such network namespace"));
    node.assert_rolled_back(false);
}

#[test]
fn a_rollback_waits_for_the_kernel_to_end_its_part() {
    let mut node = Node::new();
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    node.row(Assigned::Failed("could not open network device".to_owned()));
    assert_eq!((node.reply(1), node.desired()), (None, [veth()].into()));
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    assert_eq!(node.reply(1), None, "the port is in OVSDB");
    assert!(!node.has(|effect| matches!(effect, Effect::DeleteVeth(_))));
    node.row_is_gone();
    let error = node.reply(1).unwrap().unwrap_err();
    assert!(error.message.contains("could not open network device") && error.message.contains(&veth()), "{error}");
    node.assert_rolled_back(false);
}

#[test]
fn flows_that_the_switch_rejects_fail_the_call() {
    let mut node = Node::new();
    node.commits = false;
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    node.expect(&Effect::Commit);
    let rejected = CommitError::Rejected { index: 0, reason: "table full".to_owned() };
    node.commits = true;
    node.go(Event::Switch(SwitchEvent::Committed(Err(rejected))));
    let error = node.reply(1).unwrap().unwrap_err();
    assert!(error.message.contains("the switch rejected") && error.message.contains("table full"), "{error}");
}

#[test]
fn a_port_that_ovsdb_rejects_fails_only_its_own_call() {
    let mut node = Node::new();
    for (call, container) in [(1, CONTAINER), (2, "other")] {
        node.cni(add(call, container));
        node.cni(allocated(call));
        node.cni(CniEvent::VethCreated { call: CallId(call) });
        node.cni(CniEvent::VethAttached { call: CallId(call), outcome: Ok(()) });
    }
    node.go(Event::Port(PortEvent::Failed { name: veth(), problem: "constraint violation".to_owned() }));
    let error = node.reply(1).unwrap().unwrap_err();
    assert!(error.message.contains("constraint violation"), "{error}");
    assert_eq!((node.reply(2), node.desired()), (None, [interface_name("web", "other")].into()));
}

#[test]
fn a_call_that_takes_too_long_fails_with_the_reason_and_the_same_call_succeeds_later() {
    let mut node = Node::new();
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    assert_eq!(node.agent.wake_at(), Some(node.now + Duration::from_secs(30)));
    node.later(Duration::from_secs(29));
    assert_eq!(node.reply(1), None);
    node.later(Duration::from_secs(1));
    let error = node.reply(1).unwrap().unwrap_err();
    assert_eq!(error.kind, CniErrorKind::TryAgain);
    assert!(error.message.contains("did not connect interface") && error.hint.contains("ovs-vswitchd"), "{error}");
    node.assert_rolled_back(false);
    node.attach(2);
}

#[test]
fn del_replies_when_the_port_is_gone_and_releases_addresses_when_the_flows_are_gone() {
    let mut node = Node::new();
    node.attach(1);
    node.commits = false;
    node.cni(delete(2));
    assert!(node.desired().is_empty());
    node.expect(&Effect::Commit);
    assert_eq!(node.reply(2), None, "the port is in OVSDB");
    node.row_is_gone();
    assert_eq!(node.reply(2), Some(Ok(())));
    node.expect(&Effect::DeleteVeth(veth()));
    assert!(!node.has(|effect| matches!(effect, Effect::Release { .. })), "the flows are in the switch");
    node.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
    node.expect(&Effect::Release { id: id(CONTAINER), flush: true });
    node.cni(CniEvent::VethDeleted { name: veth(), outcome: Ok(()) });
    assert!(!node.agent.is_idle());

    // It is retried until it succeeds.
    let error = CniError { kind: CniErrorKind::Ipam, message: "disk full".to_owned(), hint: String::new() };
    node.cni(CniEvent::Released { id: id(CONTAINER), outcome: Err(error) });
    assert!(!node.has(|effect| matches!(effect, Effect::Release { .. })));
    node.later(Duration::from_secs(1));
    node.expect(&Effect::Release { id: id(CONTAINER), flush: true });
    node.cni(CniEvent::Released { id: id(CONTAINER), outcome: Ok(()) });
    assert!(node.is_clean());
}

#[test]
fn calls_end_while_other_flows_change_without_pause() {
    let mut node = Node::new();
    node.commits = false;
    let mut peer = 1;
    // The switch commits a bundle, and the next one is due already.
    let mut commit = |of: &mut Node| {
        peer += 1;
        of.go(Event::Node(Change::Set(crate::fixture::node(peer))));
        of.expect(&Effect::Commit);
        of.go(Event::Node(Change::Set(crate::fixture::node(peer + 100))));
        of.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
        assert!(!of.agent.is_settled());
    };
    commit(&mut node);
    node.cni(add(1, CONTAINER));
    node.cni(allocated(1));
    node.cni(CniEvent::VethCreated { call: CallId(1) });
    node.row(Assigned::Port(16));
    node.cni(CniEvent::VethAttached { call: CallId(1), outcome: Ok(()) });
    let prepare = Effect::PrepareAddresses { call: CallId(1), addresses: vec![ADDRESS.parse().unwrap()] };
    commit(&mut node);
    assert!(!node.takes(&prepare), "that bundle was made before the call");
    commit(&mut node);
    node.expect(&prepare);
    node.cni(CniEvent::AddressesPrepared { call: CallId(1), outcome: Ok(()) });
    assert_eq!(node.reply(1), Some(Ok(())));

    node.cni(delete(2));
    node.row_is_gone();
    assert_eq!(node.reply(2), Some(Ok(())));
    let release = Effect::Release { id: id(CONTAINER), flush: true };
    commit(&mut node);
    assert!(!node.takes(&release), "that bundle was made before the call");
    commit(&mut node);
    node.expect(&release);
}

#[test]
fn the_outcome_of_a_commit_to_an_earlier_switch_is_ignored() {
    let mut node = Node::new();
    node.commits = false;
    node.go(Event::Node(Change::Set(crate::fixture::node(2))));
    node.expect(&Effect::Commit);
    node.go(Event::Switch(SwitchEvent::Up(2)));
    node.expect(&Effect::List);
    node.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
    assert!(!node.has(|effect| matches!(effect, Effect::List | Effect::Commit)), "the list is in progress");
    assert!(!node.agent.is_settled());
    node.go(Event::Switch(SwitchEvent::Listed(Ok(()))));
    node.expect(&Effect::Commit);
}

#[test]
fn del_of_an_unknown_attachment_removes_what_an_interrupted_add_may_have_left() {
    let mut node = Node::new();
    node.cni(delete(1));
    node.expect(&Effect::DeleteVeth(veth()));
    node.expect(&Effect::Release { id: id(CONTAINER), flush: false });
    assert_eq!(node.reply(1), None);
    node.cni(CniEvent::Released { id: id(CONTAINER), outcome: Ok(()) });
    assert_eq!(node.reply(1), Some(Ok(())));
}

#[test]
fn del_fails_after_a_timeout_if_ovsdb_does_not_respond_and_the_removal_goes_on() {
    let mut node = Node::new();
    node.attach(1);
    node.cni(delete(2));
    node.later(Duration::from_secs(30));
    assert_eq!(node.reply(2).unwrap().unwrap_err().kind, CniErrorKind::TryAgain);
    node.assert_rolled_back(true);
}

#[test]
fn an_add_waits_for_the_release_and_the_removal_of_the_same_attachment() {
    let mut node = Node::new();
    node.attach(1);
    node.cni(delete(2));
    node.row_is_gone();
    node.cni(add(3, CONTAINER));
    assert!(!node.has(|effect| matches!(effect, Effect::Allocate { .. })), "its addresses are being released");
    node.cni(CniEvent::Released { id: id(CONTAINER), outcome: Ok(()) });
    node.expect(&Effect::Allocate { call: CallId(3), id: id(CONTAINER) });
    node.cni(allocated(3));
    assert!(!node.has(|effect| matches!(effect, Effect::CreateVeth { .. })), "its veth is being deleted");
    node.cni(CniEvent::VethDeleted { name: veth(), outcome: Ok(()) });
    assert!(node.has(|effect| matches!(effect, Effect::CreateVeth { .. })));
}

#[test]
fn an_add_on_a_full_node_waits_for_addresses_that_are_being_released() {
    let mut node = Node::new();
    node.attach(1);
    node.cni(delete(2));
    node.row_is_gone();
    node.cni(add(3, "other"));
    node.expect(&Effect::Allocate { call: CallId(3), id: id("other") });
    let full = || CniEvent::Allocated { call: CallId(3), outcome: Err(AllocationError::Full("all in use".to_owned())) };
    node.cni(full());
    assert_eq!(node.reply(3), None);
    node.cni(CniEvent::Released { id: id(CONTAINER), outcome: Ok(()) });
    node.expect(&Effect::Allocate { call: CallId(3), id: id("other") });
    node.cni(full());
    // The rollback releases what may have been allocated.
    node.cni(CniEvent::Released { id: id("other"), outcome: Ok(()) });
    let error = node.reply(3).unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (CniErrorKind::Ipam, "all in use"), "nothing is being released");
}

#[test]
fn calls_are_refused_until_the_leftovers_of_earlier_calls_are_collected() {
    let mut node = Node { agent: synced(Mode::Encap), now: Time::ZERO, effects: Vec::new(), commits: true };
    node.cni(add(1, CONTAINER));
    node.cni(delete(2));
    for call in [1, 2] {
        let error = node.reply(call).unwrap().unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (CniErrorKind::TryAgain, "the network of this Node is not ready")
        );
    }
}

#[test]
fn a_port_that_another_program_removes_is_desired_again_with_the_same_number() {
    let mut node = Node::new();
    node.attach(1);
    let before = flows(&node.agent);
    node.row_is_gone();
    assert_eq!((node.desired(), flows(&node.agent)), ([veth()].into(), before));
}

proptest! {
    /// Whatever completes first, the reply comes with the last part, and a failure of any part leaves nothing behind.
    #[test]
    fn the_parts_of_an_add_may_complete_in_any_order(
        order in Just(vec![0, 1, 2]).prop_shuffle(),
        fails in proptest::option::of(0..3usize),
    ) {
        let mut node = Node::new();
        node.commits = false;
        node.cni(add(1, CONTAINER));
        node.cni(allocated(1));
        node.cni(CniEvent::VethCreated { call: CallId(1) });
        let outcome = |part| if fails == Some(part) { Err("it failed".to_owned()) } else { Ok(()) };
        let (mut has_row, mut reply) = (false, None);
        for part in order {
            prop_assert!(reply.is_none() || fails.is_some());
            match part {
                0 => node.cni(CniEvent::VethAttached { call: CallId(1), outcome: outcome(0) }),
                1 if node.desired().is_empty() => {}
                1 => {
                    has_row = true;
                    node.row(outcome(1).map_or_else(Assigned::Failed, |()| Assigned::Port(16)));
                }
                _ => {
                    node.commits = true;
                    node.go(Event::Tick);
                }
            }
            if node.commits && node.takes(&Effect::Commit) {
                node.go(Event::Switch(SwitchEvent::Committed(Ok(()))));
            }
            let prepare = Effect::PrepareAddresses { call: CallId(1), addresses: vec![ADDRESS.parse().unwrap()] };
            if node.takes(&prepare) {
                node.cni(CniEvent::AddressesPrepared { call: CallId(1), outcome: outcome(2) });
            }
            reply = reply.or_else(|| node.reply(1));
        }
        if fails.is_none() {
            prop_assert_eq!(reply, Some(Ok(())));
        } else {
            node.assert_rolled_back(has_row);
            let error = reply.or_else(|| node.reply(1)).unwrap().unwrap_err();
            prop_assert!(error.message.contains("it failed"));
        }
    }
}
