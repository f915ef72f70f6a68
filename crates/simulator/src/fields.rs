//! Every field that a flow can match, read or write: headers and metadata.

use std::net::IpAddr;

use openflow::action::Subfield;
use openflow::field::Field;
use openflow::port::Port;

use crate::conntrack::{CtState, Tuple};
use crate::packet::{Arrival, Packet};

/// Tunnel metadata: of a decapsulated packet, or for encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tunnel {
    /// Tunnel key (VNI), `tun_id`.
    pub id: u64,
    /// The outer source, IPv4.
    pub src: u32,
    /// The outer destination, IPv4.
    pub dst: u32,
    /// The outer source, IPv6.
    pub ipv6_src: u128,
    /// The outer destination, IPv6.
    pub ipv6_dst: u128,
    /// Flags: bit 0 is `oam`.
    pub flags: u16,
}

/// The connection tracking fields of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtFields {
    /// The state; empty if the packet is not tracked.
    pub state: CtState,
    /// `ct_zone` of the last lookup.
    pub zone: u16,
    /// `ct_mark` of the connection.
    pub mark: u32,
    /// `ct_label` of the connection.
    pub label: u128,
    /// The tuple of the packet that opened the connection.
    pub original: Option<Tuple>,
}

/// Metadata of a packet in the switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Input port of the packet.
    pub in_port: Port,
    /// Registers `reg0` to `reg15`.
    pub regs: [u32; 16],
    /// The `metadata` field of OpenFlow.
    pub metadata: u64,
    /// Tunnel metadata of the packet.
    pub tunnel: Tunnel,
    /// The mark shared with the host.
    pub pkt_mark: u32,
    /// The conjunction that holds, during the lookup.
    pub conj_id: u32,
    /// Result of the last `ct` action.
    pub ct: CtFields,
}

/// A packet with its metadata, as flows see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The frame with its headers.
    pub packet: Packet,
    /// Fields outside of the frame.
    pub meta: Metadata,
}

impl Metadata {
    /// Metadata of a packet that arrives at a port.
    pub fn of(in_port: Port) -> Self {
        Self {
            in_port,
            regs: [0; 16],
            metadata: 0,
            tunnel: Tunnel::default(),
            pkt_mark: 0,
            conj_id: 0,
            ct: CtFields::default(),
        }
    }
}

impl Tunnel {
    /// The value of a tunnel field.
    pub fn get(&self, field: Field) -> u128 {
        match field {
            Field::TunId => u128::from(self.id),
            Field::TunSrc => u128::from(self.src),
            Field::TunDst => u128::from(self.dst),
            Field::TunIpv6Src => self.ipv6_src,
            Field::TunIpv6Dst => self.ipv6_dst,
            Field::TunFlags => u128::from(self.flags),
            _ => 0,
        }
    }

    /// Writes a tunnel field.
    pub fn set(&mut self, field: Field, value: u128) {
        match field {
            Field::TunId => self.id = low(value),
            Field::TunSrc => self.src = low(value),
            Field::TunDst => self.dst = low(value),
            Field::TunIpv6Src => self.ipv6_src = value,
            Field::TunIpv6Dst => self.ipv6_dst = value,
            Field::TunFlags => self.flags = low(value),
            _ => {}
        }
    }
}

impl View {
    /// A packet on arrival.
    pub fn of(arrival: &Arrival) -> Self {
        let meta = Metadata { tunnel: arrival.tunnel, pkt_mark: arrival.pkt_mark, ..Metadata::of(arrival.in_port) };
        Self { packet: arrival.packet.clone(), meta }
    }

    /// The value of a field.
    pub fn get(&self, field: Field) -> u128 {
        let meta = &self.meta;
        if let Some((first, count)) = registers(field) {
            let regs = meta.regs.iter().skip(first).take(count);
            return regs.fold(0, |value, reg| value << 32 | u128::from(*reg));
        }
        let original = |pick: fn(&Tuple) -> IpAddr, v6: bool| match meta.ct.original.as_ref().map(pick) {
            Some(IpAddr::V4(address)) if !v6 => u128::from(u32::from(address)),
            Some(IpAddr::V6(address)) if v6 => u128::from(address),
            _ => 0,
        };
        let number = |pick: fn(&Tuple) -> u16| meta.ct.original.as_ref().map_or(0, |tuple| u128::from(pick(tuple)));
        match field {
            Field::InPort => u128::from(meta.in_port.0),
            Field::PktMark => u128::from(meta.pkt_mark),
            Field::ConjId => u128::from(meta.conj_id),
            Field::Metadata => u128::from(meta.metadata),
            Field::CtState => u128::from(meta.ct.state.bits()),
            Field::CtZone => u128::from(meta.ct.zone),
            Field::CtMark => u128::from(meta.ct.mark),
            Field::CtLabel => meta.ct.label,
            Field::CtNwSrc => original(|tuple| tuple.src, false),
            Field::CtNwDst => original(|tuple| tuple.dst, false),
            Field::CtIpv6Src => original(|tuple| tuple.src, true),
            Field::CtIpv6Dst => original(|tuple| tuple.dst, true),
            Field::CtNwProto => number(|tuple| u16::from(tuple.proto)),
            Field::CtTpSrc => number(|tuple| tuple.src_port),
            Field::CtTpDst => number(|tuple| tuple.dst_port),
            // Action set, hash and recirculation id are not used by flows of this project.
            Field::ActsetOutput => u128::from(Port(0xffff_fff7).0),
            Field::RecircId | Field::DpHash => 0,
            field if (Field::TunId..=Field::TunFlags).contains(&field) => meta.tunnel.get(field),
            field => self.packet.get(field),
        }
    }

