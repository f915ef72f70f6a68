//! A flow as the bytes of the message that adds it: small to keep, cheap to send, quick to compare.

use std::fmt;

use super::{Flow, FlowCommand, FlowFlags, FlowMod};
use crate::wire::Reader;

/// Where things stand in the body of a flow mod.
const COOKIE: std::ops::Range<usize> = 0..8;
const TABLE: usize = 16;
const COMMAND: usize = 17;
const PRIORITY: std::ops::Range<usize> = 22..24;
const TIMEOUTS: std::ops::Range<usize> = 18..22;
const FLAGS_AND_IMPORTANCE: std::ops::Range<usize> = 36..40;
const MATCH: usize = 40;

/// A flow in encoded form.
///
/// Two of them are equal exactly when the switch would hold the same flow: matches and actions are canonical, and the
/// flags that only matter while adding are left out.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EncodedFlow {
    body: Box<[u8]>,
}

impl EncodedFlow {
    /// Encodes a flow, reusing `scratch` for the work.
    pub fn new(flow: &Flow, scratch: &mut Vec<u8>) -> Self {
        scratch.clear();
        let flags = flow.flags & FlowFlags::KEPT;
        FlowMod::encode_parts(flow, flags, scratch);
        Self { body: scratch.as_slice().into() }
    }

    /// The table it is in.
    pub fn table(&self) -> u8 {
        self.body.get(TABLE).copied().unwrap_or_default()
    }

    /// Its priority.
    pub fn priority(&self) -> u16 {
        self.u16_at(PRIORITY)
    }

    /// Its cookie.
    pub fn cookie(&self) -> u64 {
        self.body.get(COOKIE).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
    }

    /// Its match in canonical bytes; together with table and priority the key by which the switch tells flows apart.
    pub fn match_bytes(&self) -> &[u8] {
        self.body.get(MATCH..self.match_end()).unwrap_or_default()
    }

    /// Whether the switch would take the other for the same flow and replace it.
    pub fn same_key(&self, other: &EncodedFlow) -> bool {
        self.table() == other.table()
            && self.priority() == other.priority()
            && self.match_bytes() == other.match_bytes()
    }

    /// Appends the body of a flow mod that adds the flow.
    pub fn put_add(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }

    /// Appends the body of a flow mod that removes it.
    pub fn put_delete(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let end = self.match_end().next_multiple_of(8);
        out.extend_from_slice(self.body.get(..end).unwrap_or(&self.body));
        if let Some(command) = out.get_mut(start + COMMAND) {
            *command = FlowCommand::DeleteStrict as u8;
        }
        for range in [COOKIE, TIMEOUTS, FLAGS_AND_IMPORTANCE] {
            if let Some(bytes) = out.get_mut(start + range.start..start + range.end) {
                bytes.fill(0);
            }
        }
    }

    /// The flow itself.
    pub fn decode(&self) -> Flow {
        // Only `new` makes one, from a flow.
        FlowMod::decode(&mut Reader::new(&self.body)).map(|m| m.flow).unwrap_or_default()
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Never: even a flow that matches and does nothing has a header.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    fn u16_at(&self, range: std::ops::Range<usize>) -> u16 {
        self.body.get(range).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes)
    }

    /// The match starts with its type and its length, which leaves the padding out.
    fn match_end(&self) -> usize {
        MATCH + usize::from(self.u16_at(MATCH + 2..MATCH + 4))
    }
}

impl fmt::Debug for EncodedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedFlow({})", self.decode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> EncodedFlow {
        EncodedFlow::new(&text.parse().unwrap(), &mut Vec::new())
    }

    #[test]
    fn parts_can_be_read_without_decoding() {
        let flow = encoded("cookie=0x1234, table=41, priority=190,tcp,tp_dst=80 actions=resubmit(,42)");
        assert_eq!((flow.table(), flow.priority(), flow.cookie()), (41, 190, 0x1234));
        assert_eq!(
            flow.decode().to_string(),
            "cookie=0x1234, table=41, priority=190,tcp,tp_dst=80 actions=resubmit(,42)"
        );
    }

    #[test]
    fn the_key_is_table_priority_and_match() {
        let flow = encoded("table=1, priority=5,ip actions=drop");
        assert!(flow.same_key(&encoded("cookie=0x7, table=1, priority=5,ip actions=NORMAL")));
        for other in [
            "table=2, priority=5,ip actions=drop",
            "table=1, priority=6,ip actions=drop",
            "table=1, priority=5,arp actions=drop",
        ] {
            assert!(!flow.same_key(&encoded(other)), "{other}");
        }
    }

    #[test]
    fn the_delete_names_exactly_the_flow() {
        let mut bytes = Vec::new();
        let text = "cookie=0x7, idle_timeout=1, hard_timeout=2, importance=3, table=1, priority=5,send_flow_rem,tcp,tp_dst=80 \
                    actions=NORMAL";
        encoded(text).put_delete(&mut bytes);
        let delete = FlowMod::decode(&mut Reader::new(&bytes)).unwrap();
        let flow: Flow = "table=1, priority=5,tcp,tp_dst=80 actions=drop".parse().unwrap();
        assert_eq!(delete, FlowMod::delete_strict(&flow));
    }
}
