//! The message header (`struct ofp_header`), and message types.

use thiserror::Error;

use crate::wire::{Decoded, Put, Reader};

/// The version byte of OpenFlow 1.5.
pub const OF15: u8 = 6;
/// How many bytes a header takes; no message is shorter.
pub const HEADER_LEN: usize = 8;
/// The experimenter id under which Open vSwitch sends its extensions.
pub const NICIRA: u32 = 0x2320;

/// Message types, as numbered by OpenFlow 1.5.
pub mod kind {
    /// First message of a connection, in both directions.
    pub const HELLO: u8 = 0;
    /// OFPT_ERROR: a request failed.
    pub const ERROR: u8 = 1;
    /// OFPT_ECHO_REQUEST: probes the connection.
    pub const ECHO_REQUEST: u8 = 2;
    /// OFPT_ECHO_REPLY: same payload as the request.
    pub const ECHO_REPLY: u8 = 3;
    /// OFPT_EXPERIMENTER: extension of a vendor.
    pub const EXPERIMENTER: u8 = 4;
    /// OFPT_FEATURES_REQUEST: asks for a features reply.
    pub const FEATURES_REQUEST: u8 = 5;
    /// OFPT_FEATURES_REPLY: datapath id and capabilities.
    pub const FEATURES_REPLY: u8 = 6;
    /// OFPT_GET_CONFIG_REQUEST: requests the configuration of the switch.
    pub const GET_CONFIG_REQUEST: u8 = 7;
    /// OFPT_GET_CONFIG_REPLY: configuration of the switch.
    pub const GET_CONFIG_REPLY: u8 = 8;
    /// Changes the switch's configuration.
    pub const SET_CONFIG: u8 = 9;
    /// A packet for the controller.
    pub const PACKET_IN: u8 = 10;
    /// A flow is gone.
    pub const FLOW_REMOVED: u8 = 11;
    /// OFPT_PORT_STATUS: a port was added, changed or deleted.
    pub const PORT_STATUS: u8 = 12;
    /// A packet from the controller.
    pub const PACKET_OUT: u8 = 13;
    /// OFPT_FLOW_MOD: adds, modifies or deletes flows.
    pub const FLOW_MOD: u8 = 14;
    /// OFPT_GROUP_MOD: adds, modifies or deletes groups.
    pub const GROUP_MOD: u8 = 15;
    /// OFPT_MULTIPART_REQUEST: a request whose reply may need several messages.
    pub const MULTIPART_REQUEST: u8 = 18;
    /// A part of the answer.
    pub const MULTIPART_REPLY: u8 = 19;
    /// OFPT_BARRIER_REQUEST: requests a reply after all earlier messages were processed.
    pub const BARRIER_REQUEST: u8 = 20;
    /// Everything before has been done.
    pub const BARRIER_REPLY: u8 = 21;
    /// OFPT_ROLE_REQUEST: requests a role for the controller.
    pub const ROLE_REQUEST: u8 = 24;
    /// The role that the controller has.
    pub const ROLE_REPLY: u8 = 25;
    /// OFPT_GET_ASYNC_REQUEST: requests the selection of asynchronous messages.
    pub const GET_ASYNC_REQUEST: u8 = 26;
    /// Which asynchronous messages are sent.
    pub const GET_ASYNC_REPLY: u8 = 27;
    /// Chooses which asynchronous messages are sent.
    pub const SET_ASYNC: u8 = 28;
    /// OFPT_METER_MOD: adds, modifies or deletes meters.
    pub const METER_MOD: u8 = 29;
    /// Opens, closes, commits or discards a bundle.
    pub const BUNDLE_CONTROL: u8 = 33;
    /// Adds a message to a bundle.
    pub const BUNDLE_ADD: u8 = 34;
}

/// The first eight bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The OpenFlow version that the rest is written in.
    pub version: u8,
    /// The message type, one of [`kind`].
    pub kind: u8,
    /// How long the message is, header included.
    pub length: u16,
    /// Transaction id: a reply has that of its request.
    pub xid: u32,
}

impl Header {
    /// Decodes the 8 bytes of `struct ofp_header`.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Header {
            version: reader.u8("message version")?,
            kind: reader.u8("message type")?,
            length: reader.u16("message length")?,
            xid: reader.u32("message xid")?,
        })
    }
}

/// A message that its 16-bit length cannot describe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("message of {length} bytes, but OpenFlow allows 65535 at most")]
pub struct TooLong {
    /// How long it would have been.
    pub length: usize,
}

/// Appends a message of which `body` writes everything after the header. One that is too long leaves nothing behind:
/// a partial message would corrupt the rest of the stream.
pub fn put_message(out: &mut Vec<u8>, kind: u8, xid: u32, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let start = out.len();
    out.put_u8(OF15);
    out.put_u8(kind);
    out.put_u16(0);
    out.put_u32(xid);
    body(out);
    let length = out.len() - start;
    match u16::try_from(length) {
        Ok(short) => {
            out.patch_u16(start + 2, short);
            Ok(())
        }
        Err(_) => {
            out.truncate(start);
            Err(TooLong { length })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_its_own_length() {
        let mut out = vec![0xee];
        put_message(&mut out, kind::ECHO_REQUEST, 0x0102_0304, |out| out.put(b"hi")).unwrap();
        assert_eq!(out, [0xee, 6, 2, 0, 10, 1, 2, 3, 4, b'h', b'i']);
        let header = Header::decode(&mut Reader::new(&out[1..])).unwrap();
        assert_eq!(header, Header { version: OF15, kind: kind::ECHO_REQUEST, length: 10, xid: 0x0102_0304 });
    }

    #[test]
    fn a_message_too_long_for_its_length_is_not_written() {
        let mut out = vec![0xee];
        let result = put_message(&mut out, kind::ECHO_REQUEST, 1, |out| out.put_zeros(65_528));
        assert_eq!(result, Err(TooLong { length: 65_536 }));
        assert_eq!(out, [0xee]);
        put_message(&mut out, kind::ECHO_REQUEST, 1, |out| out.put_zeros(65_527)).unwrap();
    }
}
