//! The desired state of a switch beside its actual state.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use openflow::flow::Flow;
use openflow::group::Group;
use openflow::meter::{Meter, MeterId, MeterMod};

use crate::flows::{self, SharedFlow};
use crate::ledger::{Ledger, Resync};
use crate::numbered::{self, EncodedGroup, ExclusiveClaims};
use crate::patch::{Failure, Message, MeterPatch, Patch, Stage, Step};
use crate::report::{Conflict, Rejection, Waiting};
use crate::status::{Op, Outcome};

/// An object that the switch reported, compared with what is desired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Observed {
    /// It is as desired.
    Same,
    /// It differs from what is desired; it will be replaced.
    Differs,
    /// No owner claims it; it will be deleted once sweeping is allowed.
    Unwanted,
    /// A flow that the switch made itself (action `learn`); it is left alone.
    Learned,
    /// Parts of it are not understood: it counts as different or unwanted, and is worth a log line.
    Foreign,
}

/// Tells learned flows from those that were sent.
type Learned = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// Marks a [`State`] without meters: every patch is one bundle.
#[derive(Debug)]
pub enum NoMeters {}

/// Marks a [`State`] with meters, which are sent apart from bundles.
#[derive(Debug)]
pub enum Meters {}

/// What owners want the switch to have, and what is known of what it has.
///
/// Without a resync nothing is known of the switch, and [`State::patch`] returns nothing.
///
/// Meters need a caller that sends them, as they cannot be part of a bundle. Without one, they cannot be set:
///
/// ```compile_fail,E0599
/// let mut state = delta::State::<u32>::new(|_| false);
/// state.set_meters(&1, []);
/// ```
///
/// With meters, a patch is a [`Stage`], and only its bundle can be committed:
///
/// ```compile_fail,E0308
/// let mut state = delta::State::<u32, delta::Meters>::with_meters(|_| false);
/// while let Some(patch) = state.patch() {
///     state.committed(patch);
/// }
/// ```
///
/// ```
/// use delta::{Stage, State};
/// let mut state = State::<u32, _>::with_meters(|_| false);
/// while let Some(stage) = state.patch() {
///     match stage {
///         Stage::Bundle(patch) => state.committed(patch),
///         Stage::Meters(patch) => state.meters_applied(patch),
///     }
/// }
/// ```
pub struct State<O: Ord + Clone, M = NoMeters> {
    flows: Ledger<SharedFlow<O>>,
    groups: Ledger<ExclusiveClaims<O, EncodedGroup>>,
    meters: Ledger<ExclusiveClaims<O, Meter>>,
    learned: Learned,
    /// Reused by every encoding of a flow.
    scratch: Vec<u8>,
    sweep: bool,
    link: Link,
    /// Of the last patch.
    serial: u64,
    marker: PhantomData<fn() -> M>,
}

/// What is known of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    /// Nothing that a patch could be based on.
    Unknown,
    /// A resync is running.
    Resync,
    /// All of its objects.
    Idle,
    /// All of its objects, but for the outcome of the last patch.
    InFlight,
}

impl<O: Ord + Clone, M> fmt::Debug for State<O, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("link", &self.link).field("sweep", &self.sweep).finish_non_exhaustive()
    }
}

impl<O: Ord + Clone> State<O> {
    /// A state without claims and without meters; `learned` tells which flows the switch makes itself.
    pub fn new(learned: impl Fn(&Flow) -> bool + Send + Sync + 'static) -> Self {
        Self::empty(Box::new(learned))
    }

    /// The messages that are due; `None` if there are none, while a patch is in flight, or before a resync.
    pub fn patch(&mut self) -> Option<Patch> {
        if self.link == Link::Idle { self.bundle() } else { None }
    }
}

