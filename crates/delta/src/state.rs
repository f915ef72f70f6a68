//! Flows, groups and meters together.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use openflow::flow::Flow;
use openflow::group::Group;
use openflow::meter::{Meter, MeterId};

use crate::flows::Flows;
use crate::life::{Op, Outcome};
use crate::numbered::{EncodedGroup, Numbered, is_foreign_meter};
use crate::patch::{Failure, Message, Patch, Step};
use crate::report::{Conflict, Rejection, Waiting};
use crate::target::Target;

/// What something that the switch holds turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Observed {
    /// What is wanted.
    Same,
    /// Something else than is wanted; it will be replaced.
    Differs,
    /// Wanted by nobody; it will be removed, once sweeping is allowed.
    Unwanted,
    /// A flow that the switch has made itself; it is left alone.
    Learned,
    /// Something with parts that are not understood: treated as different or unwanted, and worth a line in the log.
    Foreign,
}

/// Tells flows that the switch has learned from those that were sent.
type Learned = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// What owners want the switch to hold, and what is known of what it holds.
///
/// It starts without any knowledge of the switch: [`State::patch`] has nothing to say before the first resync.
pub struct State<O> {
    flows: Flows<O>,
    groups: Numbered<O, EncodedGroup>,
    meters: Numbered<O, Meter>,
    learned: Learned,
    sweep: bool,
    link: Link,
    /// Of the last patch.
    serial: u64,
}

/// What is known of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    /// Nothing that can be relied on.
    Unknown,
    /// It is being listed.
    Resync,
    /// All of it.
    Idle,
    /// All, but for the outcome of the last patch.
    InFlight,
}

/// The stage of a patch that happens as a whole or not at all: meters come before and after it.
const BUNDLE: u8 = 1;

impl<O> fmt::Debug for State<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("link", &self.link).field("sweep", &self.sweep).finish_non_exhaustive()
    }
}

impl<O: Ord + Clone> State<O> {
    /// Nothing is wanted, and nothing is known of the switch; `learned` tells which flows the switch makes itself.
    pub fn new(learned: impl Fn(&Flow) -> bool + Send + Sync + 'static) -> Self {
        Self {
            flows: Flows::default(),
            groups: Numbered::default(),
            meters: Numbered::default(),
            learned: Box::new(learned),
            sweep: false,
            link: Link::Unknown,
            serial: 0,
        }
    }

    /// Replaces all flows that an owner wants.
    pub fn set_flows(&mut self, owner: &O, flows: impl IntoIterator<Item = Flow>) {
        self.flows.set(owner, flows);
    }

    /// Replaces all groups that an owner wants.
    pub fn set_groups(&mut self, owner: &O, groups: impl IntoIterator<Item = Group>) {
        self.groups.set(owner, groups.into_iter().map(|group| (group.id, EncodedGroup::new(group))));
    }

    /// Replaces all meters that an owner wants.
    pub fn set_meters(&mut self, owner: &O, meters: impl IntoIterator<Item = Meter>) {
        self.meters.set(owner, meters.into_iter().map(|meter| (meter.id.0, meter)));
    }

