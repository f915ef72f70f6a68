//! What a flow does with a packet.

mod decode;
mod encode;
mod nested;
mod subfield;
mod text;

use std::net::IpAddr;

pub use subfield::Subfield;

use crate::field::Field;
use crate::port::Port;
use crate::wire::low_u16;

pub(crate) use decode::decode_actions;
pub(crate) use encode::put_actions;
pub(crate) use text::{parse_actions, write_actions};

/// One action; an empty list of them drops the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends the packet out of a port; to the controller see [`Action::Controller`].
    Output(Port),
    /// Sends the packet out of the port whose number a field holds.
    OutputField {
        /// Where the number stands.
        src: Subfield,
        /// How much of the packet goes to the controller, should that be the port.
        max_len: u16,
    },
    /// Sends the packet to the controller.
    Controller(Box<Controller>),
    /// Hands the packet to a group.
    Group(u32),
    /// Writes bits of a field (`load` and `mod_…` are spellings of it).
    SetField {
        /// The field.
        field: Field,
        /// Its new bits; those outside the mask are zero.
        value: u128,
        /// Which bits are written.
        mask: u128,
    },
    /// Copies bits from one field to another.
    Move {
        /// From here.
        src: Subfield,
        /// To here, as many bits.
        dst: Subfield,
    },
    /// Searches a table again, then goes on with the next action.
    Resubmit {
        /// The port to pretend the packet came in by.
        in_port: Option<Port>,
        /// The table, if not the current one.
        table: Option<u8>,
    },
    /// Sends the packet through the connection tracker.
    Ct(Box<Ct>),
    /// Adds a flow made from this packet.
    Learn(Box<Learn>),
    /// Says that one clause of a conjunctive match holds.
    Conjunction {
        /// The conjunction.
        id: u32,
        /// Which clause, from 1.
        clause: u8,
        /// How many clauses there are.
        of: u8,
    },
    /// Counts the time to live down by one.
    DecTtl,
    /// Applies a meter.
    Meter(u32),
    /// Does nothing; the bytes are for people. See [`Action::note`].
    Note(Vec<u8>),
    /// Anything else, header included.
    Unknown(Vec<u8>),
}

/// How the packet is sent to the controller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    /// How many bytes of the packet.
    pub max_len: u16,
    /// Which controller connection.
    pub id: u16,
    /// The reason given with it.
    pub reason: Reason,
    /// Bytes handed on with it.
    pub userdata: Vec<u8>,
    /// Whether the pipeline waits for the controller to go on.
    pub pause: bool,
    /// The meter that limits how many come.
    pub meter: Option<u32>,
}

impl Default for Controller {
    fn default() -> Self {
        Self { max_len: u16::MAX, id: 0, reason: Reason::Action, userdata: Vec::new(), pause: false, meter: None }
    }
}

impl Controller {
    /// Whether it says no more than an output to the controller port can.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Controller { max_len: self.max_len, ..Controller::default() }
    }
}

/// Why a packet comes to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// No flow matched.
    NoMatch,
    /// A flow said so.
    Action,
    /// The time to live ran out.
    InvalidTtl,
    /// An action set said so.
    ActionSet,
    /// A group said so.
    Group,
    /// A packet-out said so.
    PacketOut,
    /// Another one.
    Other(u8),
}

impl Reason {
    const NAMES: &[(Reason, u8, &str)] = &[
        (Reason::NoMatch, 0, "no_match"),
        (Reason::Action, 1, "action"),
        (Reason::InvalidTtl, 2, "invalid_ttl"),
        (Reason::ActionSet, 3, "action_set"),
        (Reason::Group, 4, "group"),
        (Reason::PacketOut, 5, "packet_out"),
    ];

    /// The reason with this number.
    pub fn from_code(code: u8) -> Reason {
        Self::NAMES.iter().find(|(_, n, _)| *n == code).map_or(Reason::Other(code), |(r, _, _)| *r)
    }

    /// Its number.
    pub fn code(self) -> u8 {
        match self {
            Reason::Other(code) => code,
            known => Self::NAMES.iter().find(|(r, _, _)| *r == known).map_or(0, |(_, n, _)| *n),
        }
    }
}

