//! Random flows over few fields and values, random conversations over few addresses: both must give the same output.

use std::cell::RefCell;
use std::fmt::Write;

use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};

use crate::compare::Twins;
use crate::conversation::{ACK, FIN, History, Next, RST, SYN};

/// The last table; those before it are searched in this order, mostly.
const LAST: u8 = 6;
/// The table where flows are learned.
const LEARNED: u8 = 7;
const PORTS: [u32; 4] = [1, 2, 3, 4];
const V4: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.1.1"];
const V6: [&str; 2] = ["fd00::1", "fd00::2"];
const TCP_PORTS: [u16; 3] = [80, 81, 1000];
const MACS: [&str; 3] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Any,
    Arp,
    Ip(&'static str),
    Ipv6(&'static str),
}

impl Kind {
    fn v4(self) -> bool {
        matches!(self, Kind::Ip(_))
    }

    fn ip(self) -> bool {
        matches!(self, Kind::Ip(_) | Kind::Ipv6(_))
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Kind::Any => None,
            Kind::Arp => Some("arp"),
            Kind::Ip(name) | Kind::Ipv6(name) => Some(name),
        }
    }

    fn ports(self) -> Option<&'static str> {
        ["tcp", "udp", "sctp"]
            .into_iter()
            .find(|proto| self.name().is_some_and(|name| name.trim_end_matches('6') == *proto))
    }

    fn addresses(self) -> &'static [&'static str] {
        if self.v4() { &V4 } else { &V6 }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Any),
        1 => Just(Kind::Arp),
        4 => Just(Kind::Ip("ip")),
        4 => Just(Kind::Ip("tcp")),
        3 => Just(Kind::Ip("udp")),
        1 => Just(Kind::Ip("icmp")),
        1 => Just(Kind::Ip("sctp")),
        1 => select(&[Kind::Ipv6("ipv6"), Kind::Ipv6("tcp6"), Kind::Ipv6("udp6")][..]),
    ]
}

fn one<T: std::fmt::Display + Clone + std::fmt::Debug + 'static>(values: &[T]) -> BoxedStrategy<String> {
    select(values.to_vec()).prop_map(|value| value.to_string()).boxed()
}

fn prefixed(prefix: &str, values: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let prefix = prefix.to_owned();
    values.prop_map(move |value| format!("{prefix}{value}")).boxed()
}

/// Conditions of a flow beside its kind.
fn conditions(kind: Kind, committing: bool) -> BoxedStrategy<String> {
    let mut fields = vec![
        prefixed("in_port=", one(&PORTS)),
        prefixed("reg0=", one(&["0", "1", "2", "1/1", "0/1", "2/2"])),
        prefixed("reg1=", one(&["0", "1", "0x20/0xf0"])),
        prefixed("dl_dst=", one(&MACS)),
        prefixed("dl_src=", one(&["02:00:00:00:00:01", "02:00:00:00:00:00/ff:ff:ff:ff:ff:fe"])),
    ];
    if kind == Kind::Arp {
        fields.extend([prefixed("arp_op=", one(&[1, 2])), prefixed("arp_tpa=", one(&V4))]);
    }
    if kind.v4() {
        let masked = ["10.0.0.1", "10.0.0.0/24", "10.0.0.0/31", "10.0.1.1", "0.0.0.1/0.0.0.1"];
        fields.extend([prefixed("nw_src=", one(&masked)), prefixed("nw_dst=", one(&masked))]);
    }
    if matches!(kind, Kind::Ipv6(_)) {
        fields.push(prefixed("ipv6_dst=", one(&["fd00::1", "fd00::/127"])));
    }
    if kind.ip() {
        let mut states =
            vec!["+new+trk", "-new+trk", "+est+trk", "+rpl+trk", "-rpl+trk", "+rel+trk", "-trk", "+snat", "+dnat"];
        if !committing {
            states.push("+inv+trk");
        }
        fields.extend([
            prefixed("ct_state=", one(&states)),
            prefixed("ct_state=", one(&states)),
            prefixed("ct_mark=", one(&["0", "1", "1/1", "0x10/0xf0"])),
            prefixed(
                "ct_label=",
                one(&["0", "0x2", "0x80000000000000000000000000000000/0x80000000000000000000000000000000"]),
            ),
            prefixed("ct_zone=", one(&[0, 5, 6])),
            prefixed("nw_ttl=", one(&[1, 63, 64])),
        ]);
    }
    if kind.ports().is_some() {
        fields.extend([prefixed("tp_dst=", one(&TCP_PORTS)), prefixed("tp_src=", one(&["80", "0x50/0xfff0", "1000"]))]);
    }
    let subset: Vec<_> = fields.into_iter().map(|field| prop::option::weighted(0.12, field)).collect();
    subset
        .prop_map(move |chosen| {
            let mut all: Vec<String> = kind.name().map(str::to_owned).into_iter().collect();
            for condition in chosen.into_iter().flatten() {
                let key = condition.split('=').next().unwrap().to_owned() + "=";
                if !all.iter().any(|other| other.starts_with(&key)) {
                    all.push(condition);
                }
            }
            all.join(",")
        })
        .boxed()
}

