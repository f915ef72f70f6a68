//! Strategies for arbitrary flows and groups that a switch accepts, for property tests.

mod messages;

pub use messages::messages;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::action::{Action, Controller, Ct, Learn, LearnSource, LearnSpec, Nat, NatSide, Reason, Subfield, Zone};
use crate::field::{Field, Format};
use crate::flow::{Flow, FlowFlags};
use crate::group::{Bucket, Group, GroupType, Selection};
use crate::matching::{Match, eth_type, ip_proto};
use crate::port::Port;

/// Groups that arbitrary flows may point to have numbers from 1 to this.
pub const GROUPS: u32 = 8;
/// Meters that arbitrary flows may use have numbers from 1 to this.
pub const METERS: u32 = 4;
/// Tables of arbitrary flows are numbered below this.
pub const TABLES: u8 = 253;

/// What kind of packet a flow is about; decides which fields it can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Any,
    Other(u16),
    Arp,
    Ip { v6: bool, proto: Option<u8> },
    Nd { advert: bool },
}

impl Kind {
    fn strategy() -> impl Strategy<Value = Kind> {
        prop_oneof![
            2 => Just(Kind::Any),
            1 => (0x600u16..0x7fff).prop_filter("types with a meaning of their own", |t| *t != 0x800 && *t != 0x806).prop_map(Kind::Other),
            2 => Just(Kind::Arp),
            2 => Just(Kind::Ip { v6: false, proto: None }),
            1 => Just(Kind::Ip { v6: true, proto: None }),
            1 => any::<bool>().prop_map(|v6| Kind::Ip { v6, proto: Some(47) }),
            5 => (any::<bool>(), select(&[ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP][..]))
                .prop_map(|(v6, proto)| Kind::Ip { v6, proto: Some(proto) }),
            1 => Just(Kind::Ip { v6: false, proto: Some(ip_proto::ICMP) }),
            1 => Just(Kind::Ip { v6: true, proto: Some(ip_proto::ICMPV6) }),
            1 => any::<bool>().prop_map(|advert| Kind::Nd { advert }),
        ]
    }

    fn base(self) -> Match {
        let ip = |v6| if v6 { Match::ipv6() } else { Match::ip() };
        match self {
            Kind::Any => Match::any(),
            Kind::Other(eth) => Match::any().with(Field::EthType, eth),
            Kind::Arp => Match::any().with(Field::EthType, eth_type::ARP),
            Kind::Ip { v6, proto: None } => ip(v6),
            Kind::Ip { v6, proto: Some(proto) } => ip(v6).with(Field::IpProto, proto),
            Kind::Nd { advert } => Match::ipv6()
                .with(Field::IpProto, ip_proto::ICMPV6)
                .with(Field::Icmpv6Type, if advert { 136u8 } else { 135 }),
        }
    }

    fn is_ip(self) -> bool {
        matches!(self, Kind::Ip { .. } | Kind::Nd { .. })
    }

    fn is_v6(self) -> bool {
        matches!(self, Kind::Ip { v6: true, .. } | Kind::Nd { .. })
    }

    /// Fields that a match about such packets can name beside those of `base`.
    fn match_fields(self) -> Vec<Field> {
        let base = self.base().with_masked(Field::CtState, 0x21u8, 0x21u8).with(Field::CtNwProto, 6u8);
        let taken = [Field::EthType, Field::IpProto, Field::Icmpv6Type];
        Field::ALL
            .iter()
            .copied()
            .filter(|f| base.clone().with(*f, f.full_mask()).missing_requirement().is_none())
            .filter(|f| !taken.contains(f) && f.registers().is_none())
            // The switch computes these itself, or treats a tag and its absence in ways of their own.
            .filter(|f| !matches!(f, Field::RecircId | Field::DpHash | Field::VlanPcp | Field::ActsetOutput))
            .collect()
    }

