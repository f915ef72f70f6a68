//! Objects by resource, namespace and name, with one counter of revisions and a bounded history for watches.
//!
//! An object is kept as the bytes of its JSON, once: the same bytes are what a get returns, what lists are joined from and
//! what watchers are sent, since an object's bytes are a slice of the watch event that announced it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::selector::Attributes;

mod encode;
pub(crate) use encode::{encode, frame, write};

/// An object at one revision.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    pub(crate) bytes: Bytes,
}

impl Stored {
    /// The object; what is stored is JSON that this program wrote.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

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
    attributes: OnceLock<(Attributes, Option<Attributes>)>,
}

impl Event {
    /// What selectors look at, after and before; read from the bytes once for all watchers.
    pub(crate) fn attributes(&self) -> &(Attributes, Option<Attributes>) {
        self.attributes.get_or_init(|| {
            let before = self.before.as_ref().map(|before| Attributes::of(&before.bytes));
            (Attributes::of(&self.object.bytes), before)
        })
    }
}

/// Under which condition a write is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// Why a write was not carried out: the object is not as expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unexpected;

/// Why events cannot be had: they are no longer kept. The oldest revision from which one can start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

struct Shelf {
    objects: BTreeMap<Box<str>, Stored>,
    history: VecDeque<Arc<Event>>,
    /// Revision of the last event that is no longer kept.
    floor: u64,
    latest: watch::Sender<u64>,
}

impl Shelf {
    fn new(floor: u64) -> Self {
        Self { objects: BTreeMap::new(), history: VecDeque::new(), floor, latest: watch::Sender::new(floor) }
    }
}

struct Inner {
    revision: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
}

/// All objects of a server.
pub(crate) struct Shelves {
    inner: RwLock<Inner>,
    /// Events kept for each resource.
    kept: usize,
    /// The revision of the latest write of any resource.
    writes: watch::Sender<u64>,
}

/// A resource and its objects by key.
pub(crate) type Dumped = (Arc<str>, Vec<(Box<str>, Stored)>);

/// A page of a list.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Box<str>, Stored)>,
}

