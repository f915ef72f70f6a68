//! Errors that the switch reports, with the names that Open vSwitch gives them.

mod table;

use std::fmt;

use crate::header::NICIRA;
use crate::wire::{Decoded, Put, Reader};

/// The error type that stands before an experimenter id.
const EXPERIMENTER: u16 = 0xffff;

/// OFPT_ERROR: the request with the same xid failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ErrorMessage {
    /// OFPET_* type; 0xffff for an experimenter's error.
    pub kind: u16,
    /// Number of the error within its type.
    pub code: u16,
    /// Experimenter id, if OpenFlow itself does not define the error.
    pub experimenter: Option<u32>,
    /// The beginning of the request, at least 64 bytes of it if it had so many; or a text, after a failed hello.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// Its name in Open vSwitch, such as `OFPFMFC_OVERLAP`.
    pub fn name(&self) -> Option<&'static str> {
        self.entry().map(|(_, name, _)| *name)
    }

    /// Explanation of errors that a controller is likely to receive.
    pub fn explanation(&self) -> Option<&'static str> {
        self.entry().map(|(_, _, text)| *text).filter(|text| !text.is_empty())
    }

    /// Whether it is the error that Open vSwitch calls `name`.
    pub fn is(&self, name: &str) -> bool {
        self.name() == Some(name)
    }

    fn entry(&self) -> Option<&'static table::Entry> {
        let entries = match (self.kind, self.experimenter) {
            (EXPERIMENTER, Some(NICIRA)) => table::NICIRA,
            (kind, None) => table::STANDARD.iter().find(|(k, _)| *k == kind).map(|(_, entries)| *entries)?,
            _ => return None,
        };
        entries.iter().find(|(code, _, _)| *code == self.code)
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.kind);
        out.put_u16(self.code);
        if let Some(experimenter) = self.experimenter {
            out.put_u32(experimenter);
        }
        out.put(&self.data);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let kind = reader.u16("error type")?;
        let code = reader.u16("error code")?;
        let experimenter = match kind {
            EXPERIMENTER => Some(reader.u32("error experimenter")?),
            _ => None,
        };
        Ok(ErrorMessage { kind, code, experimenter, data: reader.rest().to_vec() })
    }
}

impl fmt::Display for ErrorMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.entry(), self.experimenter) {
            (Some((_, name, "")), _) => f.write_str(name),
            (Some((_, name, text)), _) => write!(f, "{name}: {text}"),
            (None, Some(who)) => write!(f, "error {} of experimenter {who:#x}", self.code),
            (None, None) => write!(f, "error type {} code {}", self.kind, self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn standard(kind: u16, code: u16) -> ErrorMessage {
        ErrorMessage { kind, code, experimenter: None, data: Vec::new() }
    }

    fn nicira(code: u16) -> ErrorMessage {
        ErrorMessage { kind: 0xffff, code, experimenter: Some(NICIRA), data: Vec::new() }
    }

    #[test]
    fn errors_have_the_names_that_open_vswitch_gives_them() {
        assert_eq!(standard(5, 3).to_string(), "OFPFMFC_OVERLAP: flow overlaps another of the same priority");
        assert_eq!(standard(4, 9).name(), Some("OFPBMC_BAD_PREREQ"));
        assert_eq!(standard(6, 0).name(), Some("OFPGMFC_GROUP_EXISTS"));
        assert!(standard(17, 13).is("OFPBFC_MSG_FAILED"));
        assert_eq!(nicira(15).name(), Some("NXBAC_BAD_CONJUNCTION"));
    }

    #[test]
    fn an_unknown_error_shows_its_numbers() {
        assert_eq!(standard(99, 7).to_string(), "error type 99 code 7");
        let foreign = ErrorMessage { experimenter: Some(0x1234), ..nicira(15) };
        assert_eq!(foreign.to_string(), "error 15 of experimenter 0x1234");
    }

    #[test]
    fn the_tables_are_sorted_and_name_no_error_twice() {
        assert!(table::STANDARD.is_sorted_by(|a, b| a.0 < b.0));
        assert!(table::NICIRA.is_sorted_by(|a, b| a.0 < b.0));
        assert!(table::STANDARD.iter().all(|(_, entries)| entries.is_sorted_by(|a, b| a.0 < b.0)));
        let names: Vec<_> = table::STANDARD.iter().flat_map(|(_, e)| *e).chain(table::NICIRA).map(|e| e.1).collect();
        assert_eq!(names.len(), 196);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    proptest! {
        #[test]
        fn values_survive_encoding_and_decoding(kind in 0u16..20, code: u16, data: Vec<u8>, who: Option<u32>) {
            let error = ErrorMessage {
                kind: if who.is_some() { EXPERIMENTER } else { kind }, code, experimenter: who, data,
            };
            let mut out = Vec::new();
            error.encode(&mut out);
            prop_assert_eq!(ErrorMessage::decode(&mut Reader::new(&out)).unwrap(), error);
        }
    }
}