    /// The flows that are wanted, as the switch should hold them: shared ones once, with all their clauses.
    pub fn desired_flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.flows.desired()
    }

    /// An owner wants nothing any more.
    pub fn remove(&mut self, owner: &O) {
        self.set_flows(owner, []);
        self.set_groups(owner, []);
        self.set_meters(owner, []);
    }

    /// Every owner of anything that was in the switch has spoken: from now on, what nobody wants is removed. Before, only
    /// what this state has put there itself is.
    pub fn allow_sweep(&mut self) {
        if !self.sweep {
            self.sweep = true;
            self.flows.allow_sweep();
            self.groups.allow_sweep();
            self.meters.allow_sweep();
        }
    }

    /// Whether nothing can be sent before the switch has been listed.
    pub fn needs_resync(&self) -> bool {
        matches!(self.link, Link::Unknown | Link::Resync)
    }

    /// The switch is about to be listed, over the connection on which patches will be sent. A patch that is under way is
    /// abandoned: what is said of it later is ignored.
    pub fn begin_resync(&mut self) {
        self.link = Link::Resync;
        self.flows.begin_resync();
        self.groups.begin_resync();
        self.meters.begin_resync();
    }

    /// The switch holds this flow.
    pub fn observe_flow(&mut self, flow: &Flow) -> Observed {
        self.flows.observe(flow, self.sweep, &self.learned)
    }

    /// The switch holds this group.
    pub fn observe_group(&mut self, group: Group) -> Observed {
        let (id, foreign) = (group.id, group.is_foreign());
        self.groups.observe(id, EncodedGroup::new(group), foreign, self.sweep)
    }

    /// The switch holds this meter.
    pub fn observe_meter(&mut self, meter: Meter) -> Observed {
        let (id, foreign) = (meter.id.0, is_foreign_meter(&meter));
        self.meters.observe(id, meter, foreign, self.sweep)
    }

    /// The switch has been listed: what it did not list is not there.
    pub fn end_resync(&mut self) {
        if self.link == Link::Resync {
            self.link = Link::Idle;
            self.flows.end_resync();
            self.groups.end_resync();
            self.meters.end_resync();
        }
    }

    /// What has to be sent; nothing if all is as it should be, while a patch is under way, or before a resync.
    pub fn patch(&mut self) -> Option<Patch> {
        if self.link != Link::Idle {
            return None;
        }
        let Self { flows, groups, meters, sweep, .. } = self;
        let meters_put = meters.take_puts(|_| false);
        let groups_put = groups.take_puts(|target| match target {
            Target::Meter(id) => meters.is_available(id),
            Target::Group(_) => false,
        });
        let due = flows.take_due(*sweep, |target| match target {
            Target::Group(id) => groups.is_available(id),
            Target::Meter(id) => meters.is_available(id),
        });
        let mut held = flows.held_targets();
        let groups_delete = groups.take_deletes(*sweep, |target| held.contains(&target) || flows.points_at(target));
        // That looks at all groups, and meters that wait to be deleted are few.
        if meters.has_due() {
            held.append(&mut groups.held_targets());
        }
        let meters_delete = meters.take_deletes(*sweep, |target| {
            held.contains(&target) || flows.points_at(target) || groups.points_at(target)
        });
        let serial = self.serial.wrapping_add(1);
        let patch = Patch { serial, meters_put, groups_put, flows: due, groups_delete, meters_delete };
        if patch.is_empty() {
            return None;
        }
        self.serial = serial;
        self.link = Link::InFlight;
        Some(patch)
    }

    /// The messages of a stage of the patch that is under way, as they were when it was made; none of an abandoned patch.
    pub fn messages<'a>(&'a self, patch: &'a Patch, stage: Range<usize>) -> impl Iterator<Item = Message<'a>> {
        let count = if self.is_under_way(patch) { stage.len() } else { 0 };
        patch.steps().skip(stage.start).take(count).filter_map(|step| self.message(step))
    }

    /// The patch has landed.
    pub fn committed(&mut self, patch: Patch) {
        self.conclude(&patch, |_| Outcome::Landed);
    }

    /// The patch has not landed, or not all of it. What has not stays due, but for what was refused: that is set aside
    /// until something else is wanted in its place.
    pub fn failed(&mut self, patch: Patch, failure: Failure) {
        let bundle = patch.bundle();
        let stage = |index: usize| u8::from(index >= bundle.start) + u8::from(index >= bundle.end);
        let (rejected, failed) = match failure {
            Failure::NotCommitted => (Vec::new(), Some(BUNDLE)),
            Failure::Unknown => (Vec::new(), None),
            Failure::Rejected(mut rejected) => {
                rejected.retain(|rejected| rejected.index < patch.len());
                let failed = rejected.iter().map(|rejected| stage(rejected.index)).min();
                (rejected, failed)
            }
        };
        let Some(failed) = failed else {
            if self.is_under_way(&patch) {
                self.link = Link::Unknown;
            }
            return;
        };
        let reasons: BTreeMap<usize, &str> = rejected.iter().map(|r| (r.index, r.reason.as_str())).collect();
        self.conclude(&patch, |index| match (stage(index).cmp(&failed), reasons.get(&index)) {
            (Ordering::Less, _) => Outcome::Landed,
            (Ordering::Equal, Some(reason)) => Outcome::Refused(reason),
            (Ordering::Equal, None) if failed != BUNDLE => Outcome::Landed,
            _ => Outcome::Returned,
        });
    }

    /// Tries again what was refused: the switch may have changed its mind, or be another one.
    pub fn retry(&mut self) {
        self.flows.retry();
        self.groups.retry();
        self.meters.retry();
    }

    fn is_under_way(&self, patch: &Patch) -> bool {
        self.link == Link::InFlight && patch.serial == self.serial
    }

    fn message(&self, step: Step) -> Option<Message<'_>> {
        Some(match step {
            Step::Flow(slot, Op::Put) => Message::FlowAdd(self.flows.sent(slot)?),
            Step::Flow(slot, Op::Delete) => Message::FlowDelete(self.flows.key(slot)?),
            Step::Group(id, Op::Put) => Message::GroupPut(&self.groups.sent(id)?.0.body),
            Step::Group(id, Op::Delete) => Message::GroupDelete(id),
            Step::Meter(id, Op::Put) => match self.meters.sent(id)? {
                (meter, true) => Message::MeterAdd(meter),
                (meter, false) => Message::MeterModify(meter),
            },
            Step::Meter(id, Op::Delete) => Message::MeterDelete(MeterId(id)),
        })
    }

    fn conclude<'a>(&mut self, patch: &Patch, outcome: impl Fn(usize) -> Outcome<'a>) {
        if !self.is_under_way(patch) {
            return;
        }
        for (index, step) in patch.steps().enumerate() {
            match step {
                Step::Flow(slot, op) => self.flows.conclude(slot, op, outcome(index)),
                Step::Group(id, op) => self.groups.conclude(id, op, outcome(index)),
                Step::Meter(id, op) => self.meters.conclude(id, op, outcome(index)),
            }
        }
        self.flows.unpin();
        self.groups.unpin();
        self.meters.unpin();
        self.link = Link::Idle;
    }
}

impl<O: Ord + Clone + fmt::Debug> State<O> {
    /// Where owners want different things, in order.
    pub fn conflicts(&self) -> Vec<Conflict<O>> {
        let mut all: Vec<_> = self.flows.conflicts().collect();
        all.sort();
        all.extend(self.groups.conflicts());
        all.extend(self.meters.conflicts());
        all
    }

    /// What the switch has refused as it is wanted now, in order.
    pub fn rejections(&self) -> Vec<Rejection<O>> {
        let mut all: Vec<_> = self.flows.rejections().collect();
        all.sort();
        all.extend(self.groups.rejections());
        all.extend(self.meters.rejections());
        all
    }

    /// What points at something that will not come by itself, in order.
    pub fn waiting(&self) -> Vec<Waiting<O>> {
        let meters = self.meters.coming(|_| false);
        let groups = self.groups.coming(|target| matches!(target, Target::Meter(id) if meters.contains(&id)));
        let coming = |target| match target {
            Target::Group(id) => groups.contains(&id),
            Target::Meter(id) => meters.contains(&id),
        };
        let mut all: Vec<_> = self.flows.waiting(coming).collect();
        all.sort();
        all.extend(self.groups.waiting(coming));
        all
    }
}
