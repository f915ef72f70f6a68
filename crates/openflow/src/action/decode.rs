//! Decoding of actions from the wire.

use super::encode::{CLONE_PADDING, NICIRA, controller_property, nx, of};
use super::{Action, Controller, Ct, Learn, Reason, Subfield};
use crate::field::{Field, Tlv};
use crate::port::Port;
use crate::wire::{DecodeError, Decoded, Reader};

/// How deep actions may hold actions; Open vSwitch allows a few levels, we use two.
pub(super) const MAX_DEPTH: usize = 8;

/// Reads actions until the reader is empty.
pub(crate) fn decode_actions(reader: &mut Reader<'_>) -> Decoded<Vec<Action>> {
    decode_actions_at(reader, 0)
}

pub(super) fn decode_actions_at(reader: &mut Reader<'_>, depth: usize) -> Decoded<Vec<Action>> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep(MAX_DEPTH));
    }
    let mut actions = Vec::new();
    while !reader.is_empty() {
        actions.push(decode_action(reader, depth)?);
    }
    Ok(actions)
}

fn decode_action(reader: &mut Reader<'_>, depth: usize) -> Decoded<Action> {
    let mut whole = *reader;
    let kind = reader.u16("action type")?;
    let length = usize::from(reader.u16("action length")?);
    if length < 8 || !length.is_multiple_of(8) {
        return Err(DecodeError::BadLength { what: "action", length });
    }
    let mut body = reader.sub(length - 4, "action")?;
    let known = match kind {
        of::EXPERIMENTER => {
            let vendor = body.u32("action experimenter")?;
            if vendor == NICIRA { decode_nicira(&mut body, depth)? } else { None }
        }
        _ => decode_openflow(kind, &mut body)?,
    };
    match known {
        Some(action) => Ok(action),
        None => Ok(Action::Unknown(whole.take(length, "action")?.to_vec())),
    }
}

fn decode_openflow(kind: u16, body: &mut Reader<'_>) -> Decoded<Option<Action>> {
    Ok(match kind {
        of::OUTPUT => {
            let port = Port(body.u32("output port")?);
            let max_len = body.u16("output length")?;
            Some(if port == Port::CONTROLLER {
                Action::Controller(Box::new(Controller { max_len, ..Controller::default() }))
            } else {
                Action::Output(port)
            })
        }
        of::GROUP => Some(Action::Group(body.u32("group")?)),
        of::DEC_TTL => Some(Action::DecTtl),
        of::METER => Some(Action::Meter(body.u32("meter")?)),
        of::SET_FIELD => match Tlv::read(body)? {
            Tlv::Known { field, value, mask } if mask != 0 => Some(Action::SetField { field, value, mask }),
            _ => None,
        },
        of::COPY_FIELD => {
            let bits = body.u16("copied bits")?;
            let src_offset = body.u16("copy offset")?;
            let dst_offset = body.u16("copy offset")?;
            body.skip(2, "copy padding")?;
            read_move(body, bits, src_offset, dst_offset)?
        }
        _ => None,
    })
}

fn read_move(body: &mut Reader<'_>, bits: u16, src_offset: u16, dst_offset: u16) -> Decoded<Option<Action>> {
    let src = Field::read_subfield_header(body)?.and_then(|f| Subfield::from_parts(f, src_offset, bits));
    let dst = Field::read_subfield_header(body)?.and_then(|f| Subfield::from_parts(f, dst_offset, bits));
    Ok(src.zip(dst).map(|(src, dst)| Action::Move { src, dst }))
}

fn decode_nicira(body: &mut Reader<'_>, depth: usize) -> Decoded<Option<Action>> {
    let subtype = body.u16("action subtype")?;
    Ok(match subtype {
        nx::RESUBMIT => {
            let port = Port::from_of10(body.u16("resubmit port")?);
            Some(Action::Resubmit { in_port: Some(port).filter(|p| *p != Port::IN_PORT), table: None })
        }
        nx::RESUBMIT_TABLE => {
            let port = Port::from_of10(body.u16("resubmit port")?);
            let table = body.u8("resubmit table")?;
            let table = (table != 0xff).then_some(table);
            Some(Action::Resubmit { in_port: Some(port).filter(|p| *p != Port::IN_PORT), table })
        }
        nx::REG_MOVE => {
            let bits = body.u16("moved bits")?;
            let src_offset = body.u16("move offset")?;
            let dst_offset = body.u16("move offset")?;
            read_move(body, bits, src_offset, dst_offset)?
        }
        nx::REG_LOAD => {
            let packed = body.u16("load bits")?;
            let dst = Field::read_subfield_header(body)?.and_then(|f| Subfield::from_packed(f, packed));
            let value = body.u64("load value")?;
            dst.filter(|dst| dst.is_loadable()).map(|dst| Action::load(dst, value))
        }
        nx::NOTE => Some(Action::Note(body.rest().to_vec())),
        nx::OUTPUT_REG => {
            let packed = body.u16("output bits")?;
            let src = Field::read_subfield_header(body)?.and_then(|f| Subfield::from_packed(f, packed));
            let max_len = body.u16("output length")?;
            src.map(|src| Action::OutputField { src, max_len })
        }
        nx::LEARN => Learn::decode(body, false)?.map(|l| Action::Learn(Box::new(l))),
        nx::LEARN2 => Learn::decode(body, true)?.map(|l| Action::Learn(Box::new(l))),
        nx::CONTROLLER => {
            let max_len = body.u16("controller length")?;
            let id = body.u16("controller id")?;
            let reason = Reason::from_code(body.u8("controller reason")?);
            Some(Action::Controller(Box::new(Controller { max_len, id, reason, ..Controller::default() })))
        }
        nx::CONTROLLER2 => decode_controller(body)?.map(|c| Action::Controller(Box::new(c))),
        nx::CONJUNCTION => {
            let clause = body.u8("conjunction clause")?;
            let of = body.u8("conjunction clauses")?;
            let id = body.u32("conjunction id")?;
            Some(Action::Conjunction { id, clause: clause.wrapping_add(1), of })
        }
        nx::CT => Ct::decode(body, depth)?.map(|ct| Action::Ct(Box::new(ct))),
        nx::CLONE => {
            body.skip(CLONE_PADDING, "clone padding")?;
            Some(Action::Clone(decode_actions_at(body, depth + 1)?))
        }
        _ => None,
    })
}

fn decode_controller(body: &mut Reader<'_>) -> Decoded<Option<Controller>> {
    use controller_property as property;
    body.skip(6, "controller padding")?;
    let mut controller = Controller::default();
    while body.left() >= 4 {
        let kind = body.u16("controller property")?;
        let length = usize::from(body.u16("controller property")?);
        let Some(len) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "controller property", length });
        };
        let mut value = body.sub(len, "controller property")?;
        body.skip(((8 - length % 8) % 8).min(body.left()), "controller padding")?;
        match kind {
            property::MAX_LEN => controller.max_len = value.u16("controller length")?,
            property::ID => controller.id = value.u16("controller id")?,
            property::REASON => controller.reason = Reason::from_code(value.u8("controller reason")?),
            property::USERDATA => controller.userdata = value.rest().to_vec(),
            property::PAUSE => controller.pause = true,
            property::METER => controller.meter = Some(value.u32("controller meter")?),
            _ => return Ok(None),
        }
    }
    Ok(Some(controller))
}
