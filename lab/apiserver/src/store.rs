//! Objects by resource, namespace and name, with one counter of revisions and a bounded history for watches.
//!
//! An object is stored once, as the bytes of its JSON: gets return them, lists are joined from them, and watches send
//! them, because they are a slice of the watch event that announced the object.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use serde::de::DeserializeOwned;
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
    /// The object as a value. The stored bytes are JSON that this program wrote.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// The object as one of [`crate::objects`].
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let read = serde_json::from_slice(&self.bytes);
        read.inspect_err(|error| tracing::warn!(%error, "a stored object does not have the shape of its kind")).ok()
    }
}

/// The precondition of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// A write failed because its precondition does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unexpected;

/// The requested events are no longer in the history. Contains the oldest revision from which events can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compacted {
    pub(crate) oldest: u64,
}

struct ResourceStore {
    objects: BTreeMap<Box<str>, Stored>,
    history: VecDeque<Arc<Event>>,
    /// Size of the events in the history in bytes.
    held: usize,
    /// Revision of the last event that is no longer in the history.
    floor: u64,
    latest: watch::Sender<u64>,
}

impl ResourceStore {
    fn new(floor: u64) -> Self {
        Self { objects: BTreeMap::new(), history: VecDeque::new(), held: 0, floor, latest: watch::Sender::new(floor) }
    }
}

struct Inner {
    revision: u64,
    /// Revision of the snapshot that was read at start; the history begins here.
    first_revision: u64,
    resources: BTreeMap<Arc<str>, ResourceStore>,
}

impl Inner {
    fn resource(&mut self, name: &Arc<str>) -> &mut ResourceStore {
        let first_revision = self.first_revision;
        self.resources.entry(name.clone()).or_insert_with(|| ResourceStore::new(first_revision))
    }
}

/// Maximum size of the history of a resource in bytes: with large objects it has fewer events.
const MAX_HISTORY_BYTES: usize = 64 << 20;

/// All objects of a server.
pub(crate) struct Store {
    inner: RwLock<Inner>,
    /// Maximum number of events in the history of each resource.
    kept: usize,
    /// Maximum size of the history of each resource in bytes.
    held: usize,
    /// Revision of the latest write to any resource.
    writes: watch::Sender<u64>,
}

/// An event with the name of its resource.
pub(crate) type ResourceEvent = (Arc<str>, Arc<Event>);

/// The name of a resource, and its objects by key.
pub(crate) type ResourceDump = (Arc<str>, Vec<(Box<str>, Stored)>);

/// A page of a list.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Box<str>, Stored)>,
    /// Number of objects after this page.
    pub(crate) left: usize,
}

impl Store {
    pub(crate) fn new(kept: usize) -> Self {
        Self::bounded(kept, MAX_HISTORY_BYTES)
    }

