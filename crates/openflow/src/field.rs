//! Match fields as data: names in Open vSwitch, widths, and formats on the wire and in text.

mod table;
mod text;

pub use table::Field;
pub use text::{CT_STATE_FLAGS, parse_masked, write_masked};

use crate::port::Port;
use crate::wire::{DecodeError, Decoded, Put, Reader, low_u16};

/// Class and number of a field in an OXM or NXM header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// OXM class, or NXM class of Open vSwitch.
    pub class: u16,
    /// The number within the class, 7 bits.
    pub number: u8,
}

/// How a field's value is written in text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Decimal such as `80`, masked `0x50/0xf0`.
    Decimal,
    /// Hexadecimal such as `0x50`.
    Hex,
    /// MAC such as `aa:bb:cc:dd:ee:ff`.
    Mac,
    /// IPv4 CIDR such as `10.0.0.0/8`.
    Ipv4,
    /// IPv6 prefix such as `fe80::/64`.
    Ipv6,
    /// A port's number or reserved name.
    Port,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// Flags of `ct_state` such as `+new-est`.
    CtState,
    /// TCP flags such as `+syn-ack`.
    TcpFlags,
    /// Tunnel flags such as `+oam`.
    TunFlags,
}

/// Prerequisite of a field in a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requires {
    /// The field has no prerequisite.
    Nothing,
    /// EtherType of IPv4 or IPv6.
    Ip,
    /// The packet has the EtherType of IPv4.
    Ipv4,
    /// The packet has the EtherType of IPv6.
    Ipv6,
    /// EtherType of ARP or RARP.
    Arp,
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// UDP over IPv4 or IPv6.
    Udp,
    /// SCTP over IPv4 or IPv6.
    Sctp,
    /// IPv4 with protocol ICMP.
    Icmpv4,
    /// IPv6 with protocol ICMPv6.
    Icmpv6,
    /// An IPv6 neighbour solicitation or advertisement.
    Nd,
    /// An IPv6 neighbour solicitation.
    NdSolicit,
    /// An IPv6 neighbour advertisement.
    NdAdvert,
    /// The frame has a VLAN tag.
    Vlan,
    /// A tracked IP packet.
    CtIp,
    /// A tracked IPv4 packet.
    CtIpv4,
    /// A tracked IPv6 packet.
    CtIpv6,
    /// A tracked packet of a known original protocol.
    CtPorts,
}

/// Properties of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Its name in matches and in `set_field`.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// Its name in subfields, such as `NXM_NX_REG0[0..3]`.
    pub nxm_name: &'static str,
    /// The header it is sent with.
    pub header: Header,
    /// An older header that is understood as well.
    pub nxm: Option<Header>,
    /// How many bits are meaningful.
    pub bits: u8,
    /// How many bytes it takes on the wire.
    pub bytes: u8,
    /// Whether a match may look at some of its bits only.
    pub maskable: bool,
    /// How its value is written.
    pub format: Format,
    /// Prerequisite of the field in a match.
    pub requires: Requires,
}

impl Header {
    /// `NXM_OF_IN_PORT`, the only header whose width differs from its field's.
    const NXM_IN_PORT: Header = Header { class: 0, number: 0 };
}

/// Fields by class and number, so that decoding looks nothing up twice.
struct ByHeader {
    nxm0: [Option<Field>; 128],
    nxm1: [Option<Field>; 128],
    of: [Option<Field>; 128],
    regs: [Option<Field>; 128],
    ericsson: [Option<Field>; 128],
}

static BY_HEADER: ByHeader = ByHeader::build();