    /// Fields that an action on such packets can write.
    fn set_fields(self) -> Vec<Field> {
        let read_only = [
            Field::InPort,
            Field::ConjId,
            Field::CtState,
            Field::CtZone,
            Field::CtMark,
            Field::CtLabel,
            Field::IpFrag,
            Field::TcpFlags,
            Field::VlanVid,
            Field::TunFlags,
        ];
        let ct_tuple = Field::CtNwSrc..=Field::CtTpDst;
        self.match_fields()
            .into_iter()
            .filter(|f| !read_only.contains(f) && !ct_tuple.contains(f))
            .chain((0..8).filter_map(Field::xreg))
            .chain((0..4).filter_map(Field::xxreg))
            .collect()
    }
}

/// A value and a mask for a field.
fn masked(field: Field) -> BoxedStrategy<(u128, u128)> {
    let full = field.full_mask();
    let bits = u32::from(field.spec().bits);
    match (field, field.spec().format) {
        (Field::IpFrag, _) => select(&[(0u128, 3u128), (1, 1), (1, 3), (3, 3), (0, 2)][..]).boxed(),
        (Field::VlanVid, _) => prop_oneof![
            Just((0, 0x1fff)),
            Just((0x1000, 0x1000)),
            (0u128..0x1000).prop_map(|vid| (vid | 0x1000, 0x1fff)),
        ]
        .boxed(),
        // ovs-ofctl forgets a protocol that is zero.
        (Field::CtNwProto, _) => (1u128..=full).prop_map(move |proto| (proto, full)).boxed(),
        (_, Format::Port) => prop_oneof![4 => 1u32..0xff00, 1 => Just(Port::LOCAL.0)]
            .prop_map(move |port| (u128::from(port), full))
            .boxed(),
        _ => {
            let prefix = (1..=bits).prop_map(move |len| full << (bits - len) & full);
            let mask = if field.spec().format == Format::Ipv6 {
                // ovs-ofctl reads no other masks of IPv6 addresses.
                prefix.boxed()
            } else if field.spec().maskable {
                prop_oneof![
                    3 => Just(full),
                    1 => any::<u128>().prop_map(move |m| if m & full == 0 { full } else { m & full }),
                    2 => prefix,
                ]
                .boxed()
            } else {
                Just(full).boxed()
            };
            // The switch refuses to commit packets that are known to be invalid.
            let invalid = if field == Field::CtState { 0x10 } else { 0 };
            (any::<u128>(), mask).prop_map(move |(value, mask)| (value & mask & !invalid, mask)).boxed()
        }
    }
}

fn matches_of(kind: Kind) -> impl Strategy<Value = Match> {
    let fields = kind.match_fields();
    subsequence(fields.clone(), 0..=fields.len().min(6)).prop_flat_map(move |chosen| {
        let values: Vec<_> = chosen.iter().map(|f| masked(*f)).collect();
        values.prop_map(move |values| {
            let mut matches = kind.base();
            for (field, (value, mask)) in chosen.iter().zip(values) {
                matches.set(*field, value, mask);
            }
            // What needs a tracked packet, or one of a known protocol, brings it along.
            if (Field::CtNwSrc..=Field::CtTpDst).any_in(&matches) {
                matches.set(Field::CtState, 0x21, 0x21);
            }
            if [Field::CtTpSrc, Field::CtTpDst].iter().any(|f| matches.get(*f).is_some()) {
                matches.set(Field::CtNwProto, 6, 0xff);
            }
            if matches!(kind, Kind::Nd { .. } | Kind::Ip { proto: Some(_), .. }) {
                let later = matches.get(Field::IpFrag).is_some_and(|(value, _)| value & 2 != 0);
                if later {
                    matches.set(Field::IpFrag, 0, 3);
                }
            }
            if matches!(kind, Kind::Nd { .. }) {
                matches.set(Field::Icmpv6Code, 0, 0);
            }
            matches
        })
    })
}

trait AnyIn {
    fn any_in(self, matches: &Match) -> bool;
}

impl AnyIn for std::ops::RangeInclusive<Field> {
    fn any_in(self, matches: &Match) -> bool {
        matches.fields().any(|(f, _, _)| self.contains(&f))
    }
}