fn ct(kind: Kind, table: u8, commit: bool) -> BoxedStrategy<String> {
    // Addresses of their own: a translation to what is there already makes the switch fall over sooner or later.
    let nat = prop_oneof![
        4 => Just(String::new()),
        4 => Just(",nat".to_owned()),
        3 => (any::<bool>(), prop::option::of(select(vec![80u16, 1000, 2000]))).prop_map(move |(dst, port)| {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let side = if dst { "dst" } else { "src" };
            let address = match (kind.v4(), port.is_empty()) {
                (true, _) => format!("10.9.ZONE.{}", u8::from(dst)),
                (false, true) => format!("fd00:9::ZONE:{}", u8::from(dst)),
                (false, false) => format!("[fd00:9::ZONE:{}]", u8::from(dst)),
            };
            format!(",nat({side}={address}{port})")
        }),
    ];
    let exec = prop_oneof![
        3 => Just(""),
        1 => Just(",exec(set_field:0x1->ct_mark)"),
        1 => Just(",exec(set_field:0x10/0xf0->ct_mark,set_field:0x2/0xf->ct_label)"),
        1 => Just(",exec(load:0x1->NXM_NX_CT_LABEL[127],move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3])"),
    ];
    let target = prop_oneof![6 => (table + 1..=LAST).prop_map(Some), 1 => Just(None), 1 => Just(Some(table))];
    let zone = prop_oneof![3 => Just("5"), 2 => Just("6"), 1 => Just("NXM_NX_REG0[0..15]")];
    (nat, exec, target, zone, prop::bool::weighted(0.1))
        .prop_map(move |(nat, exec, target, zone, force)| {
            let mut text = String::from("ct(");
            if commit {
                text += if force { "commit,force," } else { "commit," };
            }
            write!(text, "zone={zone}").unwrap();
            if let Some(table) = target {
                write!(text, ",table={table}").unwrap();
            }
            let number = if zone.len() == 1 { zone } else { "0" };
            text += &if commit || nat.is_empty() { nat.replace("ZONE", number) } else { ",nat".to_owned() };
            text += if commit { exec } else { "" };
            text + ")"
        })
        .boxed()
}

fn learn(kind: Kind) -> BoxedStrategy<String> {
    let conditions = match kind {
        Kind::Ip("tcp") => "eth_type=0x800,nw_proto=6,NXM_OF_TCP_DST[],NXM_OF_IP_SRC[]",
        Kind::Ip("udp") => {
            "eth_type=0x800,nw_proto=17,NXM_OF_UDP_DST[]=NXM_OF_UDP_SRC[],NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]"
        }
        Kind::Ip(_) => "eth_type=0x800,NXM_OF_IP_SRC[0..7],reg1=0",
        _ => "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],NXM_OF_IN_PORT[]",
    };
    let conditions = conditions.replace(",reg1=0", "");
    let result =
        ["load:0x2->NXM_NX_REG0[0..3]", "load:NXM_NX_REG0[0..7]->NXM_NX_REG1[0..7]", "output:NXM_OF_IN_PORT[]"];
    let limit = select(vec!["", "cookie=0x7,limit=1,", "cookie=0x8,limit=2,"]);
    (100u16..200, limit, select(result.to_vec()), select(result.to_vec()))
        .prop_map(move |(priority, limit, one, two)| {
            format!("learn(table={LEARNED},priority={priority},hard_timeout=600,{limit}{conditions},{one},{two})")
        })
        .boxed()
}