impl ByHeader {
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler: a bad index does not compile")]
    const fn build() -> Self {
        let mut by = ByHeader {
            nxm0: [None; 128],
            nxm1: [None; 128],
            of: [None; 128],
            regs: [None; 128],
            ericsson: [None; 128],
        };
        by.nxm0[0] = Some(Field::InPort);
        let mut i = 0;
        while i < Field::SPECS.len() {
            let spec = &Field::SPECS[i];
            by.put(spec.header, Field::ALL[i]);
            if let Some(header) = spec.nxm {
                by.put(header, Field::ALL[i]);
            }
            i += 1;
        }
        by
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::panic,
        reason = "evaluated by the compiler: a bad table does not compile"
    )]
    const fn put(&mut self, header: Header, field: Field) {
        let class = match header.class {
            0x0000 => &mut self.nxm0,
            0x0001 => &mut self.nxm1,
            0x8000 => &mut self.of,
            0x8001 => &mut self.regs,
            0x1000 => &mut self.ericsson,
            _ => panic!("a class that the table does not list"),
        };
        assert!(class[header.number as usize].is_none(), "two fields with one number");
        class[header.number as usize] = Some(field);
    }

    fn get(&self, class: u16, number: u8) -> Option<Field> {
        let class = match class {
            0x0000 => &self.nxm0,
            0x0001 => &self.nxm1,
            0x8000 => &self.of,
            0x8001 => &self.regs,
            0x1000 => &self.ericsson,
            _ => return None,
        };
        class.get(usize::from(number)).copied().flatten()
    }
}

/// A field's TLV as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tlv<'a> {
    /// A field that the table lists.
    Known {
        /// The field of the TLV.
        field: Field,
        /// Its value; bits outside the mask are zero.
        value: u128,
        /// Which bits of it count.
        mask: u128,
    },
    /// An unknown TLV, header included.
    Unknown(&'a [u8]),
}

impl Field {
    /// Properties of the field.
    #[expect(clippy::indexing_slicing, reason = "the table has an entry for every variant")]
    pub const fn spec(self) -> &'static Spec {
        &Self::SPECS[self as usize]
    }

    /// Its name in matches.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The mask that covers all its bits.
    pub const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.spec().bits as u32)
    }

    /// How many bits it has where a subfield names it.
    pub const fn subfield_bits(self) -> u8 {
        match self {
            Field::InPort => 16,
            Field::VlanVid => 12,
            _ => self.spec().bits,
        }
    }

    /// Looks a field up by any of its names: `nw_src`, `ip_src`, `NXM_OF_IP_SRC`.
    pub fn by_name(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|f| {
            let spec = f.spec();
            spec.name == name || spec.nxm_name == name || spec.aliases.contains(&name)
        })
    }

    /// Register `n`, 0 to 15.
    pub const fn reg(n: u8) -> Option<Field> {
        Self::nth_after(Field::Reg0, n, 16)
    }

    /// The double register `n`, 0 to 7.
    pub const fn xreg(n: u8) -> Option<Field> {
        Self::nth_after(Field::Xreg0, n, 8)
    }

    /// The quadruple register `n`, 0 to 3.
    pub const fn xxreg(n: u8) -> Option<Field> {
        Self::nth_after(Field::Xxreg0, n, 4)
    }

    #[expect(clippy::indexing_slicing, reason = "n is smaller than the run of fields that starts at `first`")]
    const fn nth_after(first: Field, n: u8, count: u8) -> Option<Field> {
        if n < count { Some(Field::ALL[first as usize + n as usize]) } else { None }
    }

    /// For a wide register: the first of the 32-bit registers it covers, and how many.
    pub(crate) const fn registers(self) -> Option<(u8, u8)> {
        let n = self as u8;
        if n >= Field::Xreg0 as u8 && n <= Field::Xreg7 as u8 {
            Some(((n - Field::Xreg0 as u8) * 2, 2))
        } else if n >= Field::Xxreg0 as u8 && n <= Field::Xxreg3 as u8 {
            Some(((n - Field::Xxreg0 as u8) * 4, 4))
        } else {
            None
        }
    }

    /// A condition on the field as conditions on fields that a match can hold: a wide register is split.
    pub(crate) fn split(self, value: u128, mask: u128) -> impl Iterator<Item = (Field, u128, u128)> {
        let (first, count) = self.registers().unwrap_or_default();
        let narrow = (0..count).filter_map(move |i| {
            let shift = u32::from(count - 1 - i) * 32;
            let low = u128::from(u32::MAX);
            Some((Field::reg(first + i)?, value >> shift & low, mask >> shift & low))
        });
        narrow.chain((count == 0).then_some((self, value, mask)))
    }

    /// The four header bytes that name the field in a subfield.
    pub(crate) fn put_subfield_header(self, out: &mut Vec<u8>) {
        let (header, bytes) = match self {
            Field::InPort => (Header::NXM_IN_PORT, 2),
            _ => (self.spec().header, self.spec().bytes),
        };
        put_header(out, header, false, bytes);
    }

    /// Reads four header bytes that name a field in a subfield; `None` for a field the table does not list.
    pub(crate) fn read_subfield_header(reader: &mut Reader<'_>) -> Decoded<Option<Field>> {
        let raw = RawHeader::read(reader)?;
        Ok(BY_HEADER.get(raw.class, raw.number).filter(|f| {
            let bytes = if raw.class == 0 && *f == Field::InPort { 2 } else { f.spec().bytes };
            !raw.has_mask && raw.len == usize::from(bytes)
        }))
    }

    /// Writes the field's TLV, with a mask only where one is needed.
    pub(crate) fn put_tlv(self, out: &mut Vec<u8>, value: u128, mask: u128) {
        let spec = self.spec();
        let bytes = usize::from(spec.bytes);
        if mask == self.full_mask() {
            put_header(out, spec.header, false, spec.bytes);
            out.put_uint(value, bytes);
        } else {
            put_header(out, spec.header, true, spec.bytes * 2);
            out.put_uint(value, bytes);
            out.put_uint(mask, bytes);
        }
    }
}

