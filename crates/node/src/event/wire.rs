//! Flows and groups of the switch in recordings: the bytes of OpenFlow in hexadecimal, so that also parts that are not understood
//! survive.

use openflow::flow::{Flow, FlowMod};
use openflow::group::Group;
use openflow::wire::Reader;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

fn read<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    decode: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let decode = |text: &String| decode(&mut Reader::new(&bytes(text)?));
    let invalid = |text: &String| D::Error::custom(format!("`{text}` is not an OpenFlow message in hexadecimal"));
    texts.iter().map(|text| decode(text).ok_or_else(|| invalid(text))).collect()
}

pub(crate) mod flows {
    use super::{Deserializer, Flow, FlowMod, Serializer, hex, read};

    pub(crate) fn serialize<S: Serializer>(flows: &[Flow], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(flows.iter().map(|flow| {
            let mut bytes = Vec::new();
            FlowMod::add(flow.clone()).encode(&mut bytes);
            hex(&bytes)
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Flow>, D::Error> {
        read(deserializer, |reader| Some(FlowMod::decode(reader).ok()?.flow))
    }
}

pub(crate) mod groups {
    use super::{Deserializer, Group, Serializer, hex, read};

    pub(crate) fn serialize<S: Serializer>(groups: &[Group], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(groups.iter().map(|group| {
            let mut bytes = Vec::new();
            group.encode_desc(&mut bytes);
            hex(&bytes)
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Group>, D::Error> {
        read(deserializer, |reader| Group::decode_desc(reader).ok())
    }
}