/// A trip through the connection tracker.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ct {
    /// Whether the connection is remembered.
    pub commit: bool,
    /// Whether an existing connection of the opposite direction is replaced.
    pub force: bool,
    /// The zone it is remembered in.
    pub zone: Zone,
    /// Where the packet goes on, tracked; the rest of the actions see it untracked.
    pub table: Option<u8>,
    /// Address translation.
    pub nat: Option<Nat>,
    /// Writes to the connection's mark and label.
    pub exec: Vec<Action>,
    /// Number of the port whose application level gateway looks on.
    pub alg: u16,
}

/// Which connection tracking zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// This one.
    Number(u16),
    /// The one whose number a field holds.
    Field(Subfield),
}

impl Default for Zone {
    fn default() -> Self {
        Zone::Number(0)
    }
}

/// Address translation in the connection tracker.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// Which side is rewritten for new connections; without it, established ones are translated as they were.
    pub side: Option<NatSide>,
    /// The address to use, or the first of a range.
    pub address: Option<IpAddr>,
    /// The last address of the range.
    pub last_address: Option<IpAddr>,
    /// The port to use, or the first of a range.
    pub port: Option<u16>,
    /// The last port of the range.
    pub last_port: Option<u16>,
    /// Whether the mapping outlives reboots.
    pub persistent: bool,
    /// Whether the port is chosen by hash.
    pub hash: bool,
    /// Whether the port is chosen at random.
    pub random: bool,
}

/// The side of a connection that is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatSide {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// A flow to be made from the packet at hand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// The table the flow goes to.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Seconds without a packet until it goes.
    pub idle_timeout: u16,
    /// Seconds until it goes.
    pub hard_timeout: u16,
    /// The idle timeout once a FIN or RST was seen.
    pub fin_idle_timeout: u16,
    /// The hard timeout once a FIN or RST was seen.
    pub fin_hard_timeout: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Whether the controller is told when it goes.
    pub send_flow_rem: bool,
    /// Whether it goes together with the flow that has this action (if no other has the same cookie).
    pub delete_learned: bool,
    /// Its match and actions.
    pub specs: Vec<LearnSpec>,
}

impl Default for Learn {
    fn default() -> Self {
        Self {
            table: 1,
            priority: crate::flow::DEFAULT_PRIORITY,
            idle_timeout: 0,
            hard_timeout: 0,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            cookie: 0,
            send_flow_rem: false,
            delete_learned: false,
            specs: Vec::new(),
        }
    }
}

/// One condition or action of a learned flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnSpec {
    /// The learned flow matches `dst` against the value.
    Match {
        /// The bits that are matched.
        dst: Subfield,
        /// Against what.
        src: LearnSource,
    },
    /// The learned flow writes the value to `dst`.
    Load {
        /// The bits that are written.
        dst: Subfield,
        /// With what.
        src: LearnSource,
    },
    /// The learned flow outputs to the port that these bits hold now.
    Output(Subfield),
}

/// Where a learned flow takes a value from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// From the packet at hand.
    Field(Subfield),
    /// It is this.
    Value(u128),
}

impl Action {
    /// `set_field:value->field`, all bits of it.
    pub fn set(field: Field, value: impl Into<u128>) -> Action {
        Action::set_masked(field, value, field.full_mask())
    }

    /// `set_field:value/mask->field`.
    pub fn set_masked(field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> Action {
        let mask = mask.into() & field.full_mask();
        Action::SetField { field, value: value.into() & mask, mask }
    }

    /// `load:value->field[lo..hi]`.
    pub fn load(dst: Subfield, value: impl Into<u128>) -> Action {
        if dst == Subfield::whole(Field::InPort) {
            return Action::set(Field::InPort, Port::from_of10(low_u16(value.into())).0);
        }
        Action::set_masked(dst.field(), value.into() << dst.offset(), dst.mask())
    }

    /// `resubmit(,table)`.
    pub fn resubmit(table: u8) -> Action {
        Action::Resubmit { in_port: None, table: Some(table) }
    }

    /// `output:field[]`.
    pub fn output_field(src: Subfield) -> Action {
        Action::OutputField { src, max_len: u16::MAX }
    }

    /// A note, padded with zeros to the length it has on the wire.
    pub fn note(mut bytes: Vec<u8>) -> Action {
        while bytes.len() % 8 != 6 {
            bytes.push(0);
        }
        Action::Note(bytes)
    }

    /// Whether it, or an action inside it, is not known to this crate.
    pub fn is_foreign(&self) -> bool {
        match self {
            Action::Unknown(_) => true,
            Action::Ct(ct) => ct.exec.iter().any(Action::is_foreign),
            _ => false,
        }
    }
}