    /// Writes the bits of a field that are set in the mask. Read-only fields do not change.
    pub fn set(&mut self, field: Field, value: u128, mask: u128) {
        let old = self.get(field);
        let new = old & !mask | value & mask;
        if let Some((first, count)) = registers(field) {
            for (i, reg) in self.meta.regs.iter_mut().skip(first).take(count).enumerate() {
                *reg = low(new >> (32 * (count - 1 - i)));
            }
            return;
        }
        match field {
            Field::PktMark => self.meta.pkt_mark = low(new),
            Field::Metadata => self.meta.metadata = low(new),
            Field::InPort => self.meta.in_port = wide_port(low(new)),
            Field::CtMark => self.meta.ct.mark = low(new),
            Field::CtLabel => self.meta.ct.label = new,
            field if (Field::TunId..=Field::TunFlags).contains(&field) => self.meta.tunnel.set(field, new),
            field => self.packet.set(field, new),
        }
    }

    /// The value of a run of bits.
    pub fn get_bits(&self, bits: Subfield) -> u128 {
        let value = match bits.field() {
            // Where a subfield names the port, it has the 16 bits of OpenFlow 1.0.
            Field::InPort => u128::from(self.meta.in_port.0 & 0xffff),
            field => self.get(field),
        };
        (value & bits.mask()) >> bits.offset()
    }

    /// Writes a run of bits.
    pub fn set_bits(&mut self, bits: Subfield, value: u128) {
        match bits.field() {
            Field::InPort => {
                let old = u128::from(self.meta.in_port.0 & 0xffff);
                let new = old & !bits.mask() | value << bits.offset() & bits.mask();
                self.meta.in_port = wide_port(low(new));
            }
            field => self.set(field, value << bits.offset(), bits.mask()),
        }
    }
}

/// A port from the 16 bits that OpenFlow 1.0 gives it.
pub(crate) fn wide_port(port: u32) -> Port {
    if (0xff00..=0xffff).contains(&port) { Port(port | 0xffff_0000) } else { Port(port) }
}

/// The 32-bit registers that a register of any width covers: the first, and how many.
fn registers(field: Field) -> Option<(usize, usize)> {
    let distance = |first: Field| usize::from(field as u8 - first as u8);
    match field {
        f if (Field::Reg0..=Field::Reg15).contains(&f) => Some((distance(Field::Reg0), 1)),
        f if (Field::Xreg0..=Field::Xreg7).contains(&f) => Some((distance(Field::Xreg0) * 2, 2)),
        f if (Field::Xxreg0..=Field::Xxreg3).contains(&f) => Some((distance(Field::Xxreg0) * 4, 4)),
        _ => None,
    }
}

/// The low bits of a value, as many as the type has.
pub(crate) fn low<T: Low>(value: u128) -> T {
    T::low(value)
}

pub(crate) trait Low {
    fn low(value: u128) -> Self;
}

macro_rules! low {
    ($($type:ty)*) => {$(
        impl Low for $type {
            #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
            fn low(value: u128) -> Self {
                value as $type
            }
        }
    )*};
}
low!(u8 u16 u32 u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View::of(&"in_port=7,tcp,nw_src=10.0.0.1,tp_dst=80".parse().unwrap())
    }

    #[test]
    fn wide_registers_are_the_narrow_ones_first_the_high_bits() {
        let mut view = view();
        view.set(Field::Xxreg0, 0x1_0000_0002_0000_0003_0000_0004, u128::MAX);
        assert_eq!(view.meta.regs[..4], [1, 2, 3, 4]);
        assert_eq!(view.get(Field::Xreg1), 0x3_0000_0004);
        view.set(Field::Xreg0, 0xff, 0xf0);
        assert_eq!(view.meta.regs[1], 0xf2);
    }

    #[test]
    fn bits_are_read_and_written_in_their_place() {
        let mut view = view();
        let bits: Subfield = "NXM_NX_REG0[4..7]".parse().unwrap();
        view.set_bits(bits, 0x1a);
        assert_eq!((view.meta.regs[0], view.get_bits(bits)), (0xa0, 0xa));
        assert_eq!(view.get_bits(Subfield::whole(Field::InPort)), 7);
    }

    #[test]
    fn headers_are_fields_too() {
        let mut view = view();
        view.set(Field::TcpDst, 8080, 0xffff);
        assert_eq!((view.packet.ports(), view.get(Field::UdpDst)), (Some((0, 8080)), 0));
    }
}
