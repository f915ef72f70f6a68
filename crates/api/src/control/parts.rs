//! A batch in parts, so that nobody has to hold it in one piece: the controller has a part an agent at a time in its hands.

use std::sync::Arc;

use types::control::{Batch, Change, Group, GroupChange, Patch};

use super::{decode, encode, wire};
use crate::control::Invalid;

/// Members and changes that a part has at most.
const MOST_IN_A_PART: usize = 256;

/// A batch that becomes parts one by one. A group that is too large for one part is set with some of its members, and the others
/// are added to it.
pub(super) struct Parts {
    snapshot: bool,
    changes: std::vec::IntoIter<Change>,
    /// What is left of a change that did not fit, and how many of its members are done.
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
        let mut room = MOST_IN_A_PART;
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

/// As much of a change as there is room for, from the member on that is next: the piece if it is not the whole, how many members it
/// has, and whether that is the last of it.
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

/// Parts that become a batch.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: usize,
    snapshot: bool,
    changes: Vec<Change>,
}

impl Assembly {
    /// Takes in a part; gives the batch with its last one.
    pub(super) fn add(&mut self, part: wire::Part) -> Result<Option<Batch>, Invalid> {
        if self.parts > 0 && part.snapshot != self.snapshot {
            return Err(Invalid::new("part.snapshot", "is not what the first part of the batch says"));
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
