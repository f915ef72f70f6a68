//! The first half of a pass: translates flows to a list of datapath actions.

use std::sync::Arc;

use openflow::action::{Action, Controller, Ct, Zone};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::{Group, GroupType};
use openflow::port::Port;

use super::execute::Op;
use super::{MAX_DEPTH, MAX_RECIRCULATIONS, MAX_RESUBMITS, Run};
use crate::conntrack::Request;
use crate::fields::{CtFields, View, low, wide_port};
use crate::groups::{Choice, Pick, bucket_actions};
use crate::learn::learned_flow;
use crate::normal::flood;
use crate::packet::Packet;
use crate::trace::{Did, Entry, Reason, Step};

/// A pass in the middle of reading flows.
#[derive(Clone)]
pub(super) struct Pass {
    /// The packet as the flows see it.
    view: View,
    /// The packet as the list leaves it, translation apart.
    base: Packet,
    ops: Vec<Op>,
    stack: Vec<Frame>,
    table: u8,
    resubmits: u32,
    depth: u32,
    /// A hash of the packet has been computed.
    hashed: bool,
    recirculations: u8,
    /// No more actions up to the next bucket.
    exit: bool,
    /// A limit was hit: no more actions.
    failed: bool,
    /// A hash is needed to go on.
    waits: bool,
    lessons: Vec<(Flow, u32)>,
}

/// A list of actions that is being read.
#[derive(Clone)]
struct Frame {
    source: Source,
    next: usize,
    step: usize,
    /// What is restored at the end.
    table: u8,
    deepens: bool,
    view: Option<Box<View>>,
    /// The buckets that come after this one, the last first.
    more: Vec<Arc<[Action]>>,
}

#[derive(Clone)]
enum Source {
    Flow(Arc<Flow>),
    Bucket(Arc<[Action]>),
}

impl Source {
    fn action(&self, at: usize) -> Option<Action> {
        match self {
            Source::Flow(flow) => flow.actions.get(at).cloned(),
            Source::Bucket(actions) => actions.get(at).cloned(),
        }
    }

    /// The table that is searched after the last action.
    fn goto(&self, at: usize) -> Option<u8> {
        match self {
            Source::Flow(flow) if at == flow.actions.len() => flow.goto_table,
            _ => None,
        }
    }
}

/// Header fields that the datapath can write.
const HEADERS: &[Field] = &[
    Field::VlanVid,
    Field::VlanPcp,
    Field::EthSrc,
    Field::EthDst,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::ArpOp,
    Field::ArpSha,
    Field::ArpTha,
    Field::IpDscp,
    Field::IpEcn,
    Field::IpTtl,
    Field::Icmpv4Type,
    Field::Icmpv4Code,
    Field::Icmpv6Type,
    Field::Icmpv6Code,
    Field::NdReserved,
    // What the first option is decides which address it can hold.
    Field::NdOptionsType,
    Field::NdTarget,
    Field::NdSll,
    Field::NdTll,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
    Field::SctpSrc,
    Field::SctpDst,
];

impl Pass {
    /// Puts the changes of headers on the list.
    fn commit(&mut self) {
        if self.view.packet != self.base {
            let changed = |field: &Field| {
                let value = self.view.packet.get(*field);
                (value != self.base.get(*field)).then_some((*field, value))
            };
            // A packet of protocol 0 has no network header to the switch once it is about to change one.
            let ethernet = [Field::EthSrc, Field::EthDst, Field::VlanVid, Field::VlanPcp];
            let packet = &self.view.packet;
            let whole = packet.src().is_none() || packet.get(Field::IpProto) != 0;
            let fields = HEADERS.iter().filter(|field| whole || ethernet.contains(field)).filter_map(changed).collect();
            self.ops.push(Op::Set(fields));
            self.base = self.view.packet.clone();
        }
    }

    /// Begins with the last of these buckets.
    fn enter(&mut self, mut buckets: Vec<Arc<[Action]>>, step: usize) {
        let Some(actions) = buckets.pop() else { return };
        self.depth += 1;
        self.stack.push(Frame {
            source: Source::Bucket(actions),
            next: 0,
            step,
            table: self.table,
            deepens: true,
            view: Some(Box::new(self.view.clone())),
            more: buckets,
        });
    }

    fn cookie(&self) -> u64 {
        let flow = |frame: &Frame| match &frame.source {
            Source::Flow(flow) => Some(flow.cookie),
            Source::Bucket(_) => None,
        };
        self.stack.iter().rev().find_map(flow).unwrap_or_default()
    }
}