fn put_header(out: &mut Vec<u8>, header: Header, has_mask: bool, bytes: u8) {
    out.put_u16(header.class);
    out.put_u8(header.number << 1 | u8::from(has_mask));
    out.put_u8(bytes);
}

struct RawHeader {
    class: u16,
    number: u8,
    has_mask: bool,
    len: usize,
}

impl RawHeader {
    fn read(reader: &mut Reader<'_>) -> Decoded<Self> {
        let class = reader.u16("field class")?;
        let number = reader.u8("field number")?;
        let len = usize::from(reader.u8("field length")?);
        Ok(RawHeader { class, number: number >> 1, has_mask: number & 1 == 1, len })
    }
}

impl<'a> Tlv<'a> {
    /// Reads one TLV. A known field must have its own width; a full mask counts as none. A value that the field cannot
    /// have, or a part of a port number, is nothing this crate knows.
    pub fn read(reader: &mut Reader<'a>) -> Decoded<Tlv<'a>> {
        let whole = *reader;
        let raw = RawHeader::read(reader)?;
        let mut body = reader.sub(raw.len, "field value")?;
        let Some(field) = BY_HEADER.get(raw.class, raw.number) else {
            let mut whole = whole;
            return Ok(Tlv::Unknown(whole.take(4 + raw.len, "field")?));
        };
        let bytes = if raw.class == 0 && field == Field::InPort { 2 } else { usize::from(field.spec().bytes) };
        if raw.len != bytes << u8::from(raw.has_mask) {
            return Err(DecodeError::BadLength { what: field.name(), length: raw.len });
        }
        let mut value = body.uint(bytes, "field value")?;
        let mut mask = if raw.has_mask { body.uint(bytes, "field mask")? } else { u128::MAX };
        let full = field.full_mask();
        if bytes == 2 && field == Field::InPort && mask & 0xffff == 0xffff {
            value = u128::from(Port::from_of10(low_u16(value)).0);
            mask = full;
        }
        let part_of_a_port = field.spec().format == Format::Port && mask & full != full;
        if value & mask & !full != 0 || part_of_a_port {
            let mut whole = whole;
            return Ok(Tlv::Unknown(whole.take(4 + raw.len, "field")?));
        }
        mask &= full;
        Ok(Tlv::Known { field, value: value & mask, mask })
    }
}
