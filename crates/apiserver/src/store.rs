//! Objects by resource, namespace and name, with one counter of revisions and a bounded history for watches.
//!
//! An object is kept as the bytes of its JSON, once: the same bytes are what a get returns, what lists are joined from and
//! what watchers are sent, since an object's bytes are a slice of the watch event that announced it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

mod encode;
mod event;
pub(crate) use encode::{encode, frame, write};
pub(crate) use event::{Change, Event};

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
    /// Bytes of the objects in the history.
    held: usize,
    /// Revision of the last event that is no longer kept.
    floor: u64,
    latest: watch::Sender<u64>,
}

impl Shelf {
    fn new(floor: u64) -> Self {
        Self { objects: BTreeMap::new(), history: VecDeque::new(), held: 0, floor, latest: watch::Sender::new(floor) }
    }
}

struct Inner {
    revision: u64,
    /// Nothing is known of what happened up to here: it was before the snapshot.
    dawn: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
}

impl Inner {
    fn shelf(&mut self, name: &Arc<str>) -> &mut Shelf {
        let dawn = self.dawn;
        self.shelves.entry(name.clone()).or_insert_with(|| Shelf::new(dawn))
    }
}

/// Bytes of objects that the history of a resource holds at most: large objects are forgotten sooner.
const HELD: usize = 64 << 20;

/// All objects of a server.
pub(crate) struct Shelves {
    inner: RwLock<Inner>,
    /// Events kept for each resource.
    kept: usize,
    /// Bytes of their objects kept for each resource.
    held: usize,
    /// The revision of the latest write of any resource.
    writes: watch::Sender<u64>,
}

/// What happened to which resource.
pub(crate) type Happened = (Arc<str>, Arc<Event>);

/// A resource and its objects by key.
pub(crate) type Dumped = (Arc<str>, Vec<(Box<str>, Stored)>);

/// A page of a list.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Box<str>, Stored)>,
    /// How many objects come after those.
    pub(crate) left: usize,
}

impl Shelves {
    pub(crate) fn new(kept: usize) -> Self {
        Self::bounded(kept, HELD)
    }

    fn bounded(kept: usize, held: usize) -> Self {
        Self {
            held,
            inner: RwLock::new(Inner { revision: 1, dawn: 0, shelves: BTreeMap::new() }),
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
        let next = inner.revision + 1;
        let place = inner.shelf(shelf);
        let before = place.objects.get(key).cloned();
        match (&before, on) {
            (None, Expect::Absent) => {}
            (Some(before), Expect::Revision(revision)) if before.revision == revision => {}
            _ => return Err(Unexpected),
        }
        crate::value::set(object, "metadata.resourceVersion", next.to_string());
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        let (frame, bytes) = encode(change, object);
        let stored = Stored { revision: next, bytes };
        place.objects.insert(key.into(), stored.clone());
        self.record(place, change, key, stored.clone(), before, frame);
        inner.revision = next;
        Ok(stored)
    }

    /// Removes an object; `last` is how watchers see it go.
    pub(crate) fn remove(&self, shelf: &str, key: &str, last: &mut Value, at: u64) -> Result<Stored, Unexpected> {
        let mut inner = self.write();
        let Inner { revision, shelves, .. } = &mut *inner;
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
        let event = Event::new(change, key, object, before, frame);
        shelf.held += event.frame.len();
        shelf.history.push_back(Arc::new(event));
        while shelf.history.len() > self.kept || (shelf.held > self.held && shelf.history.len() > 1) {
            let Some(oldest) = shelf.history.pop_front() else { break };
            shelf.held -= oldest.frame.len();
            shelf.floor = oldest.object.revision;
        }
        shelf.latest.send_replace(revision);
        self.writes.send_replace(revision);
    }

    /// Forgets the history up to now: lists and watches of a time before the last change of a resource start anew.
    pub(crate) fn compact(&self) {
        for shelf in self.write().shelves.values_mut() {
            shelf.floor = shelf.history.back().map_or(shelf.floor, |event| event.object.revision);
            shelf.history.clear();
            shelf.held = 0;
        }
    }

    /// The objects whose keys start with `prefix`, after the key `after`, as they were at revision `at` or as they are.
    pub(crate) fn list(&self, shelf: &str, prefix: &str, after: &str, at: Option<u64>) -> Result<Page, Compacted> {
        self.page(shelf, prefix, after, at, usize::MAX)
    }

    /// The first `most` objects of a list.
    pub(crate) fn page(
        &self,
        shelf: &str,
        prefix: &str,
        after: &str,
        at: Option<u64>,
        most: usize,
    ) -> Result<Page, Compacted> {
        let inner = self.read();
        let revision = inner.revision;
        let Some(place) = inner.shelves.get(shelf) else {
            return Ok(Page { revision: at.unwrap_or(revision), objects: Vec::new(), left: 0 });
        };
        let from = if after.is_empty() { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let range = place.objects.range::<str, _>((from, Bound::Unbounded));
        let mut current =
            range.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, object)| (key.clone(), object.clone()));
        let Some(at) = at.filter(|&at| at < revision) else {
            let objects = current.by_ref().take(most).collect();
            return Ok(Page { revision, objects, left: current.count() });
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
        let left = objects.len().saturating_sub(most);
        Ok(Page { revision: at, objects: objects.into_iter().take(most).collect(), left })
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
        self.write().shelf(shelf).latest.subscribe()
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

    /// All events of all resources after a revision, in order, and the revision up to which that is all there is.
    pub(crate) fn all_since(&self, after: u64) -> Result<(Vec<Happened>, u64), Compacted> {
        let inner = self.read();
        let mut all = Vec::new();
        for (name, shelf) in &inner.shelves {
            if after < shelf.floor {
                return Err(Compacted { oldest: shelf.floor });
            }
            let start = shelf.history.partition_point(|event| event.object.revision <= after);
            all.extend(shelf.history.iter().skip(start).map(|event| (name.clone(), event.clone())));
        }
        all.sort_by_key(|(_, event)| event.object.revision);
        Ok((all, inner.revision))
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
        inner.dawn = inner.revision;
        for (shelf, key, object) in objects {
            let revision = crate::value::text(&object, "metadata.resourceVersion").parse().unwrap_or(revision);
            let (_, bytes) = encode(Change::Added, &object);
            inner.shelf(&shelf).objects.insert(key, Stored { revision, bytes });
        }
    }

    /// Forgets a resource and all its objects, and ends its watches: for custom resources that are gone.
    pub(crate) fn drop_shelf(&self, shelf: &str) {
        let mut inner = self.write();
        let revision = inner.revision;
        if let Some(place) = inner.shelves.get_mut(shelf) {
            // Should the resource come back, nobody goes on where they were.
            *place = Shelf::new(revision);
        }
    }
}

#[cfg(test)]
mod tests;