impl Shelves {
    pub(crate) fn new(kept: usize) -> Self {
        Self {
            inner: RwLock::new(Inner { revision: 1, shelves: BTreeMap::new() }),
            kept: kept.max(1),
            writes: watch::Sender::new(1),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The revision of the latest write.
    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    pub(crate) fn get(&self, shelf: &str, key: &str) -> Option<Stored> {
        self.read().shelves.get(shelf)?.objects.get(key).cloned()
    }

    /// Writes an object, which gets its revision, if what is there is as expected.
    pub(crate) fn put(
        &self,
        shelf: &Arc<str>,
        key: &str,
        object: &mut Value,
        on: Expect,
    ) -> Result<Stored, Unexpected> {
        let mut inner = self.write();
        let Inner { revision, shelves } = &mut *inner;
        let place = shelves.entry(shelf.clone()).or_insert_with(|| Shelf::new(*revision));
        let before = place.objects.get(key).cloned();
        match (&before, on) {
            (None, Expect::Absent) => {}
            (Some(before), Expect::Revision(revision)) if before.revision == revision => {}
            _ => return Err(Unexpected),
        }
        *revision += 1;
        crate::value::set(object, "metadata.resourceVersion", revision.to_string());
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        let (frame, bytes) = encode(change, object);
        let stored = Stored { revision: *revision, bytes };
        place.objects.insert(key.into(), stored.clone());
        self.record(place, change, key, stored.clone(), before, frame);
        Ok(stored)
    }

    /// Removes an object; `last` is how watchers see it go.
    pub(crate) fn remove(&self, shelf: &str, key: &str, last: &mut Value, at: u64) -> Result<Stored, Unexpected> {
        let mut inner = self.write();
        let Inner { revision, shelves } = &mut *inner;
        let place = shelves.get_mut(shelf).ok_or(Unexpected)?;
        let before = place.objects.get(key).filter(|object| object.revision == at).cloned().ok_or(Unexpected)?;
        *revision += 1;
        place.objects.remove(key);
        crate::value::set(last, "metadata.resourceVersion", revision.to_string());
        let (frame, bytes) = encode(Change::Deleted, last);
        let stored = Stored { revision: *revision, bytes };
        self.record(place, Change::Deleted, key, stored.clone(), Some(before), frame);
        Ok(stored)
    }

    fn record(
        &self,
        shelf: &mut Shelf,
        change: Change,
        key: &str,
        object: Stored,
        before: Option<Stored>,
        frame: Bytes,
    ) {
        let revision = object.revision;
        let event = Event { change, key: key.into(), object, before, frame, attributes: OnceLock::new() };
        shelf.history.push_back(Arc::new(event));
        while shelf.history.len() > self.kept {
            shelf.floor = shelf.history.pop_front().map_or(shelf.floor, |event| event.object.revision);
        }
        shelf.latest.send_replace(revision);
        self.writes.send_replace(revision);
    }

    /// Forgets the history up to now, so that watches from before end and lists start anew.
    pub(crate) fn compact(&self) {
        let mut inner = self.write();
        let revision = inner.revision;
        for shelf in inner.shelves.values_mut() {
            shelf.history.clear();
            shelf.floor = revision;
        }
    }

    /// The objects whose keys start with `prefix`, after the key `after`, as they were at revision `at` or as they are.
    pub(crate) fn list(&self, shelf: &str, prefix: &str, after: &str, at: Option<u64>) -> Result<Page, Compacted> {
        let inner = self.read();
        let revision = inner.revision;
        let Some(place) = inner.shelves.get(shelf) else {
            return Ok(Page { revision: at.unwrap_or(revision), objects: Vec::new() });
        };
        let from = if after.is_empty() { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let range = place.objects.range::<str, _>((from, Bound::Unbounded));
        let current =
            range.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, object)| (key.clone(), object.clone()));
        let Some(at) = at.filter(|&at| at < revision) else {
            return Ok(Page { revision, objects: current.collect() });
        };
        if at < place.floor {
            return Err(Compacted { oldest: place.floor });
        }
        // Undo what happened since, the latest first.
        let mut objects: BTreeMap<_, _> = current.collect();
        for event in place.history.iter().rev().take_while(|event| event.object.revision > at) {
            if !event.key.starts_with(prefix) || (!after.is_empty() && *event.key <= *after) {
                continue;
            }
            match &event.before {
                Some(before) => objects.insert(event.key.clone(), before.clone()),
                None => objects.remove(&event.key),
            };
        }
        Ok(Page { revision: at, objects: objects.into_iter().collect() })
    }

    /// How many objects a resource has.
    pub(crate) fn count(&self, shelf: &str) -> usize {
        self.read().shelves.get(shelf).map_or(0, |shelf| shelf.objects.len())
    }

    /// Says when anything changes.
    pub(crate) fn writes(&self) -> watch::Receiver<u64> {
        self.writes.subscribe()
    }

    /// The names of all resources that have been used.
    pub(crate) fn shelves(&self) -> Vec<Arc<str>> {
        self.read().shelves.keys().cloned().collect()
    }

    /// The revision of the latest change of a resource.
    pub(crate) fn latest(&self, shelf: &str) -> u64 {
        self.read().shelves.get(shelf).map_or(0, |shelf| *shelf.latest.borrow())
    }

    /// Says when the resource changes; holds the revision of its latest change.
    pub(crate) fn subscribe(&self, shelf: &Arc<str>) -> watch::Receiver<u64> {
        let mut inner = self.write();
        let revision = inner.revision;
        inner.shelves.entry(shelf.clone()).or_insert_with(|| Shelf::new(revision)).latest.subscribe()
    }

    /// Up to `most` events after a revision, and the revision up to which that is all there is.
    pub(crate) fn since(&self, shelf: &str, after: u64, most: usize) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        let inner = self.read();
        let Some(place) = inner.shelves.get(shelf) else { return Ok((Vec::new(), inner.revision)) };
        if after < place.floor {
            return Err(Compacted { oldest: place.floor });
        }
        let start = place.history.partition_point(|event| event.object.revision <= after);
        let events: Vec<_> = place.history.iter().skip(start).take(most).cloned().collect();
        let upto = match events.last() {
            Some(last) if events.len() == most => last.object.revision,
            _ => inner.revision,
        };
        Ok((events, upto))
    }

    /// Everything, for a snapshot: the revision, and the objects by shelf and key.
    pub(crate) fn dump(&self) -> (u64, Vec<Dumped>) {
        let inner = self.read();
        let shelf = |(name, shelf): (&Arc<str>, &Shelf)| {
            (name.clone(), shelf.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect())
        };
        (inner.revision, inner.shelves.iter().map(shelf).collect())
    }

    /// Puts back what [`Shelves::dump`] gave; watches from before start anew.
    pub(crate) fn restore(&self, revision: u64, objects: impl Iterator<Item = (Arc<str>, Box<str>, Value)>) {
        let mut inner = self.write();
        inner.revision = inner.revision.max(revision);
        let floor = inner.revision;
        for (shelf, key, object) in objects {
            let revision = crate::value::text(&object, "metadata.resourceVersion").parse().unwrap_or(floor);
            let (_, bytes) = encode(Change::Added, &object);
            let place = inner.shelves.entry(shelf).or_insert_with(|| Shelf::new(floor));
            place.objects.insert(key, Stored { revision, bytes });
        }
    }

    /// Forgets a resource and all its objects, without telling watchers: for custom resources that are gone.
    pub(crate) fn drop_shelf(&self, shelf: &str) {
        self.write().shelves.remove(shelf);
    }
}

#[cfg(test)]
mod tests;
