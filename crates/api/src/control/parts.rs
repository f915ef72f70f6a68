//! Splits a batch into parts and reassembles it, so that the controller encodes at most one part per agent at a time.

use std::sync::Arc;

use types::control::{Batch, Change, Group, GroupChange, Patch};

use super::{decode, encode, wire};
use crate::control::Invalid;

/// Members and changes per part.
const MAX_PER_PART: usize = 256;

/// Iterates over the parts of a batch. A group that is too large for one part is set with some of its members, and patched with the
/// others.
pub(super) struct Parts {
    snapshot: bool,
    changes: std::vec::IntoIter<Change>,
    /// A change that did not fit, with the number of members already sent.
    rest: Option<(Change, usize)>,
    ended: bool,
}

impl Parts {
    pub(super) fn of(batch: Batch) -> Self {
        Self { snapshot: batch.snapshot, changes: batch.changes.into_iter(), rest: None, ended: false }
    }
}

impl Iterator for Parts {
    type Item = wire::Part;

    fn next(&mut self) -> Option<wire::Part> {
        if self.ended {
            return None;
        }
        let mut part = wire::Part { snapshot: self.snapshot, ..wire::Part::default() };
        let mut room = MAX_PER_PART;
        while room > 0 {
            let Some((change, done)) = self.rest.take().or_else(|| self.changes.next().map(|change| (change, 0)))
            else {
                break;
            };
            let (now, taken, is_whole) = piece(&change, done, room);
            part.changes.push(encode::change(now.as_ref().unwrap_or(&change)));
            room = room.saturating_sub(taken.max(1));
            if !is_whole {
                self.rest = Some((change, done + taken));
            }
        }
        self.ended = self.rest.is_none() && self.changes.as_slice().is_empty();
        part.end = self.ended;
        Some(part)
    }
}

/// The next piece of a change, starting at member `done`: the piece if it is not the whole change, its number of members, and whether
/// it is the last.
fn piece(change: &Change, done: usize, room: usize) -> (Option<Change>, usize, bool) {
    let (of, wrap): (&GroupChange, fn(GroupChange) -> Change) = match change {
        Change::AppliedTo(of) => (of, Change::AppliedTo),
        Change::Address(of) => (of, Change::Address),
        Change::Policy(_) | Change::Pod(_) => return (None, 1, true),
    };
    let (id, members, removed) = match of {
        GroupChange::Set(group) => (group.id, &group.members, &[][..]),
        GroupChange::Patch(patch) => (patch.id, &patch.added, &patch.removed[..]),
        GroupChange::Delete(_) => return (None, 1, true),
    };
    if done == 0 && members.len() <= room {
        return (None, members.len() + removed.len(), true);
    }
    let last = members.len().min(done + room);
    let now = members[done..last].to_vec();
    let piece = match of {
        GroupChange::Set(_) if done == 0 => GroupChange::Set(Arc::new(Group { id, members: now })),
        _ => {
            let removed = if done == 0 { removed.to_vec() } else { Vec::new() };
            GroupChange::Patch(Arc::new(Patch { id, added: now, removed }))
        }
    };
    (Some(wrap(piece)), last - done, last == members.len())
}

/// Reassembles a batch from its parts.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: usize,
    snapshot: bool,
    changes: Vec<Change>,
}

impl Assembly {
    /// Adds a part. Returns the batch after the last one.
    pub(super) fn add(&mut self, part: wire::Part) -> Result<Option<Batch>, Invalid> {
        if self.parts > 0 && part.snapshot != self.snapshot {
            return Err(Invalid::new("part.snapshot", "differs from the first part of the batch"));
        }
        (self.parts, self.snapshot) = (self.parts + 1, part.snapshot);
        for change in decode::changes(part.changes) {
            self.changes.push(change?);
        }
        if !part.end {
            return Ok(None);
        }
        let Self { snapshot, changes, .. } = std::mem::take(self);
        Ok(Some(Batch { snapshot, changes }))
    }
}