fn set_field(kind: Kind) -> impl Strategy<Value = Action> {
    select(kind.set_fields())
        .prop_flat_map(|field| masked(field).prop_map(move |(value, mask)| Action::SetField { field, value, mask }))
}

/// A run of bits of a register.
fn register_bits() -> impl Strategy<Value = Subfield> {
    (0u8..16, 0u8..32, 0u8..32)
        .prop_filter_map("no such register", |(reg, a, b)| Subfield::new(Field::reg(reg)?, a.min(b), a.max(b)))
}

/// Bits of two registers, as many of each.
fn register_pair() -> impl Strategy<Value = (Subfield, Subfield)> {
    (register_bits(), 0u8..16, 0u8..32).prop_filter_map("no such register", |(src, reg, shift)| {
        let lo = shift.min(32 - src.bits());
        Some((src, Subfield::new(Field::reg(reg)?, lo, lo + src.bits() - 1)?))
    })
}

fn userdata() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn controller() -> impl Strategy<Value = Action> {
    let reasons =
        [Reason::NoMatch, Reason::Action, Reason::InvalidTtl, Reason::ActionSet, Reason::Group, Reason::PacketOut];
    let meter = prop::option::of(1..=METERS);
    (any::<u16>(), any::<u16>(), select(reasons.to_vec()), userdata(), any::<bool>(), meter).prop_map(
        |(max_len, id, reason, userdata, pause, meter)| {
            Action::Controller(Box::new(Controller { max_len, id, reason, userdata, pause, meter }))
        },
    )
}

fn nat(v6: bool) -> impl Strategy<Value = Nat> {
    let address = (any::<u32>(), any::<u128>()).prop_map(move |(v4, wide)| -> IpAddr {
        if v6 { Ipv6Addr::from(wide).into() } else { Ipv4Addr::from(v4).into() }
    });
    let addresses = prop::option::of((address.clone(), prop::option::of(address)));
    let ports = prop::option::of((1u16.., prop::option::of(1u16..)));
    let side = prop::option::of(select(&[NatSide::Src, NatSide::Dst][..]));
    (side, addresses, ports, any::<bool>(), 0..3).prop_map(|(side, addresses, ports, persistent, choice)| {
        let (Some(side), Some((a, b))) = (side, addresses) else {
            return Nat { side, ..Nat::default() };
        };
        let (a, b) = b.map_or((a, None), |b: IpAddr| if a == b { (a, None) } else { (a.min(b), Some(a.max(b))) });
        let (p, q) = ports.map_or((None, None), |(p, q)| match q {
            Some(q) if q != p => (Some(p.min(q)), Some(p.max(q))),
            _ => (Some(p), None),
        });
        Nat {
            side: Some(side),
            address: Some(a),
            last_address: b,
            port: p,
            last_port: q,
            persistent,
            hash: choice == 1,
            random: choice == 2,
        }
    })
}

fn ct_exec() -> impl Strategy<Value = Action> {
    let field = select(&[Field::CtMark, Field::CtLabel][..]);
    prop_oneof![
        3 => field.prop_flat_map(|f| masked(f).prop_map(move |(value, mask)| Action::SetField { field: f, value, mask })),
        1 => (0u8..16).prop_filter_map("no such register", |reg| {
            Some(Action::Move { src: Subfield::whole(Field::reg(reg)?), dst: Subfield::whole(Field::CtMark) })
        }),
    ]
}

fn ct(v6: bool) -> impl Strategy<Value = Action> {
    let zone = prop_oneof![
        4 => any::<u16>().prop_map(Zone::Number),
        1 => (0u8..16).prop_filter_map("no such register", |reg| Some(Zone::Field(Subfield::new(Field::reg(reg)?, 0, 15)?))),
    ];
    let table = prop::option::of(0..TABLES);
    let nat = prop::option::of(nat(v6));
    (any::<bool>(), any::<bool>(), zone, table, nat, vec(ct_exec(), 0..3)).prop_map(
        |(commit, force, zone, table, nat, exec)| {
            // Only a commit can choose an address, write to the connection or replace it.
            let nat = if commit { nat } else { nat.map(|_| Nat::default()) };
            let exec = if commit { exec } else { Vec::new() };
            Action::Ct(Box::new(Ct { commit, force: commit && force, zone, table, nat, exec, alg: 0 }))
        },
    )
}