impl<O: Ord + Clone> State<O, Meters> {
    /// A state without claims, but with meters; `learned` tells which flows the switch makes itself.
    pub fn with_meters(learned: impl Fn(&Flow) -> bool + Send + Sync + 'static) -> Self {
        Self::empty(Box::new(learned))
    }

    /// Replaces all meters of an owner.
    pub fn set_meters(&mut self, owner: &O, meters: impl IntoIterator<Item = Meter>) {
        self.meters.set(owner, meters.into_iter().map(numbered::claim_meter));
    }

    /// The switch has this meter.
    pub fn observe_meter(&mut self, meter: Meter) -> Observed {
        self.meters.observe(numbered::listed_meter(meter), self.sweep, || false)
    }

    /// The next messages that are due; `None` if there are none, while a patch is in flight, or before a resync.
    pub fn patch(&mut self) -> Option<Stage> {
        if self.link != Link::Idle {
            return None;
        }
        let Self { flows, groups, meters, sweep, .. } = self;
        let put = meters.take_puts(|_| false);
        let mut held = flows.held_targets();
        held.append(&mut groups.held_targets());
        let delete = meters.take_deletes(*sweep, |target| {
            held.contains(&target) || flows.points_at(target) || groups.points_at(target)
        });
        if put.is_empty() && delete.is_empty() {
            return self.bundle().map(Stage::Bundle);
        }
        Some(Stage::Meters(MeterPatch { serial: self.send(), put, delete }))
    }

    /// The messages of a patch in flight, as they were when it was made; none of an abandoned patch.
    pub fn meter_mods<'a>(&'a self, patch: &'a MeterPatch) -> impl Iterator<Item = MeterMod> + 'a {
        patch.steps().take_while(|_| self.is_in_flight(patch.serial)).filter_map(|step| self.meter_mod(step))
    }

    /// The switch has applied all messages of the patch.
    pub fn meters_applied(&mut self, patch: MeterPatch) {
        self.conclude(patch.serial, patch.steps(), |_| Outcome::Applied);
    }

    /// The patch failed as a whole or in part. What was not applied stays due; what was rejected is set aside until another
    /// meter is desired in its place, or [`State::retry`].
    pub fn meters_failed(&mut self, patch: MeterPatch, failure: Failure) {
        self.fail(patch.serial, patch.len(), patch.steps(), failure, Outcome::Applied);
    }

    fn meter_mod(&self, step: Step) -> Option<MeterMod> {
        match step {
            Step::Meter(slot, Op::Put) if self.meters.is_absent(slot) => {
                Some(MeterMod::Add(self.meters.sent(slot)?.into_owned().body?))
            }
            Step::Meter(slot, Op::Put) => Some(MeterMod::Modify(self.meters.sent(slot)?.into_owned().body?)),
            Step::Meter(slot, Op::Delete) => Some(MeterMod::Delete(MeterId(self.meters.key(slot)?.id()))),
            Step::Group(..) | Step::Flow(..) => None,
        }
    }
}

impl<O: Ord + Clone, M> State<O, M> {
    fn empty(learned: Learned) -> Self {
        Self {
            flows: Ledger::default(),
            groups: Ledger::default(),
            meters: Ledger::default(),
            learned,
            scratch: Vec::new(),
            sweep: false,
            link: Link::Unknown,
            serial: 0,
            marker: PhantomData,
        }
    }

    /// Replaces all flows of an owner.
    pub fn set_flows(&mut self, owner: &O, flows: impl IntoIterator<Item = Flow>) {
        let Self { flows: ledger, scratch, .. } = self;
        ledger.set(owner, flows.into_iter().map(|flow| flows::claim(flow, scratch)));
    }

    /// Replaces all groups of an owner.
    pub fn set_groups(&mut self, owner: &O, groups: impl IntoIterator<Item = Group>) {
        self.groups.set(owner, groups.into_iter().map(numbered::claim_group));
    }

