//! Messages that earlier versions wrote, in `tests/recorded`: this version reads them, also with fields that it does not know.

use std::fmt::Debug;
use std::path::Path;

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use protox::prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// A field that no message has.
const UNKNOWN: u32 = 1000;

/// A message as an earlier version has written it.
pub(crate) struct Recorded {
    /// Name of the file.
    pub(crate) file: &'static str,
    /// Full name of the message in the `.proto` file.
    pub(crate) message: &'static str,
}

impl Recorded {
    /// Asserts that the message has this value; also if every message in it has unknown fields, as those of a later version may.
    pub(crate) fn reads<M: Message + Default, V: PartialEq + Debug>(&self, value: &V, read: impl Fn(M) -> V) {
        let bytes = testkit::recorded::read(ROOT, self.file).unwrap();
        assert_eq!(&read(M::decode(&bytes[..]).unwrap()), value, "{}", self.file);
        let newer = with_unknown_fields(&descriptor(self.message), &bytes);
        assert!(newer.len() > bytes.len());
        assert_eq!(&read(M::decode(&newer[..]).unwrap()), value, "{} with unknown fields", self.file);
    }

    /// Asserts that this version writes the same bytes.
    pub(crate) fn is_written(&self, message: &impl Message) {
        testkit::recorded::check_written(ROOT, self.file, &message.encode_to_vec()).unwrap();
    }
}

fn descriptor(message: &str) -> MessageDescriptor {
    let files = protox::compile(["control.proto", "cni.proto"], [Path::new(ROOT).join("proto")]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    pool.get_message_by_name(message).unwrap_or_else(|| panic!("there is no message {message}"))
}

/// Adds fields of every wire type at the end of a message and of all messages in it.
fn with_unknown_fields(message: &MessageDescriptor, mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (number, kind) = decode_key(&mut bytes).unwrap();
        encode_key(number, kind, &mut out);
        match kind {
            WireType::Varint => encode_varint(decode_varint(&mut bytes).unwrap(), &mut out),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).unwrap()).unwrap();
                let (content, rest) = bytes.split_at(length);
                let content = match message.get_field(number).unwrap().kind() {
                    Kind::Message(inner) => with_unknown_fields(&inner, content),
                    _ => content.to_vec(),
                };
                encode_varint(content.len() as u64, &mut out);
                out.extend(content);
                bytes = rest;
            }
            WireType::SixtyFourBit => {
                let (content, rest) = bytes.split_at(8);
                out.extend(content);
                bytes = rest;
            }
            _ => panic!("{} has no field of the wire type {kind:?}", message.name()),
        }
    }
    for (number, kind) in
        (UNKNOWN..).zip([WireType::Varint, WireType::LengthDelimited, WireType::SixtyFourBit, WireType::ThirtyTwoBit])
    {
        encode_key(number, kind, &mut out);
        match kind {
            WireType::Varint => encode_varint(300, &mut out),
            WireType::LengthDelimited => out.extend([3, b'n', b'e', b'w']),
            WireType::SixtyFourBit => out.extend([7; 8]),
            _ => out.extend([7; 4]),
        }
    }
    out
}
