//! Encoding of actions to the wire.

use super::{Action, Controller};
use crate::field::Field;
use crate::port::Port;
use crate::wire::{Put, low_u32};

/// The experimenter of Nicira's actions.
pub(super) const NICIRA: u32 = 0x0000_2320;

/// Numbers of OpenFlow's own actions.
pub(super) mod of {
    pub(in super::super) const OUTPUT: u16 = 0;
    pub(in super::super) const GROUP: u16 = 22;
    pub(in super::super) const DEC_TTL: u16 = 24;
    pub(in super::super) const SET_FIELD: u16 = 25;
    pub(in super::super) const COPY_FIELD: u16 = 28;
    pub(in super::super) const METER: u16 = 29;
    pub(in super::super) const EXPERIMENTER: u16 = 0xffff;
}

/// Numbers of Nicira's actions.
pub(super) mod nx {
    pub(in super::super) const RESUBMIT: u16 = 1;
    pub(in super::super) const REG_MOVE: u16 = 6;
    pub(in super::super) const REG_LOAD: u16 = 7;
    pub(in super::super) const NOTE: u16 = 8;
    pub(in super::super) const RESUBMIT_TABLE: u16 = 14;
    pub(in super::super) const OUTPUT_REG: u16 = 15;
    pub(in super::super) const LEARN: u16 = 16;
    pub(in super::super) const CONTROLLER: u16 = 20;
    pub(in super::super) const CONJUNCTION: u16 = 34;
    pub(in super::super) const CT: u16 = 35;
    pub(in super::super) const NAT: u16 = 36;
    pub(in super::super) const CONTROLLER2: u16 = 37;
    pub(in super::super) const CLONE: u16 = 42;
    pub(in super::super) const LEARN2: u16 = 45;
}

/// Bytes between the subtype of `clone` and its actions.
pub(super) const CLONE_PADDING: usize = 6;

/// Types of the properties of Nicira's second controller action.
pub(super) mod controller_property {
    pub(in super::super) const MAX_LEN: u16 = 0;
    pub(in super::super) const ID: u16 = 1;
    pub(in super::super) const REASON: u16 = 2;
    pub(in super::super) const USERDATA: u16 = 3;
    pub(in super::super) const PAUSE: u16 = 4;
    pub(in super::super) const METER: u16 = 5;
}

/// Writes actions one after the other.
pub(crate) fn put_actions(out: &mut Vec<u8>, actions: &[Action]) {
    for action in actions {
        action.encode(out);
    }
}

/// Writes a standard action: type, length, body, padding.
fn put_of(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    body(out);
    out.pad8_since(start);
    out.patch_len(start + 2, start);
}

/// Writes a Nicira extension action.
pub(super) fn put_nx(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    put_of(out, of::EXPERIMENTER, |out| {
        out.put_u32(NICIRA);
        out.put_u16(subtype);
        body(out);
    });
}

impl Action {
    /// Appends the action's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Action::Output(port) => put_output(out, *port, 0),
            Action::OutputField { src, max_len } => put_nx(out, nx::OUTPUT_REG, |out| {
                out.put_u16(src.packed());
                src.field().put_subfield_header(out);
                out.put_u16(*max_len);
            }),
            Action::Controller(controller) if controller.is_plain() => {
                put_output(out, Port::CONTROLLER, controller.max_len);
            }
            Action::Controller(controller) => put_controller(out, controller),
            Action::Group(id) => put_of(out, of::GROUP, |out| out.put_u32(*id)),
            Action::SetField { field: Field::InPort, value, .. } => put_of(out, of::SET_FIELD, |out| {
                // The switch takes OpenFlow 1.0's field only.
                Field::InPort.put_subfield_header(out);
                out.put_u16(Port(low_u32(*value)).to_of10());
            }),
            Action::SetField { field, value, mask } => {
                put_of(out, of::SET_FIELD, |out| field.put_tlv(out, *value, *mask));
            }
            Action::Move { src, dst } => put_of(out, of::COPY_FIELD, |out| {
                out.put_u16(u16::from(src.bits()));
                out.put_u16(u16::from(src.offset()));
                out.put_u16(u16::from(dst.offset()));
                out.put_zeros(2);
                src.field().put_subfield_header(out);
                dst.field().put_subfield_header(out);
            }),
            Action::Resubmit { in_port, table } => {
                let subtype = if table.is_some() { nx::RESUBMIT_TABLE } else { nx::RESUBMIT };
                put_nx(out, subtype, |out| {
                    out.put_u16(in_port.unwrap_or(Port::IN_PORT).to_of10());
                    out.put_u8(table.unwrap_or(0));
                });
            }
            Action::Ct(ct) => ct.encode(out),
            Action::Clone(actions) => put_nx(out, nx::CLONE, |out| {
                out.put_zeros(CLONE_PADDING);
                put_actions(out, actions);
            }),
            Action::Learn(learn) => learn.encode(out),
            Action::Conjunction { id, clause, of } => put_nx(out, nx::CONJUNCTION, |out| {
                // On the wire clauses count from zero.
                out.put_u8(clause.wrapping_sub(1));
                out.put_u8(*of);
                out.put_u32(*id);
            }),
            Action::DecTtl => put_of(out, of::DEC_TTL, |out| out.put_zeros(4)),
            Action::Meter(id) => put_of(out, of::METER, |out| out.put_u32(*id)),
            Action::Note(bytes) => put_nx(out, nx::NOTE, |out| out.put(bytes)),
            Action::Unknown(bytes) => out.put(bytes),
        }
    }
}

fn put_output(out: &mut Vec<u8>, port: Port, max_len: u16) {
    put_of(out, of::OUTPUT, |out| {
        out.put_u32(port.0);
        out.put_u16(max_len);
        out.put_zeros(6);
    });
}

fn put_controller(out: &mut Vec<u8>, controller: &Controller) {
    use controller_property as property;
    let put = |out: &mut Vec<u8>, kind: u16, body: &dyn Fn(&mut Vec<u8>)| {
        let start = out.len();
        out.put_u16(kind);
        out.put_u16(0);
        body(out);
        // The length leaves the padding out.
        out.patch_len(start + 2, start);
        out.pad8_since(start);
    };
    put_nx(out, nx::CONTROLLER2, |out| {
        out.put_zeros(6);
        if controller.max_len != u16::MAX {
            put(out, property::MAX_LEN, &|out| out.put_u16(controller.max_len));
        }
        if controller.id != 0 {
            put(out, property::ID, &|out| out.put_u16(controller.id));
        }
        if controller.reason != super::Reason::Action {
            put(out, property::REASON, &|out| out.put_u8(controller.reason.code()));
        }
        if !controller.userdata.is_empty() {
            put(out, property::USERDATA, &|out| out.put(&controller.userdata));
        }
        if controller.pause {
            put(out, property::PAUSE, &|_| {});
        }
        if let Some(meter) = controller.meter {
            put(out, property::METER, &|out| out.put_u32(meter));
        }
    });
}