    /// The desired flows: a shared one once, with all its clauses.
    pub fn desired_flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.flows.desired().map(|flow| flow.decode())
    }

    /// The desired flows, each with its owners in order.
    pub fn owned_flows(&self) -> impl Iterator<Item = (Flow, Vec<O>)> + '_ {
        self.flows.owned().map(|(flow, owners)| (flow.decode(), owners))
    }

    /// The desired groups, each with its owners in order.
    pub fn owned_groups(&self) -> impl Iterator<Item = (Group, Vec<O>)> + '_ {
        self.groups.owned().filter_map(|(group, owners)| Some((group.decode()?, owners)))
    }

    /// Drops all claims of an owner.
    pub fn remove(&mut self, owner: &O) {
        self.set_flows(owner, []);
        self.set_groups(owner, []);
        self.meters.set(owner, []);
    }

    /// All owners have made their claims: from now on unclaimed objects are deleted. Before, only those are that this state
    /// has installed itself.
    pub fn allow_sweep(&mut self) {
        if !self.sweep {
            self.sweep = true;
            for ledger in self.ledgers() {
                ledger.allow_sweep();
            }
        }
    }

    /// Whether a resync has to come before the next patch.
    pub fn needs_resync(&self) -> bool {
        matches!(self.link, Link::Unknown | Link::Resync)
    }

    /// A resync starts, over the connection that patches will use. A patch in flight is abandoned: its outcome is ignored.
    pub fn begin_resync(&mut self) {
        self.link = Link::Resync;
        for ledger in self.ledgers() {
            ledger.begin_resync();
        }
    }

    /// The switch has this flow.
    pub fn observe_flow(&mut self, flow: &Flow) -> Observed {
        let listed = flows::listed(flow, &mut self.scratch);
        self.flows.observe(listed, self.sweep, || (self.learned)(flow))
    }

    /// The switch has this group.
    pub fn observe_group(&mut self, group: Group) -> Observed {
        self.groups.observe(numbered::listed_group(group), self.sweep, || false)
    }

    /// The resync is complete: objects that the switch did not report are absent.
    pub fn end_resync(&mut self) {
        if self.link == Link::Resync {
            self.link = Link::Idle;
            for ledger in self.ledgers() {
                ledger.end_resync();
            }
        }
    }

    /// The messages of a patch in flight, as they were when it was made; none of an abandoned patch.
    pub fn messages<'a>(&'a self, patch: &'a Patch) -> impl Iterator<Item = Message<'a>> {
        let count = if self.is_in_flight(patch.serial) { patch.len() } else { 0 };
        patch.steps().take(count).filter_map(|step| self.message(step))
    }

    /// The switch has committed the patch.
    pub fn committed(&mut self, patch: Patch) {
        self.conclude(patch.serial, patch.steps(), |_| Outcome::Applied);
    }

    /// The switch has not committed the patch. Its objects stay due, but for the rejected ones: those are set aside until
    /// another object is desired in their place, or [`State::retry`].
    pub fn failed(&mut self, patch: Patch, failure: Failure) {
        self.fail(patch.serial, patch.len(), patch.steps(), failure, Outcome::NotApplied);
    }

    /// Makes rejected objects due again: the switch may accept them now, or may be another one.
    pub fn retry(&mut self) {
        for ledger in self.ledgers() {
            ledger.retry();
        }
    }

    fn ledgers(&mut self) -> [&mut (dyn Resync + '_); 3] {
        [&mut self.flows, &mut self.groups, &mut self.meters]
    }

    /// Takes the flows and groups that are due.
    fn bundle(&mut self) -> Option<Patch> {
        let Self { flows, groups, meters, sweep, .. } = self;
        let groups_put = groups.take_puts(|target| meters.is_available(target));
        let flows_put = flows.take_puts(|target| groups.is_available(target) || meters.is_available(target));
        let flows_delete = flows.take_deletes(*sweep, |_| false);
        let held = flows.held_targets();
        let groups_delete = groups.take_deletes(*sweep, |target| held.contains(&target) || flows.points_at(target));
        let patch = Patch { serial: 0, groups_put, flows_put, flows_delete, groups_delete };
        if patch.is_empty() {
            return None;
        }
        Some(Patch { serial: self.send(), ..patch })
    }

    /// The serial number of a new patch in flight.
    fn send(&mut self) -> u64 {
        self.link = Link::InFlight;
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    fn is_in_flight(&self, serial: u64) -> bool {
        self.link == Link::InFlight && serial == self.serial
    }

    fn message(&self, step: Step) -> Option<Message<'_>> {
        match step {
            Step::Flow(slot, Op::Put) => Some(Message::FlowAdd(self.flows.sent(slot)?)),
            Step::Flow(slot, Op::Delete) => Some(Message::FlowDelete(self.flows.key(slot)?)),
            Step::Group(slot, Op::Put) => Some(Message::GroupPut(match self.groups.sent(slot)? {
                Cow::Borrowed(group) => Cow::Borrowed(group.body.as_deref()?),
                Cow::Owned(group) => Cow::Owned(group.body?.into()),
            })),
            Step::Group(slot, Op::Delete) => Some(Message::GroupDelete(self.groups.key(slot)?.id())),
            Step::Meter(..) => None,
        }
    }

    /// Concludes a failed patch; `others` is the outcome of messages beside rejected ones.
    fn fail(
        &mut self,
        serial: u64,
        len: usize,
        steps: impl Iterator<Item = Step>,
        failure: Failure,
        others: Outcome<'_>,
    ) {
        let rejected = match failure {
            Failure::NotCommitted => return self.conclude(serial, steps, |_| Outcome::NotApplied),
            Failure::Unknown => Vec::new(),
            Failure::Rejected(rejected) => rejected,
        };
        let reasons: BTreeMap<usize, &str> = rejected.iter().map(|r| (r.index, r.reason.as_str())).collect();
        if reasons.range(..len).next().is_some() {
            self.conclude(serial, steps, |index| {
                reasons.get(&index).map_or(others, |reason| Outcome::Rejected(reason))
            });
        } else if self.is_in_flight(serial) {
            self.link = Link::Unknown;
        }
    }

    fn conclude<'a>(&mut self, serial: u64, steps: impl Iterator<Item = Step>, outcome: impl Fn(usize) -> Outcome<'a>) {
        if !self.is_in_flight(serial) {
            return;
        }
        for (index, step) in steps.enumerate() {
            match step {
                Step::Flow(slot, op) => self.flows.conclude(slot, op, outcome(index)),
                Step::Group(slot, op) => self.groups.conclude(slot, op, outcome(index)),
                Step::Meter(slot, op) => self.meters.conclude(slot, op, outcome(index)),
            }
        }
        for ledger in self.ledgers() {
            ledger.unpin();
        }
        self.link = Link::Idle;
    }
}

impl<O: Ord + Clone + fmt::Debug, M> State<O, M> {
    /// Incompatible claims, in order.
    pub fn conflicts(&self) -> Vec<Conflict<O>> {
        let numbered = self.groups.conflicts().chain(self.meters.conflicts());
        sorted(self.flows.conflicts().chain(numbered))
    }

    /// Desired objects that the switch rejected, in order.
    pub fn rejections(&self) -> Vec<Rejection<O>> {
        let numbered = self.groups.rejections().chain(self.meters.rejections());
        sorted(self.flows.rejections().chain(numbered))
    }

    /// Desired objects with a target that is not on its way to the switch, in order.
    pub fn waiting(&self) -> Vec<Waiting<O>> {
        let mut coming = BTreeSet::new();
        self.meters.add_coming(&mut coming);
        self.groups.add_coming(&mut coming);
        sorted(self.flows.waiting(&coming).chain(self.groups.waiting(&coming)))
    }
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort();
    all
}
