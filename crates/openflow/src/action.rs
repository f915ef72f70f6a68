//! Actions of flows and buckets (`struct ofp_action_header`), with the Nicira extensions (`NXAST_*`).

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
        /// The bits with the port number.
        src: Subfield,
        /// Bytes of the packet to send, if the port is the controller.
        max_len: u16,
    },
    /// Sends the packet to the controller.
    Controller(Box<Controller>),
    /// Hands the packet to the group with this id (OFPAT_GROUP).
    Group(u32),
    /// Writes bits of a field (OFPAT_SET_FIELD; `load` and `mod_…` are spellings of it).
    SetField {
        /// The field to write.
        field: Field,
        /// Its new bits; those outside the mask are zero.
        value: u128,
        /// The bits that are written.
        mask: u128,
    },
    /// Copies bits from one field to another (NXAST_REG_MOVE).
    Move {
        /// The bits to copy.
        src: Subfield,
        /// The destination, with as many bits as `src`.
        dst: Subfield,
    },
    /// Searches a table again, then continues with the next action (NXAST_RESUBMIT_TABLE).
    Resubmit {
        /// `in_port` to match in the lookup, if not the packet's.
        in_port: Option<Port>,
        /// The table, if not the current one.
        table: Option<u8>,
    },
    /// Sends the packet through the connection tracker (NXAST_CT).
    Ct(Box<Ct>),
    /// Runs actions on a copy of the packet; the following actions see the packet as it was (NXAST_CLONE).
    Clone(Vec<Action>),
    /// Adds a flow made from this packet (NXAST_LEARN).
    Learn(Box<Learn>),
    /// Marks one clause of a conjunctive match as true (NXAST_CONJUNCTION).
    Conjunction {
        /// The `conj_id` to set once all clauses match.
        id: u32,
        /// Number of this clause, from 1.
        clause: u8,
        /// Number of clauses of the conjunction.
        of: u8,
    },
    /// Decrements the TTL (OFPAT_DEC_NW_TTL).
    DecTtl,
    /// Applies the meter with this id (OFPAT_METER).
    Meter(u32),
    /// Does nothing; the bytes are a comment. See [`Action::note`].
    Note(Vec<u8>),
    /// An action that this crate does not know, header included.
    Unknown(Vec<u8>),
}

/// Sends a packet to the controller (OFPAT_OUTPUT, or NXAST_CONTROLLER2 if it has more than a length).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    /// Maximum number of bytes of the packet.
    pub max_len: u16,
    /// Id of the controller connection.
    pub id: u16,
    /// Reason in the packet-in.
    pub reason: Reason,
    /// Opaque bytes for the packet-in.
    pub userdata: Vec<u8>,
    /// Whether the pipeline pauses until the controller resumes it.
    pub pause: bool,
    /// Meter that limits the rate of packet-ins.
    pub meter: Option<u32>,
}

impl Default for Controller {
    fn default() -> Self {
        Self { max_len: u16::MAX, id: 0, reason: Reason::Action, userdata: Vec::new(), pause: false, meter: None }
    }
}

impl Controller {
    /// Whether an output to the controller port can express it.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Controller { max_len: self.max_len, ..Controller::default() }
    }
}

/// Reason of a packet-in (OFPR_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Table miss: no flow matched.
    NoMatch,
    /// An output action of a flow.
    Action,
    /// The TTL of the packet expired.
    InvalidTtl,
    /// An output action of an action set.
    ActionSet,
    /// An output action of a group bucket.
    Group,
    /// An output action of a packet-out.
    PacketOut,
    /// A number that this crate does not know.
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

    /// The number on the wire (OFPR_*).
    pub fn code(self) -> u8 {
        match self {
            Reason::Other(code) => code,
            known => Self::NAMES.iter().find(|(r, _, _)| *r == known).map_or(0, |(_, n, _)| *n),
        }
    }
}

