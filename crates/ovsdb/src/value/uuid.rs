//! Ids of rows and transactions.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A UUID, written `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(u128);

/// A text that is not a UUID.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is not a UUID")]
pub struct ParseUuidError(String);

impl Uuid {
    /// All zeros: the default of a column, and the transaction id that means "none".
    pub const NIL: Self = Self(0);

    /// The UUID with these bits, in the order of its text.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits in the order of the text.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let error = || ParseUuidError(text.chars().take(40).collect());
        let mut bits = 0u128;
        if text.len() != 36 {
            return Err(error());
        }
        for (at, byte) in text.bytes().enumerate() {
            match (at, char::from(byte).to_digit(16)) {
                (8 | 13 | 18 | 23, None) if byte == b'-' => {}
                (8 | 13 | 18 | 23, _) | (_, None) => return Err(error()),
                (_, Some(digit)) => bits = bits << 4 | u128::from(digit),
            }
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        let (a, b, c) = (bits >> 96, bits >> 80 & 0xffff, bits >> 64 & 0xffff);
        let (d, e) = (bits >> 48 & 0xffff, bits & 0xffff_ffff_ffff);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_hyphenated_form_is_a_uuid() {
        assert_eq!("550e8400-e29b-41d4-a716-446655440000".parse(), Ok(Uuid(0x550e8400_e29b_41d4_a716_446655440000)));
        for text in [
            "",
            "550e8400e29b41d4a716446655440000",
            "550e8400-e29b-41d4-a716-44665544000g",
            "550e8400-e29b-41d4-a716a446655440000",
            "-50e8400-e29b-41d4-a716-446655440000",
            "é50e8400-e29b-41d4-a716-44665544000",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_then_parse_is_the_same_uuid(bits in any::<u128>()) {
            let uuid = Uuid(bits);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
            prop_assert_eq!(uuid.to_string().to_uppercase().parse(), Ok(uuid));
        }
    }
}
