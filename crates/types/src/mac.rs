//! MAC addresses and their text form.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A MAC address; its text has six pairs of hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// MAC of everything behind a tunnel, the same on all Nodes.
    pub const GLOBAL_VIRTUAL: Mac = Mac([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
    /// Source MAC of packets that enter the host a second time in policy-only mode.
    pub const REENTRANCE: Mac = Mac([0xde, 0xad, 0xbe, 0xef, 0xde, 0xad]);

    /// The MAC of a Pod with this IP address. Derived from the address, so that the neighbour tables of other Pods stay
    /// correct when another Pod gets the address.
    pub fn of_ip(address: IpAddr) -> Self {
        let [a, b, c, d] = match address {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(ip) => {
                let [.., a, b, c, d] = ip.octets();
                [a, b, c, d]
            }
        };
        Self([0x0a, 0x58, a, b, c, d])
    }
}

impl From<Mac> for u128 {
    fn from(mac: Mac) -> u128 {
        mac.0.iter().fold(0, |acc, byte| acc << 8 | u128::from(*byte))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is not a MAC address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}`: needs a MAC address such as 0a:00:0a:0a:00:04")]
pub struct InvalidMac(String);

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = InvalidMac;

    fn try_from(text: String) -> Result<Self, InvalidMac> {
        text.parse()
    }
}

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let invalid = || InvalidMac(text.to_owned());
        let byte = |part: &str| match part.len() {
            // `from_str_radix` would accept `+f` too.
            2 if part.bytes().all(|digit| digit.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        assert_eq!("aa:bb:cc:dd:ee:ff".parse(), Ok(Mac::GLOBAL_VIRTUAL));
        assert_eq!("AA:bb:CC:dd:EE:ff".parse(), Ok(Mac::GLOBAL_VIRTUAL));
        assert_eq!(Mac([0, 1, 2, 3, 4, 0xff]).to_string(), "00:01:02:03:04:ff");
    }

    #[test]
    fn an_invalid_text_is_named_in_the_error() {
        for text in
            ["", "aa:bb:cc:dd:ee", "aa:bb:cc:dd:ee:ff:00", "aa:bb:cc:dd:ee:f", "aa:bb:cc:dd:ee:+f", "aabbccddeeff"]
        {
            let error = text.parse::<Mac>().unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}`: needs a MAC address such as 0a:00:0a:0a:00:04"));
        }
    }
}
