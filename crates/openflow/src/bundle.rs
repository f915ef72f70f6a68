//! Bundles: changes that the switch applies together, or not at all.

use bitflags::bitflags;

use crate::flow::{EncodedFlow, FlowMod};
use crate::group::GroupMod;
use crate::header::{HEADER_LEN, Header, TooLong, kind, put_message};
use crate::property::end;
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// Number of a bundle, chosen by the controller for its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BundleId(pub u32);

bitflags! {
    /// Properties of a bundle (OFPBF_*); every message about it repeats the flags of the open request.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct BundleFlags: u16 {
        /// All or nothing: no packet sees an intermediate state.
        const ATOMIC = 1 << 0;
        /// Messages are applied in the order in which they were added.
        const ORDERED = 1 << 1;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// The type of a bundle control message (OFPBCT_*): a request, or its confirmation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BundleStep {
    /// Opens a new bundle.
    OpenRequest,
    /// The bundle is open.
    OpenReply,
    /// Closes the bundle: no more messages may be added.
    CloseRequest,
    /// The bundle is closed.
    CloseReply,
    /// Applies the messages of the bundle; it need not be closed.
    CommitRequest,
    /// The messages have been applied.
    CommitReply,
    /// Discards the bundle with its messages.
    DiscardRequest,
    /// The bundle was discarded.
    DiscardReply,
}

impl BundleStep {
    const ALL: [BundleStep; 8] = [
        BundleStep::OpenRequest,
        BundleStep::OpenReply,
        BundleStep::CloseRequest,
        BundleStep::CloseReply,
        BundleStep::CommitRequest,
        BundleStep::CommitReply,
        BundleStep::DiscardRequest,
        BundleStep::DiscardReply,
    ];

    /// Its name as `ovs-ofctl ofp-print` writes it.
    pub fn name(self) -> &'static str {
        match self {
            BundleStep::OpenRequest => "OPEN_REQUEST",
            BundleStep::OpenReply => "OPEN_REPLY",
            BundleStep::CloseRequest => "CLOSE_REQUEST",
            BundleStep::CloseReply => "CLOSE_REPLY",
            BundleStep::CommitRequest => "COMMIT_REQUEST",
            BundleStep::CommitReply => "COMMIT_REPLY",
            BundleStep::DiscardRequest => "DISCARD_REQUEST",
            BundleStep::DiscardReply => "DISCARD_REPLY",
        }
    }
}

/// OFPT_BUNDLE_CONTROL. A reply of Open vSwitch has no flags set, whatever the request had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BundleControl {
    /// The bundle that is controlled.
    pub id: BundleId,
    /// The request or confirmation.
    pub step: BundleStep,
    /// The flags of the open request.
    pub flags: BundleFlags,
}

impl BundleControl {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id.0);
        out.put_u16(self.step as u16);
        out.put_u16(self.flags.bits());
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let id = BundleId(reader.u32("bundle id")?);
        let code = reader.u16("bundle control type")?;
        let Some(step) = BundleStep::ALL.get(usize::from(code)).copied() else {
            return Err(DecodeError::BadValue { what: "bundle control type", value: u64::from(code) });
        };
        let flags = BundleFlags::from_bits_retain(reader.u16("bundle flags")?);
        end(reader, "bundle control")?;
        Ok(BundleControl { id, step, flags })
    }
}

/// OFPT_BUNDLE_ADD_MESSAGE: a message that waits for its bundle to be committed.
///
/// The switch checks it when it arrives. If it refuses it, it sends an error with its xid and leaves it out of the bundle:
/// a commit then does the rest and succeeds. For all or nothing, discard the bundle after any error.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BundleAdd {
    /// The bundle to add to.
    pub id: BundleId,
    /// The flags of the open request.
    pub flags: BundleFlags,
    /// The whole message. Its xid on the wire is that of the enclosing message, whatever it is here.
    pub message: Vec<u8>,
}

impl BundleAdd {
    /// Appends the message, header included.
    pub(crate) fn encode(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        put_message(out, kind::BUNDLE_ADD, xid, |out| {
            put_bundle_header(out, self.id, self.flags);
            let start = out.len();
            out.put(&self.message);
            if let Some(inner) = out.get_mut(start + 4..start + HEADER_LEN) {
                inner.copy_from_slice(&xid.to_be_bytes());
            }
        })
    }