/// What a learned flow can match of such packets, prerequisites first.
fn learn_match(kind: Kind) -> Vec<LearnSpec> {
    let value =
        |field: Field, value: u128| LearnSpec::Match { dst: Subfield::whole(field), src: LearnSource::Value(value) };
    let copy = |field: Field| LearnSpec::Match {
        dst: Subfield::whole(field),
        src: LearnSource::Field(Subfield::whole(field)),
    };
    let (src, dst) = match kind {
        Kind::Ip { v6: false, proto: Some(p) } if p == ip_proto::TCP || p == ip_proto::UDP => {
            (Field::Ipv4Src, Field::Ipv4Dst)
        }
        Kind::Ip { v6: true, proto: Some(p) } if p == ip_proto::TCP || p == ip_proto::UDP => {
            (Field::Ipv6Src, Field::Ipv6Dst)
        }
        _ => return vec![copy(Field::EthSrc), copy(Field::InPort)],
    };
    let Kind::Ip { proto: Some(proto), v6 } = kind else { return Vec::new() };
    let port = if proto == ip_proto::TCP { Field::TcpDst } else { Field::UdpDst };
    let eth = if v6 { eth_type::IPV6 } else { eth_type::IPV4 };
    vec![
        value(Field::EthType, u128::from(eth)),
        value(Field::IpProto, u128::from(proto)),
        copy(port),
        copy(dst),
        LearnSpec::Match { dst: Subfield::whole(src), src: LearnSource::Field(Subfield::whole(dst)) },
    ]
}

fn learn(kind: Kind) -> impl Strategy<Value = Action> {
    let load = prop_oneof![
        register_pair().prop_map(|(src, dst)| LearnSpec::Load { dst, src: LearnSource::Field(src) }),
        (register_bits(), any::<u32>()).prop_map(|(dst, value)| {
            LearnSpec::Load { dst, src: LearnSource::Value(u128::from(value) & dst.mask() >> dst.offset()) }
        }),
        Just(LearnSpec::Output(Subfield::whole(Field::InPort))),
    ];
    let timeouts = (any::<u16>(), any::<u16>(), any::<u16>(), any::<u16>());
    let flags = (any::<bool>(), any::<bool>());
    let limit = prop_oneof![Just(0), any::<u32>()];
    (0..TABLES, any::<u16>(), timeouts, any::<u64>(), flags, limit, vec(load, 0..4)).prop_map(
        move |(table, priority, timeouts, cookie, (send_flow_rem, delete_learned), limit, loads)| {
            let mut specs = learn_match(kind);
            specs.extend(loads);
            Action::Learn(Box::new(Learn {
                table,
                priority,
                idle_timeout: timeouts.0,
                hard_timeout: timeouts.1,
                fin_idle_timeout: timeouts.2,
                fin_hard_timeout: timeouts.3,
                cookie: cookie.min(u64::MAX - 1),
                send_flow_rem,
                delete_learned,
                limit,
                specs,
            }))
        },
    )
}

fn action(kind: Kind) -> BoxedStrategy<Action> {
    let reserved = [Port::IN_PORT, Port::NORMAL, Port::FLOOD, Port::ALL, Port::LOCAL];
    let any_packet = prop_oneof![
        2 => prop_oneof![3 => (1u32..0xff00).prop_map(Port), 1 => select(reserved.to_vec())].prop_map(Action::Output),
        1 => register_bits().prop_map(Action::output_field),
        1 => controller(),
        1 => (1..=GROUPS).prop_map(Action::Group),
        4 => set_field(kind),
        2 => register_pair().prop_map(|(src, dst)| Action::Move { src, dst }),
        1 => Just(Action::Move { src: Subfield::whole(Field::EthSrc), dst: Subfield::whole(Field::EthDst) }),
        2 => (prop::option::of((1u32..0xff00).prop_map(Port)), 0..TABLES)
            .prop_map(|(in_port, table)| Action::Resubmit { in_port, table: Some(table) }),
        1 => (1u32..0xff00).prop_map(|port| Action::Resubmit { in_port: Some(Port(port)), table: None }),
        1 => learn(kind),
        1 => userdata().prop_map(Action::note),
    ];
    if kind.is_ip() {
        let v6 = kind.is_v6();
        let copied = vec(ct(v6), 1..3).prop_map(Action::Clone);
        prop_oneof![6 => any_packet, 1 => Just(Action::DecTtl), 3 => ct(v6), 1 => copied].boxed()
    } else {
        any_packet.boxed()
    }
}

