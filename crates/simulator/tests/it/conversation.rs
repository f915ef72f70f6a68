//! Continuation of a conversation: a receiver replies, a sender sends the next packet or retransmits.

use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet, Trace};

pub(crate) const FIN: u16 = 1;
pub(crate) const SYN: u16 = 2;
pub(crate) const RST: u16 = 4;
pub(crate) const ACK: u16 = 16;

/// The next packet of a conversation.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// A reply to one of the last output packets.
    Answer { back: usize, flags: u16, more: u32, payload: usize },
    /// One of the last input packets, retransmitted or advanced.
    Again { back: usize, flags: u16, payload: usize },
    /// An ICMP error about one of the last output packets.
    Error { back: usize, kind: u8 },
}

/// The packets so far.
#[derive(Default)]
pub(crate) struct History {
    ins: Vec<Arrival>,
    outs: Vec<(Port, Packet)>,
}

impl History {
    /// Records a packet and its output at these ports.
    pub(crate) fn add(&mut self, arrival: Arrival, trace: &Trace, ports: &[u32]) {
        let here = |(port, _): &(Port, &Packet)| ports.contains(&port.0);
        self.outs.extend(trace.outputs().filter(here).map(|(port, packet)| (port, packet.clone())));
        self.ins.push(arrival);
    }

    /// Builds the packet, if there is an earlier packet to refer to.
    pub(crate) fn next(&self, next: &Next) -> Option<Arrival> {
        let came_out = |back: usize| self.outs.iter().rev().nth(back);
        match *next {
            Next::Answer { back, flags, more, payload } => {
                let (port, packet) = came_out(back)?;
                Some(Arrival::new(*port, answer(packet, flags, more, payload)?))
            }
            Next::Again { back, flags, payload } => {
                let arrival = self.ins.iter().rev().nth(back)?;
                match numbers(&arrival.packet) {
                    Some((seq, ack, had, length)) if flags != 0 => {
                        let next = after(seq, had, length);
                        let ack = if ack == 0 { 3001 } else { ack };
                        let packet = with_numbers(&arrival.packet, false, flags, next, ack, payload)?;
                        Some(Arrival::new(arrival.in_port, packet))
                    }
                    _ => Some(arrival.clone()),
                }
            }
            Next::Error { back, kind } => {
                let (port, packet) = came_out(back)?;
                Some(Arrival::new(*port, packet.icmp_error(packet.dst()?, kind, 0)?))
            }
        }
    }
}

fn answer(packet: &Packet, flags: u16, more: u32, payload: usize) -> Option<Packet> {
    if let Some((seq, ack, had, length)) = numbers(packet) {
        let flags = match flags {
            0 if had & (SYN | ACK) == SYN => SYN | ACK,
            0 => ACK,
            flags => flags,
        };
        let own = if ack == 0 { 3000 } else { ack }.wrapping_add(more);
        return with_numbers(packet, true, flags, own, after(seq, had, length), payload);
    }
    if packet.protocol().starts_with("icmp") {
        let (eth_src, eth_dst) = macs(packet);
        let kind = if packet.protocol() == "icmp6" { 129 } else { 0 };
        let segment = Segment::Icmp { kind, code: 0, rest: vec![0, 7, 0, 1] };
        return Some(Packet::ip(eth_dst, eth_src, packet.dst()?, packet.src()?, 64, &segment));
    }
    with_numbers(packet, true, 0, 0, 0, payload)
}

/// The number after a segment; FIN and SYN count.
fn after(seq: u32, flags: u16, length: usize) -> u32 {
    seq.wrapping_add(u32::try_from(length).unwrap()).wrapping_add(u32::from(flags & (FIN | SYN) != 0))
}

/// Sequence number, acknowledgement, flags and length of a TCP packet.
fn numbers(packet: &Packet) -> Option<(u32, u32, u16, usize)> {
    let at = packet.as_bytes();
    let l4 = match packet.protocol() {
        "tcp" => 34,
        "tcp6" => 54,
        _ => return None,
    };
    let word = |offset: usize| u32::from_be_bytes(at[l4 + offset..l4 + offset + 4].try_into().unwrap());
    Some((word(4), word(8), u16::from_be_bytes([at[l4 + 12] & 0xf, at[l4 + 13]]), at.len() - l4 - 20))
}

fn macs(packet: &Packet) -> ([u8; 6], [u8; 6]) {
    (packet.as_bytes()[6..12].try_into().unwrap(), packet.as_bytes()[..6].try_into().unwrap())
}

fn with_numbers(packet: &Packet, reply: bool, flags: u16, seq: u32, ack: u32, payload: usize) -> Option<Packet> {
    let (src, dst) = packet.ports()?;
    let (src, dst) = if reply { (dst, src) } else { (src, dst) };
    let (from, to) = if reply { (packet.dst()?, packet.src()?) } else { (packet.src()?, packet.dst()?) };
    let (eth_src, eth_dst) = macs(packet);
    let (eth_src, eth_dst) = if reply { (eth_dst, eth_src) } else { (eth_src, eth_dst) };
    let segment = match packet.protocol() {
        "tcp" | "tcp6" => {
            Segment::Tcp(TcpSegment { src, dst, seq, ack, flags, payload: vec![7; payload], ..TcpSegment::default() })
        }
        "udp" | "udp6" => Segment::Udp { src, dst, payload: vec![7; payload] },
        _ => Segment::Sctp { src, dst },
    };
    Some(Packet::ip(eth_src, eth_dst, from, to, 64, &segment))
}
