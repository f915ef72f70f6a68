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

    /// Priority, read from the encoded bytes.
    pub fn priority(&self) -> u16 {
        self.u16_at(PRIORITY)
    }

    /// Cookie, read from the encoded bytes.
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

    /// Whether at most cookie and actions differ.
    pub fn same_head(&self, other: &EncodedFlow) -> bool {
        self.body.get(COOKIE.end..self.instructions()) == other.body.get(COOKIE.end..other.instructions())
    }

    /// Id, clause and number of clauses of each `conjunction`, if that is all the flow does.
    pub fn conjunctions(&self) -> Option<impl Iterator<Item = (u32, u8, u8)> + '_> {
        let (header, actions) = self.body.get(self.instructions()..)?.split_first_chunk::<8>()?;
        let length = u16::try_from(header.len() + actions.len()).ok()?.to_be_bytes();
        let (actions, rest) = actions.as_chunks::<16>();
        // On the wire clauses count from zero.
        let parse = |action: &[u8; 16]| match *action {
            [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 34, clause, of, a, b, c, d] => {
                Some((u32::from_be_bytes([a, b, c, d]), clause.wrapping_add(1), of))
            }
            _ => None,
        };
        let all = *header == [0, 4, length[0], length[1], 0, 0, 0, 0]
            && rest.is_empty()
            && !actions.is_empty()
            && actions.iter().all(|action| parse(action).is_some());
        all.then(|| actions.iter().filter_map(parse))
    }

    /// Appends the body of a flow mod that adds the flow.
    pub fn put_add(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }

    /// Appends the body of a flow mod that removes it.
    pub fn put_delete(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let end = self.instructions();
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

    /// Decodes the bytes to a flow.
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

    /// Where the instructions start.
    fn instructions(&self) -> usize {
        self.match_end().next_multiple_of(8)
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
    fn conjunctions_can_be_read_without_decoding() {
        let all = |text| encoded(text).conjunctions().map(Iterator::collect::<Vec<_>>);
        assert_eq!(all("ip actions=conjunction(7,1/2)"), Some(vec![(7, 1, 2)]));
        assert_eq!(all("actions=conjunction(7,1/2),conjunction(9,3/3)"), Some(vec![(7, 1, 2), (9, 3, 3)]));
        for other in ["actions=drop", "actions=NORMAL", "actions=conjunction(7,1/2),note:01.02.03.04.05.06"] {
            assert_eq!(all(other), None, "{other}");
        }
        let goto = Flow { goto_table: Some(2), ..encoded("ip actions=conjunction(7,1/2)").decode() };
        assert!(EncodedFlow::new(&goto, &mut Vec::new()).conjunctions().is_none());
    }

    #[test]
    fn the_head_is_all_but_cookie_and_actions() {
        let flow = encoded("table=1, idle_timeout=5, priority=5,ip actions=drop");
        assert!(flow.same_head(&encoded("cookie=0x7, table=1, idle_timeout=5, priority=5,ip actions=NORMAL")));
        assert!(!flow.same_head(&encoded("table=1, priority=5,ip actions=drop")));
        assert!(!flow.same_head(&encoded("table=1, idle_timeout=5, priority=5,tcp actions=drop")));
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