/// The `ct` action (`struct nx_action_conntrack`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ct {
    /// Whether the connection is committed to the tracker.
    pub commit: bool,
    /// Whether an existing connection of the opposite direction is replaced.
    pub force: bool,
    /// The zone of the connection.
    pub zone: Zone,
    /// The table where a tracked copy of the packet continues; later actions see it untracked.
    pub table: Option<u8>,
    /// The `nat` argument: whether and how to translate.
    pub nat: Option<Nat>,
    /// Writes to `ct_mark` and `ct_label`.
    pub exec: Vec<Action>,
    /// Port number of the application level gateway, such as 21 for FTP; 0 for none.
    pub alg: u16,
}

/// A connection tracking zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// The zone with this number.
    Number(u16),
    /// The zone number is in a field of the packet.
    Field(Subfield),
}

impl Default for Zone {
    fn default() -> Self {
        Zone::Number(0)
    }
}

/// NAT in the connection tracker (`struct nx_action_nat`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// The side to rewrite for new connections; `None` applies the NAT of established ones.
    pub side: Option<NatSide>,
    /// The address to use, or the first of a range.
    pub address: Option<IpAddr>,
    /// The last address of the range.
    pub last_address: Option<IpAddr>,
    /// The port to use, or the first of a range.
    pub port: Option<u16>,
    /// The last port of the range.
    pub last_port: Option<u16>,
    /// Whether the mapping survives reboots.
    pub persistent: bool,
    /// Whether the port is chosen by hash.
    pub hash: bool,
    /// Whether the port is chosen at random.
    pub random: bool,
}

/// The side of a connection that is rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatSide {
    /// SNAT: rewrites the source.
    Src,
    /// DNAT: rewrites the destination.
    Dst,
}

/// A flow to learn from the packet (`struct nx_action_learn`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// Table of the learned flow.
    pub table: u8,
    /// Priority of the learned flow.
    pub priority: u16,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Idle timeout in seconds after a FIN or RST.
    pub fin_idle_timeout: u16,
    /// Hard timeout in seconds after a FIN or RST.
    pub fin_hard_timeout: u16,
    /// Cookie of the learned flow.
    pub cookie: u64,
    /// Whether the switch sends a flow-removed message for it.
    pub send_flow_rem: bool,
    /// Whether it is removed together with the last flow that has a learn action with this cookie.
    pub delete_learned: bool,
    /// With this many flows of the cookie in the table, no flow is added or changed; 0 for no limit.
    pub limit: u32,
    /// Match and actions of the learned flow.
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
            limit: 0,
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
        /// The value to match.
        src: LearnSource,
    },
    /// The learned flow writes the value to `dst`.
    Load {
        /// The bits that are written.
        dst: Subfield,
        /// The value to write.
        src: LearnSource,
    },
    /// The learned flow outputs to the port that these bits hold now.
    Output(Subfield),
}

/// The source of a value in a learned flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// These bits of the packet.
    Field(Subfield),
    /// A constant; only as many bits as `dst` has count.
    Value(u128),
}

impl Action {
    /// `set_field:value->field`, all bits of it.
    pub fn set(field: Field, value: impl Into<u128>) -> Action {
        Action::set_masked(field, value, field.full_mask())
    }

    /// `set_field:value/mask->field`; bits of the value outside the mask are cleared.
    pub fn set_masked(field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> Action {
        let mask = mask.into() & field.full_mask();
        Action::SetField { field, value: value.into() & mask, mask }
    }

    /// `load:value->field[lo..hi]`, which is a masked `set_field` on the wire.
    pub fn load(dst: Subfield, value: impl Into<u128>) -> Action {
        if dst == Subfield::whole(Field::InPort) {
            return Action::set(Field::InPort, Port::from_of10(low_u16(value.into())).0);
        }
        Action::set_masked(dst.field(), value.into() << dst.offset(), dst.mask())
    }

    /// `resubmit(,table)`: a lookup in another table.
    pub fn resubmit(table: u8) -> Action {
        Action::Resubmit { in_port: None, table: Some(table) }
    }

    /// `output:field[]`: outputs to the port in these bits.
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

    /// Whether this crate does not know it, or an action inside it.
    pub fn is_foreign(&self) -> bool {
        match self {
            Action::Unknown(_) => true,
            Action::Ct(ct) => ct.exec.iter().any(Action::is_foreign),
            Action::Clone(actions) => actions.iter().any(Action::is_foreign),
            _ => false,
        }
    }
}