    fn bounded(kept: usize, held: usize) -> Self {
        Self {
            held,
            inner: RwLock::new(Inner { revision: 1, first_revision: 0, resources: BTreeMap::new() }),
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

    pub(crate) fn get(&self, group_resource: &str, key: &str) -> Option<Stored> {
        self.read().resources.get(group_resource)?.objects.get(key).cloned()
    }

    /// Writes an object and sets its revision, if the precondition holds.
    pub(crate) fn put(
        &self,
        group_resource: &Arc<str>,
        key: &str,
        object: &mut Value,
        on: Expect,
    ) -> Result<Stored, Unexpected> {
        let mut inner = self.write();
        let next = inner.revision + 1;
        let place = inner.resource(group_resource);
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

    /// Removes an object; `last` is the object for the watch event.
    pub(crate) fn remove(
        &self,
        group_resource: &str,
        key: &str,
        last: &mut Value,
        at: u64,
    ) -> Result<Stored, Unexpected> {
        let mut inner = self.write();
        let Inner { revision, resources, .. } = &mut *inner;
        let place = resources.get_mut(group_resource).ok_or(Unexpected)?;
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
        resource: &mut ResourceStore,
        change: Change,
        key: &str,
        object: Stored,
        before: Option<Stored>,
        frame: Bytes,
    ) {
        let revision = object.revision;
        let event = Event::new(change, key, object, before, frame);
        resource.held += event.frame.len();
        resource.history.push_back(Arc::new(event));
        while resource.history.len() > self.kept || (resource.held > self.held && resource.history.len() > 1) {
            let Some(oldest) = resource.history.pop_front() else { break };
            resource.held -= oldest.frame.len();
            resource.floor = oldest.object.revision;
        }
        resource.latest.send_replace(revision);
        self.writes.send_replace(revision);
    }

    /// Drops the history: lists and watches at earlier revisions must start again.
    pub(crate) fn compact(&self) {
        for resource in self.write().resources.values_mut() {
            resource.floor = resource.history.back().map_or(resource.floor, |event| event.object.revision);
            resource.history.clear();
            resource.held = 0;
        }
    }

    /// The objects with keys that start with `prefix`, after the key `after`, at revision `at` or now.
    pub(crate) fn list(
        &self,
        group_resource: &str,
        prefix: &str,
        after: &str,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        self.page(group_resource, prefix, after, at, usize::MAX)
    }

    /// The first `most` objects of a list.
    pub(crate) fn page(
        &self,
        group_resource: &str,
        prefix: &str,
        after: &str,
        at: Option<u64>,
        most: usize,
    ) -> Result<Page, Compacted> {
        let inner = self.read();
        let revision = inner.revision;
        let Some(place) = inner.resources.get(group_resource) else {
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
        // Undo later events, the latest first.
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

    /// Number of objects of a resource.
    pub(crate) fn count(&self, group_resource: &str) -> usize {
        self.read().resources.get(group_resource).map_or(0, |resource| resource.objects.len())
    }

    /// Notifies about every write, with its revision.
    pub(crate) fn writes(&self) -> watch::Receiver<u64> {
        self.writes.subscribe()
    }

    /// The names of all resources that were ever written or watched.
    pub(crate) fn group_resources(&self) -> Vec<Arc<str>> {
        self.read().resources.keys().cloned().collect()
    }

    /// The revision of the latest change of a resource.
    pub(crate) fn latest(&self, group_resource: &str) -> u64 {
        self.read().resources.get(group_resource).map_or(0, |resource| *resource.latest.borrow())
    }

    /// Notifies about changes of a resource, with the revision of the latest.
    pub(crate) fn subscribe(&self, group_resource: &Arc<str>) -> watch::Receiver<u64> {
        self.write().resource(group_resource).latest.subscribe()
    }

    /// Up to `most` events after a revision, and the revision up to which they are complete.
    pub(crate) fn since(
        &self,
        group_resource: &str,
        after: u64,
        most: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        let inner = self.read();
        let Some(place) = inner.resources.get(group_resource) else { return Ok((Vec::new(), inner.revision)) };
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

    /// All events of all resources after a revision, in order, and the revision up to which they are complete.
    pub(crate) fn all_since(&self, after: u64) -> Result<(Vec<ResourceEvent>, u64), Compacted> {
        let inner = self.read();
        let mut all = Vec::new();
        for (name, resource) in &inner.resources {
            if after < resource.floor {
                return Err(Compacted { oldest: resource.floor });
            }
            let start = resource.history.partition_point(|event| event.object.revision <= after);
            all.extend(resource.history.iter().skip(start).map(|event| (name.clone(), event.clone())));
        }
        all.sort_by_key(|(_, event)| event.object.revision);
        Ok((all, inner.revision))
    }

    /// All objects for a snapshot, by resource and key, and the revision.
    pub(crate) fn dump(&self) -> (u64, Vec<ResourceDump>) {
        let inner = self.read();
        let dump = |(name, resource): (&Arc<str>, &ResourceStore)| {
            (name.clone(), resource.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect())
        };
        (inner.revision, inner.resources.iter().map(dump).collect())
    }

    /// Restores the result of [`Store::dump`]; watches at earlier revisions must start again.
    pub(crate) fn restore(&self, revision: u64, objects: impl Iterator<Item = (Arc<str>, Box<str>, Value)>) {
        let mut inner = self.write();
        inner.revision = inner.revision.max(revision);
        inner.first_revision = inner.revision;
        for (group_resource, key, object) in objects {
            let revision = crate::value::text(&object, "metadata.resourceVersion").parse().unwrap_or(revision);
            let (_, bytes) = encode(Change::Added, &object);
            inner.resource(&group_resource).objects.insert(key, Stored { revision, bytes });
        }
    }

    /// Drops a resource with all its objects and ends its watches, after its definition was deleted.
    pub(crate) fn drop_resource(&self, group_resource: &str) {
        let mut inner = self.write();
        let revision = inner.revision;
        if let Some(place) = inner.resources.get_mut(group_resource) {
            // If the resource is defined again, watches cannot resume.
            *place = ResourceStore::new(revision);
        }
    }
}

#[cfg(test)]
mod tests;