fn action(kind: Kind, table: u8, commit: bool) -> BoxedStrategy<String> {
    let forward = prop_oneof![8 => table + 1..=LAST, 2 => Just(LEARNED), 1 => 0..=LAST];
    let mut all: Vec<(u32, BoxedStrategy<String>)> = vec![
        (6, prefixed("output:", one(&PORTS))),
        (1, one(&["IN_PORT", "FLOOD", "NORMAL", "output:NXM_NX_REG1[0..3]", "output:77"])),
        (12, forward.clone().prop_map(|table| format!("resubmit(,{table})")).boxed()),
        (1, (one(&PORTS), forward).prop_map(|(port, table)| format!("resubmit({port},{table})")).boxed()),
        (
            4,
            one(&[
                "set_field:1->reg0",
                "set_field:2/2->reg0",
                "set_field:0x20->reg1",
                "set_field:3->reg1",
                "set_field:0x100000000->xreg0",
            ]),
        ),
        (
            1,
            one(&[
                "move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]",
                "move:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]",
                "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            ]),
        ),
        (
            2,
            (one(&["eth_dst", "eth_src"]), one(&MACS))
                .prop_map(|(field, mac)| format!("set_field:{mac}->{field}"))
                .boxed(),
        ),
        (1, (1u32..=3).prop_map(|group| format!("group:{group}")).boxed()),
        (2, learn(kind)),
    ];
    if kind.ip() {
        all.push((2, Just("dec_ttl".to_owned()).boxed()));
        all.push((2, one(&["set_field:64->nw_ttl", "set_field:8->ip_dscp"])));
        let address = if kind.v4() { ["ip_src", "ip_dst"] } else { ["ipv6_src", "ipv6_dst"] };
        all.push((
            2,
            (one(&address), one(kind.addresses())).prop_map(|(field, to)| format!("set_field:{to}->{field}")).boxed(),
        ));
        all.push((12, ct(kind, table, commit)));
    }
    if let Some(proto) = kind.ports() {
        all.push((
            2,
            (one(&["src", "dst"]), one(&TCP_PORTS))
                .prop_map(move |(side, port)| format!("set_field:{port}->{proto}_{side}"))
                .boxed(),
        ));
    }
    if kind == Kind::Arp {
        all.push((
            3,
            one(&[
                "set_field:2->arp_op",
                "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
                "set_field:10.0.0.2->arp_spa",
                "set_field:02:00:00:00:00:02->arp_sha",
            ]),
        ));
    }
    proptest::strategy::Union::new_weighted(all).boxed()
}

/// A flow without its priority: table, match and actions.
fn flow() -> impl Strategy<Value = (u8, String)> {
    (kind(), 0..LAST, any::<bool>()).prop_flat_map(|(kind, table, commit)| {
        (conditions(kind, commit), vec(action(kind, table, commit), 1..5))
            .prop_map(move |(conditions, actions)| (table, format!("{conditions} actions={}", actions.join(","))))
    })
}

/// A conjunction: its clauses, and the flow that it leads to.
#[derive(Clone, Debug)]
struct Conjunction {
    table: u8,
    clauses: Vec<Vec<String>>,
    priority: u16,
    flow_priority: u16,
    actions: String,
}

fn conjunction() -> impl Strategy<Value = Conjunction> {
    let dimension = |values: &[&'static str]| vec(one(values), 1..3);
    let clauses = vec(
        prop_oneof![
            dimension(&["ip,nw_src=10.0.0.1", "ip,nw_src=10.0.0.0/24", "ip,nw_src=10.0.1.1"]),
            dimension(&["ip,nw_dst=10.0.0.2", "ip,nw_dst=10.0.0.0/24", "ip,nw_dst=10.0.0.1"]),
            dimension(&["tcp,tp_dst=80", "udp,tp_dst=80", "tcp,tp_dst=81", "tcp"]),
            dimension(&["ip,in_port=1", "ip,in_port=2", "in_port=3"]),
        ],
        2..4,
    );
    (0..LAST, clauses, 0u16..4, select(&[0u16, 9, 2000][..]), action(Kind::Ip("ip"), 0, false)).prop_map(
        |(table, clauses, step, above, actions)| Conjunction {
            table,
            clauses,
            priority: 1000 + step * 10,
            flow_priority: 995 + step * 10 + above,
            actions,
        },
    )
}

#[derive(Clone, Debug)]
struct Setup {
    flows: Vec<(u8, String)>,
    conjunctions: Vec<Conjunction>,
}

impl Setup {
    fn flows(&self) -> Vec<Flow> {
        let mut texts = Vec::new();
        for (n, (table, rest)) in self.flows.iter().enumerate() {
            // Numbers that are spread, so that the order in which flows come is not that of their priorities.
            let priority = 100 + (n * 7919) % 859;
            texts.push(format!("table={table},priority={priority},{rest}"));
        }
        for (id, conjunction) in (1..).zip(&self.conjunctions) {
            let Conjunction { table, clauses, priority, flow_priority, actions } = conjunction;
            let of = clauses.len();
            for (clause, matches) in (1..).zip(clauses) {
                for matches in matches {
                    texts.push(format!(
                        "table={table},priority={priority},{matches} actions=conjunction({id},{clause}/{of})"
                    ));
                }
            }
            texts.push(format!(
                "table={table},priority={},conj_id={id},ip actions={actions},output:3",
                flow_priority + id
            ));
        }
        for table in 0..LAST {
            texts.push(format!("table={table},priority=1 actions=resubmit(,{})", table + 1));
        }
        for (from, to) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
            texts.push(format!("table={LAST},priority=1,in_port={from} actions=output:{to}"));
        }
        texts.iter().map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
    }

    fn groups() -> Vec<Group> {
        let texts = [
            "group_id=1,type=all,bucket=bucket_id:0,actions=set_field:1->reg0,resubmit(,6),bucket=bucket_id:1,actions=output:4",
            "group_id=2,type=select,selection_method=dp_hash,bucket=bucket_id:0,weight:1,actions=set_field:2->reg0,resubmit(,5)",
            "group_id=3,type=indirect,bucket=bucket_id:0,actions=dec_ttl,output:3",
        ];
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }
}

/// The next packet of a conversation.
#[derive(Clone, Debug)]
enum Event {
    /// Independent of earlier packets.
    Fresh {
        port: u32,
        kind: &'static str,
        from: usize,
        to: usize,
        src: u16,
        dst: u16,
        mac: usize,
        ttl: u8,
        flags: u16,
        seq: u32,
    },
    /// Derived from earlier packets.
    Next(Next),
}

fn event() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![5 => Just(SYN), 3 => Just(ACK), 1 => Just(SYN | ACK), 1 => Just(ACK | FIN), 1 => Just(RST), 1 => Just(0)];
    let kinds = ["tcp", "tcp", "tcp", "udp", "udp", "icmp", "sctp", "arp", "tcp6", "udp6", "icmp6", "other"];
    let ports = (select(TCP_PORTS.to_vec()), select(TCP_PORTS.to_vec()));
    let place = (select(PORTS.to_vec()), select(kinds.to_vec()), 0usize..3, 0usize..3);
    let rest = (0usize..3, select(vec![64, 64, 64, 2, 1]), flags, select(vec![100u32, 100, 5000, u32::MAX]));
    let fresh = (place, ports, rest).prop_map(|((port, kind, from, to), (src, dst), (mac, ttl, flags, seq))| {
        Event::Fresh { port, kind, from, to, src, dst, mac, ttl, flags, seq }
    });
    let answers = prop_oneof![6 => Just(0u16), 1 => Just(RST | ACK), 1 => Just(ACK | FIN), 1 => Just(RST)];
    let more = select(vec![0u32, 0, 0, 0, 1, 70_000, 1_000_000]);
    prop_oneof![
        3 => fresh,
        5 => (0usize..4, answers, more, select(vec![0usize, 0, 10])).prop_map(|(back, flags, more, payload)| Event::Next(Next::Answer { back, flags, more, payload })),
        3 => (0usize..4, select(vec![0u16, ACK, ACK | FIN, SYN]), select(vec![0usize, 10])).prop_map(|(back, flags, payload)| Event::Next(Next::Again { back, flags, payload })),
        1 => (0usize..4, select(vec![3u8, 11, 1])).prop_map(|(back, kind)| Event::Next(Next::Error { back, kind })),
    ]
}

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn fresh(event: &Event) -> Arrival {
    let Event::Fresh { port, kind, from, to, src, dst, mac: at, ttl, flags, seq } = event.clone() else {
        unreachable!()
    };
    let (eth_src, eth_dst) = (mac(MACS[from]), mac(MACS[at]));
    let v6 = kind.ends_with('6');
    let address = |n: usize| if v6 { V6[n % 2].parse().unwrap() } else { V4[n].parse().unwrap() };
    let segment = match kind {
        "tcp" | "tcp6" => Segment::Tcp(TcpSegment { src, dst, flags, seq, ..TcpSegment::default() }),
        "udp" | "udp6" => Segment::Udp { src, dst, payload: b"hi".to_vec() },
        "icmp" => Segment::Icmp { kind: 8, code: 0, rest: vec![0, 7, 0, 1] },
        "icmp6" => Segment::Icmp { kind: 128, code: 0, rest: vec![0, 7, 0, 1] },
        "sctp" => Segment::Sctp { src, dst },
        _ => Segment::Other { proto: 50, payload: vec![1, 2, 3] },
    };
    let packet = if kind == "arp" {
        let sender = (eth_src, [10, 0, 0, 1]);
        Packet::arp(eth_src, eth_dst, 1, sender, ([0; 6], [10, 0, 0, 2]))
    } else {
        Packet::ip(eth_src, eth_dst, address(from), address(to), ttl, &segment)
    };
    Arrival::new(Port(port), packet)
}

fn converse(twins: &mut Twins, setup: &Setup, events: &[Event]) -> anyhow::Result<()> {
    twins.install(&setup.flows(), &Setup::groups())?;
    let mut history = History::default();
    for event in events {
        let arrival = match event {
            Event::Next(next) => history.next(next),
            fresh @ Event::Fresh { .. } => Some(self::fresh(fresh)),
        };
        let Some(arrival) = arrival else { continue };
        let Some(trace) = twins.run(&arrival)? else { break };
        history.add(arrival, &trace, &PORTS);
    }
    Ok(())
}

/// About 40 packets a case; `PROPTEST_CASES` makes it a long run.
#[test]
fn switch_and_simulator_agree_on_random_flows() {
    // No shrinking, as it would have to reset the switch; flows and history are printed instead.
    let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24);
    let mut runner = TestRunner::new(Config { cases, ..config });
    let twins = RefCell::new(Twins::new(&PORTS).unwrap());
    let setup =
        (vec(flow(), 5..40), vec(conjunction(), 0..4)).prop_map(|(flows, conjunctions)| Setup { flows, conjunctions });
    let result = runner.run(&(setup, vec(event(), 20..60)), |(setup, events)| {
        let mut twins = twins.borrow_mut();
        converse(&mut twins, &setup, &events).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
    let Twins { packets, spared, .. } = *twins.borrow();
    println!("{packets} packets; {spared} conversations ended before the switch would have aborted");
    match result {
        Ok(()) => {}
        // The flows and the packets up to the difference are in the reason.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
