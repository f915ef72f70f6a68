//! The second half of a pass: executes the list of datapath actions.

use std::collections::VecDeque;

use openflow::action::Controller;
use openflow::field::Field;
use openflow::port::Port;

use super::translate::Pass;
use super::{MAX_RECIRCULATIONS, Run};
use crate::conntrack::{Remembered, Request};
use crate::fields::{Metadata, Tunnel, View};
use crate::packet::Packet;
use crate::trace::{Entry, Reason, Sent};

/// The packet in the datapath, which may differ from what the pass saw: translation happens here.
#[derive(Clone, Debug)]
pub(super) struct Datapath {
    pub(super) packet: Packet,
    ct: Remembered,
}

#[derive(Clone)]
pub(super) enum Op {
    /// Write header fields with these values.
    Set(Vec<(Field, u128)>),
    /// Send the packet out.
    Output { port: Port, tunnel: Tunnel },
    /// Send the packet to the controller.
    Controller { how: Controller, table: u8, cookie: u64 },
    /// Send the packet through the connection tracker.
    Ct(Request),
    /// Run these with a copy of the packet.
    Copy(Vec<Op>),
    /// Continue a pass that needed the hash of the packet.
    Resume(Box<Pass>),
    /// Recirculate a copy of the packet to a table, with its metadata.
    Recirculate { table: u8, meta: Box<Metadata>, hashed: bool, recirculations: u8 },
}

impl Datapath {
    pub(super) fn of(packet: &Packet) -> Self {
        Self { packet: packet.clone(), ct: Remembered::default() }
    }

    fn set(&mut self, field: Field, value: u128) {
        // Writing an address or port clears the cached connection.
        let names_connection = match field {
            Field::Ipv4Src | Field::Ipv4Dst | Field::Ipv6Src | Field::Ipv6Dst => self.packet.get(field) != value,
            field => field >= Field::Icmpv4Type,
        };
        if names_connection {
            self.ct.conn = None;
        }
        self.packet.set(field, value);
    }
}

impl Run<'_> {
    /// Runs a pass, and the passes that it begins.
    pub(super) fn pass(
        &mut self,
        view: View,
        datapath: Datapath,
        table: u8,
        entry: Entry,
        hashed: bool,
        recirculations: u8,
    ) {
        let ops = self.translate(view, table, entry, hashed, recirculations);
        self.execute(ops, datapath);
    }

    fn execute(&mut self, ops: Vec<Op>, mut datapath: Datapath) {
        let mut ops: VecDeque<Op> = ops.into();
        while let Some(op) = ops.pop_front() {
            match op {
                // It is the last on the list.
                Op::Resume(pass) => ops = self.resume(*pass, &datapath.packet).into(),
                Op::Set(fields) => fields.into_iter().for_each(|(field, value)| datapath.set(field, value)),
                Op::Output { port, tunnel } => {
                    self.sent.push(Sent::Output { port, packet: datapath.packet.clone(), tunnel });
                }
                Op::Controller { how, table, cookie } => {
                    self.sent.push(Sent::Controller { how, packet: datapath.packet.clone(), table, cookie });
                }
                Op::Copy(inside) => self.execute(inside, datapath.clone()),
                Op::Ct(request) => {
                    self.switch.conntrack.track(self.now, &mut datapath.packet, &mut datapath.ct, &request);
                }
                Op::Recirculate { table, mut meta, hashed, recirculations } => {
                    if recirculations >= MAX_RECIRCULATIONS {
                        self.reason = Some(Reason::TooManyRecirculations);
                        continue;
                    }
                    meta.ct = datapath.ct.fields;
                    let entry = Entry::Tracked(meta.ct);
                    let view = View { packet: datapath.packet.clone(), meta: *meta };
                    self.pass(view, datapath.clone(), table, entry, hashed, recirculations + 1);
                }
            }
        }
    }
}
