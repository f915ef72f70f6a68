//! Properties: the type-length-value lists that OpenFlow 1.4 and later end many messages with.

use crate::wire::{DecodeError, Decoded, Put, Reader};

/// An unknown property, kept as received.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnknownProperty {
    /// Property type; its meaning depends on the message.
    pub kind: u16,
    /// The bytes after type and length, without padding.
    pub value: Vec<u8>,
}

impl UnknownProperty {
    /// Writes it as it came.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_property(out, self.kind, |out| out.put(&self.value));
    }

    /// Keeps the rest of `value`.
    pub(crate) fn keep(kind: u16, mut value: Reader<'_>) -> Self {
        UnknownProperty { kind, value: value.rest().to_vec() }
    }
}

/// Writes one property: `value` writes the bytes after type and length; the length excludes the padding.
pub(crate) fn put_property(out: &mut Vec<u8>, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    value(out);
    out.patch_len(start + 2, start);
    out.pad8_since(start);
}

/// Reads one property with its padding: its type, and a reader over its value.
pub(crate) fn read_property<'a>(reader: &mut Reader<'a>) -> Decoded<(u16, Reader<'a>)> {
    let kind = reader.u16("property type")?;
    let length = usize::from(reader.u16("property length")?);
    let Some(value) = length.checked_sub(4) else {
        return Err(DecodeError::BadLength { what: "property", length });
    };
    let value = reader.sub(value, "property")?;
    reader.skip((8 - length % 8) % 8, "property padding")?;
    Ok((kind, value))
}

/// Checks that nothing is left over, so that nothing is dropped unseen.
pub(crate) fn end(reader: &Reader<'_>, what: &'static str) -> Decoded<()> {
    match reader.left() {
        0 => Ok(()),
        left => Err(DecodeError::BadLength { what, length: reader.offset() + left }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_padded_but_its_length_does_not_say_so() {
        let property = UnknownProperty { kind: 7, value: vec![1, 2, 3] };
        let mut out = Vec::new();
        property.encode(&mut out);
        assert_eq!(out, [0, 7, 0, 7, 1, 2, 3, 0]);
        let mut reader = Reader::new(&out);
        let (kind, value) = read_property(&mut reader).unwrap();
        assert_eq!(UnknownProperty::keep(kind, value), property);
        assert!(reader.is_empty());
    }

    #[test]
    fn a_property_shorter_than_its_own_header_is_refused() {
        let error = read_property(&mut Reader::new(&[0, 7, 0, 3, 0, 0, 0, 0])).unwrap_err();
        assert_eq!(error, DecodeError::BadLength { what: "property", length: 3 });
    }
}