    /// Decodes the body of a message with this xid.
    pub(crate) fn decode(xid: u32, reader: &mut Reader<'_>) -> Decoded<Self> {
        let id = BundleId(reader.u32("bundle id")?);
        reader.skip(2, "bundle padding")?;
        let flags = BundleFlags::from_bits_retain(reader.u16("bundle flags")?);
        let mut inner = *reader;
        let header = Header::decode(&mut inner)?;
        let message = reader.take(usize::from(header.length).max(HEADER_LEN), "message in a bundle")?;
        if header.xid != xid {
            return Err(DecodeError::BadValue { what: "xid of a message in a bundle", value: u64::from(header.xid) });
        }
        end(reader, "bundle add")?;
        Ok(BundleAdd { id, flags, message: message.to_vec() })
    }
}

/// A message that can be added to a bundle.
pub trait Bundled {
    /// The OFPT_* type of the message.
    fn kind(&self) -> u8;
    /// Appends the message without its header.
    fn put_body(&self, out: &mut Vec<u8>);
}

impl Bundled for FlowMod {
    fn kind(&self) -> u8 {
        kind::FLOW_MOD
    }
    fn put_body(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl Bundled for GroupMod {
    fn kind(&self) -> u8 {
        kind::GROUP_MOD
    }
    fn put_body(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

/// Encoded as a flow-mod with command ADD.
impl Bundled for EncodedFlow {
    fn kind(&self) -> u8 {
        kind::FLOW_MOD
    }
    fn put_body(&self, out: &mut Vec<u8>) {
        self.put_add(out);
    }
}

impl<T: Bundled + ?Sized> Bundled for &T {
    fn kind(&self) -> u8 {
        (**self).kind()
    }
    fn put_body(&self, out: &mut Vec<u8>) {
        (**self).put_body(out);
    }
}

/// Appends a bundle-add around a message of type `kind`; `body` appends its body. Nothing is
/// decoded or copied twice: this is how many flows are sent. A message that is too long leaves nothing behind.
pub fn put_bundle_add(
    out: &mut Vec<u8>,
    xid: u32,
    id: BundleId,
    flags: BundleFlags,
    kind: u8,
    body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), TooLong> {
    let start = out.len();
    let mut inner = Ok(());
    put_message(out, kind::BUNDLE_ADD, xid, |out| {
        put_bundle_header(out, id, flags);
        inner = put_message(out, kind, xid, body);
    })?;
    inner.inspect_err(|_| out.truncate(start))
}

fn put_bundle_header(out: &mut Vec<u8>, id: BundleId, flags: BundleFlags) {
    out.put_u32(id.0);
    out.put_zeros(2);
    out.put_u16(flags.bits());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

    #[test]
    fn a_wrapped_message_takes_the_xid_of_its_wrapper() {
        let expected = [6, 34, 0, 24, 0, 0, 3, 9, 0, 0, 0, 2, 0, 0, 0, 3, 6, 20, 0, 8, 0, 0, 3, 9];
        let mut out = Vec::new();
        put_bundle_add(&mut out, 0x309, BundleId(2), ALL, kind::BARRIER_REQUEST, |_| {}).unwrap();
        assert_eq!(out, expected);

        let message = vec![6, 20, 0, 8, 0, 0, 0, 1];
        out.clear();
        BundleAdd { id: BundleId(2), flags: ALL, message }.encode(0x309, &mut out).unwrap();
        assert_eq!(out, expected);

        let add = BundleAdd::decode(0x309, &mut Reader::new(&out[8..])).unwrap();
        assert_eq!((add.id, add.flags, &add.message[..]), (BundleId(2), ALL, &expected[16..]));
        let error = BundleAdd::decode(0x30a, &mut Reader::new(&out[8..])).unwrap_err();
        assert_eq!(error, DecodeError::BadValue { what: "xid of a message in a bundle", value: 0x309 });
    }

    #[test]
    fn a_wrapped_message_that_is_too_long_is_not_appended() {
        for length in [65_512, 65_528, 70_000] {
            let mut out = vec![7];
            let result = put_bundle_add(&mut out, 1, BundleId(1), ALL, kind::FLOW_MOD, |out| out.put_zeros(length));
            assert!(result.is_err());
            assert_eq!(out, [7]);
        }
    }

    #[test]
    fn a_bundled_message_longer_than_its_wrapper_is_an_error() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 3, 6, 20, 0, 9, 0, 0, 0, 1];
        assert!(BundleAdd::decode(1, &mut Reader::new(&bytes)).is_err());
    }

    proptest! {
        #[test]
        fn values_survive_encoding_and_decoding(id: u32, step in 0usize..8, flags: u16) {
            let flags = BundleFlags::from_bits_retain(flags);
            let control = BundleControl { id: BundleId(id), step: BundleStep::ALL[step], flags };
            let mut out = Vec::new();
            control.encode(&mut out);
            prop_assert_eq!(BundleControl::decode(&mut Reader::new(&out)).unwrap(), control);
        }
    }
}
