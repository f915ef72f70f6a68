//! Packets whose source and destination are the same, address and port: both directions of their connection are one.

use std::net::IpAddr;

use openflow::flow::Flow;
use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};

use crate::compare::Twins;
use crate::conversation::{ACK, FIN, History, Next, RST, SYN};

const PORTS: [u32; 2] = [1, 2];

/// What is done with connections: nothing, translation of either side, or to what it was, and all over again.
const TREATMENTS: [&str; 8] = [
    "",
    ",nat",
    ",nat(src=OTHER)",
    ",nat(dst=OTHER:90)",
    ",nat(src=SELF)",
    ",nat(dst=SELF:80)",
    ",force",
    ",force,nat(src=OTHER)",
];

fn segments(ipv6: bool) -> Vec<Segment> {
    let echo = |kind| Segment::Icmp { kind, code: 0, rest: vec![0, 7, 0, 1] };
    let tcp = |flags, seq, ack| Segment::Tcp(TcpSegment { src: 80, dst: 80, flags, seq, ack, ..TcpSegment::default() });
    vec![
        tcp(SYN, 100, 0),
        tcp(SYN, 100, 0),
        tcp(SYN | ACK, 100, 101),
        tcp(ACK, 101, 101),
        Segment::Udp { src: 80, dst: 80, payload: b"hi".to_vec() },
        Segment::Udp { src: 80, dst: 80, payload: b"hi".to_vec() },
        Segment::Sctp { src: 80, dst: 80 },
        Segment::Sctp { src: 80, dst: 80 },
        Segment::Other { proto: 50, payload: vec![1] },
        echo(if ipv6 { 128 } else { 8 }),
        echo(if ipv6 { 129 } else { 0 }),
        echo(if ipv6 { 128 } else { 8 }),
        tcp(ACK | FIN, 101, 101),
        tcp(ACK | RST, 102, 102),
        tcp(SYN, 900, 0),
        tcp(SYN, 900, 0),
    ]
}

#[test]
fn connections_with_equal_ends_are_tracked_as_in_the_switch() {
    let mut twins = Twins::new(&PORTS).unwrap();
    for (own, other) in [("10.0.0.1", "10.9.0.1"), ("fd00::1", "fd00:9::1")] {
        for treatment in TREATMENTS {
            let named = |address: &str| {
                let ported = treatment.contains(':') && address.contains(':');
                if ported { format!("[{address}]") } else { address.to_owned() }
            };
            let treatment = treatment.replace("OTHER", &named(other)).replace("SELF", &named(own));
            let ip = if own.contains(':') { "ipv6" } else { "ip" };
            let flows = [
                format!("table=0,{ip} actions=ct(zone=5,nat,table=1)"),
                // What is translated here is out of the tracker's sight in the next table.
                format!("table=1,ct_state=+new+trk,{ip} actions=ct(commit,zone=5{treatment},table=2)"),
                "table=1,priority=1 actions=resubmit(,2)".to_owned(),
                format!("table=2,ct_state=+inv+trk,{ip} actions=drop"),
                "table=2,priority=1,in_port=1 actions=output:2".to_owned(),
                "table=2,priority=1,in_port=2 actions=output:1".to_owned(),
            ];
            let flows: Vec<Flow> = flows.iter().map(|flow| flow.parse().unwrap()).collect();
            twins.install(&flows, &[]).unwrap();
            let address: IpAddr = own.parse().unwrap();
            let mut history = History::default();
            let packets = segments(address.is_ipv6())
                .into_iter()
                .map(|segment| Arrival::new(Port(1), Packet::ip([2; 6], [4; 6], address, address, 64, &segment)));
            // After each packet an answer to it, and an error about it.
            for fresh in packets {
                let answer = Next::Answer { back: 0, flags: 0, more: 0, payload: 0 };
                for next in [None, Some(answer), Some(Next::Error { back: 0, kind: 3 })] {
                    let arrival = match next {
                        None => Some(fresh.clone()),
                        Some(next) => history.next(&next),
                    };
                    let Some(arrival) = arrival else { continue };
                    let Some(trace) = twins.run(&arrival).unwrap() else { break };
                    history.add(arrival, &trace, &PORTS);
                }
            }
        }
    }
    println!("{} packets, {} that the switch would not survive", twins.packets, twins.spared);
}