impl Run<'_> {
    /// Translates the flows for a packet, beginning at a table.
    pub(super) fn translate(
        &mut self,
        view: View,
        table: u8,
        entry: Entry,
        hashed: bool,
        recirculations: u8,
    ) -> Vec<Op> {
        let mut pass = Pass {
            base: view.packet.clone(),
            view,
            ops: Vec::new(),
            stack: Vec::new(),
            table,
            resubmits: 0,
            depth: 0,
            hashed,
            recirculations,
            exit: false,
            failed: false,
            waits: false,
            lessons: Vec::new(),
        };
        let in_port = pass.view.meta.in_port;
        self.search(&mut pass, table, in_port, entry);
        self.read(pass)
    }

    /// Goes on with a pass that has waited for a hash of the packet, as it is now.
    pub(super) fn resume(&mut self, mut pass: Pass, packet: &Packet) -> Vec<Op> {
        pass.view.packet = packet.clone();
        pass.base = packet.clone();
        self.read(pass)
    }

    fn read(&mut self, mut pass: Pass) -> Vec<Op> {
        while let Some(frame) = pass.stack.last_mut() {
            let at = frame.next;
            frame.next += 1;
            let source = frame.source.clone();
            if pass.exit || pass.failed {
                self.leave(&mut pass);
            } else if let Some(action) = source.action(at) {
                self.act(&mut pass, &action);
                if std::mem::take(&mut pass.waits) {
                    // Here the switch learns what it has read so far. The rest is read when the list up to here is done.
                    self.learn(&mut pass);
                    let mut ops = std::mem::take(&mut pass.ops);
                    ops.push(Op::Resume(Box::new(pass)));
                    return ops;
                }
            } else if let Some(table) = source.goto(at) {
                let in_port = pass.view.meta.in_port;
                self.resubmit(&mut pass, table, in_port);
            } else {
                self.leave(&mut pass);
            }
        }
        if pass.failed {
            pass.ops.clear();
        }
        self.learn(&mut pass);
        pass.ops
    }

    fn did(&mut self, pass: &Pass, did: Did) {
        if let Did::Failed(reason) = &did {
            self.reason = Some(reason.clone());
        }
        if let Some(step) = pass.stack.last().and_then(|frame| self.steps.get_mut(frame.step)) {
            step.did.push(did);
        }
    }

    /// Searches a table for the packet as if it came in by a port, and reads the flow that is found.
    fn search(&mut self, pass: &mut Pass, table: u8, in_port: Port, entry: Entry) {
        let real = std::mem::replace(&mut pass.view.meta.in_port, in_port);
        let found = self.switch.tables.lookup(table, &mut pass.view);
        pass.view.meta.in_port = real;
        let step = self.steps.len();
        self.steps.push(Step {
            depth: pass.stack.len(),
            entry,
            table,
            flow: found.as_ref().map(|found| found.flow.clone()),
            conjunction: found.as_ref().and_then(|found| found.conjunction),
            tie: found.as_ref().is_some_and(|found| found.tie),
            did: Vec::new(),
        });
        let Some(found) = found else {
            self.reason = Some(Reason::NoFlow(table));
            return;
        };
        if found.flow.idle_timeout != 0 {
            Arc::make_mut(&mut self.switch.tables).touch(self.now, &found.flow);
        }
        if found.flow.actions.is_empty() && found.flow.goto_table.is_none() {
            self.reason = Some(Reason::FlowDrops(table));
        }
        let deepens = !pass.stack.is_empty() && table <= pass.table;
        pass.depth += u32::from(deepens);
        let source = Source::Flow(found.flow);
        pass.stack.push(Frame { source, next: 0, step, table: pass.table, deepens, view: None, more: Vec::new() });
        pass.table = table;
    }

    fn leave(&mut self, pass: &mut Pass) {
        let Some(frame) = pass.stack.pop() else { return };
        pass.table = frame.table;
        pass.depth = pass.depth.saturating_sub(u32::from(frame.deepens));
        if let Some(view) = frame.view {
            // A bucket gets a copy of the packet.
            pass.view = *view;
            pass.exit = false;
            pass.enter(frame.more, frame.step);
        }
    }

    fn within_limits(&mut self, pass: &mut Pass) -> bool {
        let reason = if pass.depth >= MAX_DEPTH {
            Reason::TooDeep
        } else if pass.resubmits >= MAX_RESUBMITS {
            Reason::TooManyResubmits
        } else {
            return true;
        };
        self.did(pass, Did::Failed(reason));
        pass.failed = true;
        false
    }

    fn resubmit(&mut self, pass: &mut Pass, table: u8, in_port: Port) {
        if self.within_limits(pass) {
            pass.resubmits += 1;
            self.search(pass, table, in_port, Entry::Resubmit);
        }
    }

    fn act(&mut self, pass: &mut Pass, action: &Action) {
        match action {
            Action::Output(Port::CONTROLLER) => self.punt(pass, &Controller::default()),
            Action::Output(port) => self.output(pass, *port),
            Action::OutputField { src, max_len } => {
                let port = pass.view.get_bits(*src);
                match u16::try_from(port).map(|port| wide_port(u32::from(port))) {
                    Ok(Port::CONTROLLER) => {
                        self.punt(pass, &Controller { max_len: *max_len, ..Controller::default() });
                    }
                    Ok(port) => self.output(pass, port),
                    Err(_) => self.did(pass, Did::Failed(Reason::NoPort(Port(low(port))))),
                }
            }
            Action::Controller(how) => self.punt(pass, how),
            Action::Group(id) => self.group(pass, *id),
            Action::SetField { field, value, mask } => {
                let before = pass.view.get(*field);
                pass.view.set(*field, *value, *mask);
                self.did_set(pass, *field, before);
            }
            Action::Move { src, dst } => {
                let before = pass.view.get(dst.field());
                let value = pass.view.get_bits(*src);
                pass.view.set_bits(*dst, value);
                self.did_set(pass, dst.field(), before);
            }
            Action::Resubmit { in_port, table } => {
                let real = pass.view.meta.in_port;
                let in_port = in_port.filter(|port| *port != Port::IN_PORT).unwrap_or(real);
                self.resubmit(pass, table.unwrap_or(pass.table), in_port);
            }
            Action::Ct(ct) => self.ct(pass, ct),
            Action::Clone(actions) => self.copy(pass, actions),
            Action::Learn(learn) => {
                let flow = learned_flow(learn, &pass.view);
                self.did(pass, Did::Learned(Arc::new(flow.clone())));
                pass.lessons.push((flow, learn.limit));
            }
            Action::DecTtl => {
                let ttl = pass.view.get(Field::IpTtl);
                if ttl > 1 {
                    pass.view.set(Field::IpTtl, ttl - 1, u128::MAX);
                    self.did_set(pass, Field::IpTtl, ttl);
                } else if pass.view.packet.src().is_some() {
                    // This list of actions ends here; those that called it go on.
                    self.did(pass, Did::Failed(Reason::TtlExpired));
                    self.leave(pass);
                }
            }
            Action::Conjunction { .. } | Action::Meter(_) | Action::Note(_) => {}
            Action::Unknown(_) => {
                self.did(pass, Did::Failed(Reason::NotSimulated(pass.table)));
                pass.failed = true;
            }
        }
    }

    fn did_set(&mut self, pass: &Pass, field: Field, before: u128) {
        let value = pass.view.get(field);
        if value != before {
            self.did(pass, Did::Set(field, value));
        }
    }

    fn output(&mut self, pass: &mut Pass, port: Port) {
        let in_port = pass.view.meta.in_port;
        let ports = match (port, &self.switch.ports) {
            (Port::IN_PORT, _) => vec![in_port],
            (Port::NORMAL, Some(ports)) => self.switch.macs.forward(self.now, in_port, &pass.view.packet, ports),
            (Port::FLOOD | Port::ALL, Some(ports)) => flood(in_port, ports),
            (Port::TABLE, _) => return self.resubmit(pass, 0, in_port),
            (Port::ANY, _) => Vec::new(),
            (port, _) if port == in_port => return self.did(pass, Did::Failed(Reason::OutputToInPort(port))),
            (port, Some(ports)) if !ports.contains(&port) => {
                return self.did(pass, Did::Failed(Reason::NoPort(port)));
            }
            (port, _) => vec![port],
        };
        if ports.is_empty() {
            return;
        }
        pass.commit();
        let tunnel = pass.view.meta.tunnel;
        pass.ops.extend(ports.iter().map(|port| Op::Output { port: *port, tunnel }));
        self.did(pass, Did::Output(ports));
    }

    fn punt(&mut self, pass: &mut Pass, how: &Controller) {
        pass.commit();
        pass.ops.push(Op::Controller { how: how.clone(), table: pass.table, cookie: pass.cookie() });
        self.did(pass, Did::Controller);
        pass.exit |= how.pause;
    }

    fn group(&mut self, pass: &mut Pass, id: u32) {
        if !self.within_limits(pass) {
            return;
        }
        let Some(group) = self.switch.groups.get(id).cloned() else {
            self.did(pass, Did::Failed(Reason::NoGroup(id)));
            return self.leave(pass);
        };
        let candidates = self.switch.groups.candidates(&group);
        let by_hash = group.selection.as_ref().is_some_and(|selection| selection.method == "dp_hash");
        if group.kind == GroupType::Select && by_hash && !pass.hashed {
            if pass.recirculations >= MAX_RECIRCULATIONS {
                self.did(pass, Did::Failed(Reason::TooManyRecirculations));
                pass.exit = true;
                return;
            }
            // The datapath computes the hash, and the rest is another pass.
            pass.hashed = true;
            pass.recirculations += 1;
            (pass.resubmits, pass.depth) = (0, 0);
            pass.commit();
            pass.waits = true;
            // The group is asked again then.
            if let Some(frame) = pass.stack.last_mut() {
                frame.next -= 1;
            }
            return;
        }
        let chosen = match group.kind {
            GroupType::Select => self.pick(&group, &candidates).into_iter().collect(),
            _ => candidates,
        };
        if chosen.is_empty() {
            self.did(pass, Did::Failed(Reason::NoBucket(id)));
        }
        let step = pass.stack.last().map_or(0, |frame| frame.step);
        for place in &chosen {
            let bucket = group.buckets.get(*place).map_or(0, |bucket| bucket.id);
            self.did(pass, Did::Bucket(Pick { group: id, bucket }));
        }
        let actions = |place: &usize| group.buckets.get(*place).map(|bucket| bucket_actions(bucket).into());
        pass.enter(chosen.iter().rev().filter_map(actions).collect(), step);
    }

    fn pick(&mut self, group: &Group, candidates: &[usize]) -> Option<usize> {
        let scripted = self.script.get(self.options.len()).copied();
        self.options.push(candidates.len());
        let wanted = match &self.switch.choice {
            Choice::First => None,
            Choice::Picks(picks) => picks.get(&group.id).copied(),
        };
        let is_wanted = |place: &&usize| group.buckets.get(**place).map(|bucket| bucket.id) == wanted;
        let place = match scripted {
            Some(at) => candidates.get(at),
            None => candidates.iter().find(is_wanted).or(candidates.first()),
        };
        let place = *place?;
        let bucket = group.buckets.get(place)?.id;
        self.picks.push(Pick { group: group.id, bucket });
        Some(place)
    }

    fn ct(&mut self, pass: &mut Pass, ct: &Ct) {
        let zone = match ct.zone {
            Zone::Number(zone) => zone,
            Zone::Field(src) => low(pass.view.get_bits(src)),
        };
        pass.commit();
        let before = pass.view.meta.ct;
        let (mut mark, mut label) = (0, 0);
        for action in &ct.exec {
            let (field, mask) = match action {
                Action::SetField { field, value, mask } => {
                    pass.view.set(*field, *value, *mask);
                    (*field, *mask)
                }
                Action::Move { src, dst } => {
                    let value = pass.view.get_bits(*src);
                    pass.view.set_bits(*dst, value);
                    (dst.field(), dst.mask())
                }
                _ => continue,
            };
            match field {
                Field::CtMark => mark |= low::<u32>(mask),
                Field::CtLabel => label |= mask,
                _ => {}
            }
        }
        let CtFields { mark: mark_value, label: label_value, .. } = pass.view.meta.ct;
        pass.ops.push(Op::Ct(Request {
            zone,
            commit: ct.commit,
            force: ct.force,
            nat: ct.nat.clone(),
            mark: (mark != 0).then_some((mark_value & mark, mark)),
            label: (label != 0).then_some((label_value & label, label)),
        }));
        pass.view.meta.ct = before;
        self.did(pass, Did::Ct { zone, commit: ct.commit, nat: ct.nat.is_some(), table: ct.table });
        if let Some(table) = ct.table {
            let meta = Box::new(pass.view.meta.clone());
            let (hashed, recirculations) = (pass.hashed, pass.recirculations);
            pass.ops.push(Op::Recirculate { table, meta, hashed, recirculations });
        }
        // Later actions see the packet as untracked.
        pass.view.meta.ct = CtFields::default();
    }

    /// Runs actions on a copy of the packet. Those that search a table or a group inside are not simulated: no flow of ours has them.
    fn copy(&mut self, pass: &mut Pass, actions: &[Action]) {
        pass.commit();
        let (view, before) = (pass.view.clone(), std::mem::take(&mut pass.ops));
        for action in actions {
            match action {
                Action::Resubmit { .. } | Action::Group(_) => {
                    self.did(pass, Did::Failed(Reason::NotSimulated(pass.table)));
                    pass.failed = true;
                }
                action => self.act(pass, action),
            }
        }
        let inside = std::mem::replace(&mut pass.ops, before);
        pass.ops.push(Op::Copy(inside));
        pass.base = view.packet.clone();
        pass.view = view;
    }

    fn learn(&mut self, pass: &mut Pass) {
        for (flow, limit) in std::mem::take(&mut pass.lessons) {
            Arc::make_mut(&mut self.switch.tables).learn(self.now, flow, limit);
        }
    }
}
