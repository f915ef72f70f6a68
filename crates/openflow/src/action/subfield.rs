//! A run of bits of a field.

use std::fmt;
use std::str::FromStr;

use crate::field::{Field, Format};
use crate::text::{ParseError, wrong};

/// Bits `offset..offset + bits` of a field: `NXM_NX_REG0[0..3]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subfield {
    field: Field,
    offset: u8,
    bits: u8,
}

impl Subfield {
    /// All bits of a field.
    pub const fn whole(field: Field) -> Self {
        Self { field, offset: 0, bits: field.subfield_bits() }
    }

    /// Bits `lo` to `hi`, both included; `None` if the field has no such bits.
    pub const fn new(field: Field, lo: u8, hi: u8) -> Option<Self> {
        if lo <= hi && hi < field.subfield_bits() { Some(Self { field, offset: lo, bits: hi - lo + 1 }) } else { None }
    }

    /// The field that has the bits.
    pub const fn field(self) -> Field {
        self.field
    }

    /// Number of the lowest bit, from 0.
    pub const fn offset(self) -> u8 {
        self.offset
    }

    /// Number of bits, at least 1.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The mask of these bits within the field.
    pub const fn mask(self) -> u128 {
        (u128::MAX >> (128 - self.bits as u32)) << self.offset
    }

    /// Whether it is all of the field.
    pub const fn is_whole(self) -> bool {
        self.offset == 0 && self.bits == self.field.subfield_bits()
    }

    /// Whether a value can be written to it: a port number only as a whole.
    pub(crate) fn is_loadable(self) -> bool {
        self.is_whole() || self.field.spec().format != Format::Port
    }

    /// Whether it is narrow enough for [`Subfield::packed`].
    pub(crate) fn is_packable(self) -> bool {
        self.bits <= 64
    }

    /// Offset and width packed as some actions carry them.
    pub(crate) fn packed(self) -> u16 {
        u16::from(self.offset) << 6 | u16::from(self.bits - 1)
    }

    /// From offset and width as some actions carry them.
    pub(crate) fn from_packed(field: Field, packed: u16) -> Option<Self> {
        Self::from_parts(field, packed >> 6, (packed & 0x3f) + 1)
    }

    /// From an offset and a width.
    pub(crate) fn from_parts(field: Field, offset: u16, bits: u16) -> Option<Self> {
        let hi = offset.checked_add(bits)?.checked_sub(1)?;
        if bits == 0 {
            return None;
        }
        Self::new(field, u8::try_from(offset).ok()?, u8::try_from(hi).ok()?)
    }
}

impl fmt::Display for Subfield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field.spec().nxm_name)?;
        if self.is_whole() {
            f.write_str("[]")
        } else if self.bits == 1 {
            write!(f, "[{}]", self.offset)
        } else {
            write!(f, "[{}..{}]", self.offset, self.offset + self.bits - 1)
        }
    }
}

impl FromStr for Subfield {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let Some((name, range)) = text.split_once('[') else {
            return match Field::by_name(text) {
                Some(field) => Ok(Subfield::whole(field)),
                None => wrong(text, "is not a field"),
            };
        };
        let Some(field) = Field::by_name(name) else {
            return wrong(name, "is not a field");
        };
        let Some(range) = range.strip_suffix(']') else {
            return wrong(text, "needs a ] at the end");
        };
        if range.is_empty() {
            return Ok(Subfield::whole(field));
        }
        let (lo, hi) = range.split_once("..").unwrap_or((range, range));
        match (lo.parse(), hi.parse()) {
            (Ok(lo), Ok(hi)) => match Subfield::new(field, lo, hi) {
                Some(subfield) => Ok(subfield),
                None => wrong(text, format!("{} has bits 0 to {}", field.name(), field.subfield_bits() - 1)),
            },
            _ => wrong(text, "needs bits as in [0..3], [7] or []"),
        }
    }
}
