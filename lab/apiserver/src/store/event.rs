//! Events of the history.

use std::sync::OnceLock;

use bytes::Bytes;

use super::Stored;
use crate::selector::Attributes;

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An entry of the history.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) key: Box<str>,
    /// The object after the change; after a deletion, its last state.
    pub(crate) object: Stored,
    /// The object before the change.
    pub(crate) before: Option<Stored>,
    /// The line that watches without a selector send.
    pub(crate) frame: Bytes,
    attributes: OnceLock<Box<Both>>,
}

/// The attributes of an object for selectors, after a change and before it.
pub(crate) type Both = (Attributes, Option<Attributes>);

impl Event {
    pub(super) fn new(change: Change, key: &str, object: Stored, before: Option<Stored>, frame: Bytes) -> Self {
        Self { change, key: key.into(), object, before, frame, attributes: OnceLock::new() }
    }

    /// The attributes for selectors, read once for all watches with the same selectable fields.
    pub(crate) fn attributes(&self, fields: &[String]) -> &Both {
        self.attributes.get_or_init(|| Box::new(self.read_attributes(fields)))
    }

    /// The attributes for other fields.
    pub(crate) fn read_attributes(&self, fields: &[String]) -> Both {
        let of = |object: &Stored| Attributes::of(&object.bytes, fields.iter().map(String::as_str));
        (of(&self.object), self.before.as_ref().map(of))
    }
}
