//! What happened to objects.

use std::sync::OnceLock;

use bytes::Bytes;

use super::Stored;
use crate::selector::Attributes;

/// What happened to an object.
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

/// One entry of the history.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) key: Box<str>,
    /// The object after the change, or as it was last.
    pub(crate) object: Stored,
    /// The object before.
    pub(crate) before: Option<Stored>,
    /// The line that watchers without a selector get.
    pub(crate) frame: Bytes,
    attributes: OnceLock<Box<Both>>,
}

/// What selectors look at in an object, after a change and before it.
pub(crate) type Both = (Attributes, Option<Attributes>);

impl Event {
    pub(super) fn new(change: Change, key: &str, object: Stored, before: Option<Stored>, frame: Bytes) -> Self {
        Self { change, key: key.into(), object, before, frame, attributes: OnceLock::new() }
    }

    /// What selectors look at: read from the bytes once for all watchers, who all select by the same fields.
    pub(crate) fn attributes(&self, fields: &[String]) -> &Both {
        self.attributes.get_or_init(|| Box::new(self.read_attributes(fields)))
    }

    /// The same, for fields of one's own.
    pub(crate) fn read_attributes(&self, fields: &[String]) -> Both {
        let of = |object: &Stored| Attributes::of(&object.bytes, fields.iter().map(String::as_str));
        (of(&self.object), self.before.as_ref().map(of))
    }
}