fn actions(kind: Kind) -> impl Strategy<Value = Vec<Action>> {
    let conjunction = (any::<u32>(), 2u8..=64, 0u8..64).prop_map(|(id, of, clause)| Action::Conjunction {
        id,
        clause: clause % of + 1,
        of,
    });
    prop_oneof![
        8 => (prop::option::weighted(0.1, 1..=METERS), vec(action(kind), 0..5)).prop_map(|(meter, mut actions)| {
            if let Some(meter) = meter {
                actions.insert(0, Action::Meter(meter));
            }
            actions
        }),
        2 => vec(conjunction, 1..4),
    ]
}

/// A flow that a switch with groups 1 to [`GROUPS`] and meters 1 to [`METERS`] accepts.
pub fn flow() -> impl Strategy<Value = Flow> {
    let flags =
        prop_oneof![3 => Just(FlowFlags::empty()), 1 => Just(FlowFlags::SEND_FLOW_REM), 1 => Just(FlowFlags::KEPT)];
    Kind::strategy().prop_flat_map(move |kind| {
        (
            0..TABLES,
            any::<u16>(),
            prop_oneof![Just(0), 0..u64::MAX],
            (any::<u16>(), any::<u16>(), any::<u16>()),
            flags.clone(),
            (matches_of(kind), actions(kind), prop::option::weighted(0.2, 0..TABLES)),
        )
            .prop_map(|(table, priority, cookie, times, flags, (matches, actions, goto))| {
                let conjunctive = actions.iter().any(|a| matches!(a, Action::Conjunction { .. }));
                let goto_table = goto.filter(|t| *t > table && !conjunctive);
                Flow {
                    cookie,
                    idle_timeout: times.0,
                    hard_timeout: times.1,
                    importance: times.2,
                    flags,
                    matches,
                    actions,
                    goto_table,
                    ..Flow::at(table, priority)
                }
            })
    })
}

/// A group that a switch accepts; its buckets point to no other group.
pub fn group() -> impl Strategy<Value = Group> {
    let plain = action(Kind::Any).prop_filter("a group that points to a group, or learns", |a| {
        !matches!(a, Action::Group(_) | Action::Learn(_))
    });
    let bucket = (vec(plain, 0..4), 1u16..1000).prop_map(|(actions, weight)| (actions, weight));
    let selection = prop_oneof![
        1 => Just(None),
        2 => Just(Some(Selection { method: "dp_hash".to_owned(), ..Selection::default() })),
        1 => Just(Some(Selection {
            method: "hash".to_owned(),
            parameter: 7,
            fields: Match::any().with_masked(Field::EthSrc, 0xff00u32, 0xff00u32).with(Field::EthDst, Field::EthDst.full_mask()),
        })),
    ];
    (1u32..10_000, any::<bool>(), selection, vec(bucket, 0..12)).prop_map(|(id, is_select, selection, buckets)| Group {
        id,
        kind: if is_select { GroupType::Select } else { GroupType::All },
        selection: selection.filter(|_| is_select),
        buckets: (0..)
            .zip(buckets)
            .map(|(id, (actions, weight))| Bucket {
                id,
                actions,
                weight: is_select.then_some(weight),
                ..Bucket::default()
            })
            .collect(),
        unknown: Vec::new(),
    })
}
