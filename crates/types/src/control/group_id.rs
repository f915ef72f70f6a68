//! Identifiers of address groups and applied-to groups.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Identifier of a group: a UUID derived from the group's selector, so that it is the same on every replica and at all
/// times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupId(pub [u8; 16]);

/// A text that is not the identifier of a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a UUID such as e4f24a48-ca1f-4d5b-819c-ea7632b22115")]
pub struct InvalidGroupId(pub String);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&n) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl From<GroupId> for String {
    fn from(id: GroupId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for GroupId {
    type Error = InvalidGroupId;

    fn try_from(text: String) -> Result<Self, InvalidGroupId> {
        text.parse()
    }
}

impl FromStr for GroupId {
    type Err = InvalidGroupId;

    fn from_str(text: &str) -> Result<Self, InvalidGroupId> {
        let invalid = || InvalidGroupId(text.to_owned());
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_hex = digits.len() == 32 && digits.bytes().all(|c| c.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_hex).ok_or_else(invalid)?;
        let id = Self(number.to_be_bytes());
        // Only the canonical form, because texts are compared too.
        if id.to_string() == text { Ok(id) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_in_canonical_form() {
        let text = "e4f24a48-ca1f-4d5b-819c-ea7632b22115";
        let id: GroupId = text.parse().unwrap();
        assert_eq!((id.0[0], id.0[15], id.to_string().as_str()), (0xe4, 0x15, text));
        for wrong in ["", "e4f24a48ca1f4d5b819cea7632b22115", &text.to_uppercase(), &text[1..], &text.replace('e', "+")]
        {
            assert_eq!(wrong.parse::<GroupId>(), Err(InvalidGroupId(wrong.to_owned())));
        }
    }
}
