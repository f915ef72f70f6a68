//! Watches: existing objects, then changes, until the client disconnects or the timeout expires.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::answer::{self, Form};
use super::target::Place;
use super::{Asked, Body, State};
use crate::core::revision;
use crate::failure::{Failure, FieldError};
use crate::resources::Resource;
use crate::selector::Selector;
use crate::store::{Change, Event, Stored, frame};

/// Number of events that are read at a time.
const BATCH: usize = 256;
/// After sending, a watch waits this long for more events, and sends them together.
const GATHER: Duration = Duration::from_millis(5);
/// Number of batches that are buffered for a slow client; further events stay in the history, which is bounded.
const WAITING: usize = 2;

struct Watch {
    state: Arc<State>,
    resource: Arc<Resource>,
    namespace: String,
    selector: Selector,
    asked: Asked,
    form: Form,
    bookmarks: bool,
    /// All events up to this revision were sent.
    at: u64,
    /// Whether the column definitions of the table were sent.
    begun: bool,
}

pub(super) fn watch(
    state: &Arc<State>,
    asked: &Asked,
    place: &Place,
    resource: Arc<Resource>,
    form: Form,
) -> Result<Response<Body>, Failure> {
    let mut options = super::read::options(asked, &resource)?;
    if !place.name.is_empty() {
        options.selector = Selector {
            fields: crate::selector::Fields::parse(&format!("metadata.name={}", place.name), "", |_| true)?,
            ..options.selector
        };
    }
    let initial = asked.query.flag("sendInitialEvents");
    if !asked.query.get("sendInitialEvents").is_empty() && options.version_match != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let errors = [FieldError::forbidden("resourceVersionMatch", why)];
        return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    if asked.query.get("sendInitialEvents").is_empty() && !options.version_match.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        let errors = [FieldError::forbidden("resourceVersionMatch", why)];
        return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    let from = revision(&options.resource_version).map_err(|why| Failure::new(500, "", why))?;
    let now = state.core.store.revision();
    let seconds = asked
        .query
        .number("timeoutSeconds")?
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    // Random within half an hour, so that clients do not all reconnect at once.
    let spread = u64::from(u16::from_be_bytes(crate::moment::random())) % 1800;
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(1800 + spread));
    let (sender, receiver) = mpsc::channel(WAITING);
    let namespace = if resource.plural == "namespaces" { String::new() } else { place.namespace.clone() };
    let watch = Watch {
        state: state.clone(),
        resource,
        namespace,
        selector: options.selector,
        asked: Asked {
            user: asked.user.clone(),
            method: asked.method.clone(),
            path: String::new(),
            query: asked.query.clone(),
            headers: Default::default(),
            target: super::Target::Path,
            verb: "watch",
        },
        form,
        bookmarks: asked.query.flag("allowWatchBookmarks"),
        at: from.unwrap_or(now),
        begun: false,
    };
    let all = (from.is_none() && asked.query.get("sendInitialEvents").is_empty()) || initial;
    tokio::spawn(watch.run(sender, all, initial, until));
    let mut response = Response::new(Body::stream(receiver));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Watch {
    async fn run(mut self, sender: mpsc::Sender<Vec<Bytes>>, all: bool, initial: bool, until: Instant) {
        let mut changed = self.state.core.store.subscribe(&self.resource.group_resource);
        let mut ending = self.state.ending.clone();
        if all {
            let options = crate::core::ListOptions { selector: self.selector.clone(), ..Default::default() };
            let Ok(listed) = self.state.core.list(&self.resource, &self.namespace, &options) else { return };
            self.at = listed.revision;
            for batch in listed.objects.chunks(BATCH) {
                let lines = batch.iter().map(|stored| self.added(stored)).collect();
                if sender.send(lines).await.is_err() {
                    return;
                }
            }
            if initial && self.bookmarks && sender.send(vec![self.bookmark(true)]).await.is_err() {
                return;
            }
        }
        let mut bookmark = Instant::now() + self.state.bookmark_every;
        loop {
            changed.mark_unchanged();
            match self.next() {
                Ok(Some(lines)) => {
                    let full = lines.len() == BATCH;
                    if !lines.is_empty() && sender.send(lines).await.is_err() {
                        return;
                    }
                    if !full {
                        sleep_until(Instant::now() + GATHER).await;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(failure) => {
                    let _ = sender.send(vec![frame("ERROR", failure.to_status().to_string().as_bytes())]).await;
                    return;
                }
            }
            tokio::select! {
                result = changed.changed() => if result.is_err() { return },
                () = sleep_until(bookmark), if self.bookmarks => {
                    bookmark = Instant::now() + self.state.bookmark_every;
                    if sender.send(vec![self.bookmark(false)]).await.is_err() {
                        return;
                    }
                }
                () = sleep_until(until) => {
                    if self.bookmarks {
                        let _ = sender.send(vec![self.bookmark(false)]).await;
                    }
                    return;
                }
                () = crate::server::ended(&mut ending) => return,
                () = sender.closed() => return,
            }
        }
    }

    /// An existing object at the start of a watch, as an `ADDED` event.
    fn added(&mut self, stored: &Stored) -> Bytes {
        if self.form == Form::Plain && self.resource.as_kept() {
            return frame("ADDED", &stored.bytes);
        }
        self.line("ADDED", stored.value())
    }

    /// The lines of the next events; `None` if there are none.
    fn next(&mut self) -> Result<Option<Vec<Bytes>>, Failure> {
        let (events, upto) =
            self.state.core.store.since(&self.resource.group_resource, self.at, BATCH).map_err(|compacted| {
                tracing::debug!(
                    at = self.at,
                    oldest = compacted.oldest,
                    "watch expired: its revision is no longer in the history"
                );
                Failure::expired("The resourceVersion for the provided watch is too old.")
            })?;
        // A watch from a future revision waits for it.
        self.at = self.at.max(upto);
        if events.is_empty() {
            return Ok(None);
        }
        let prefix = if self.namespace.is_empty() || !self.resource.namespaced {
            String::new()
        } else {
            format!("{}/", self.namespace)
        };
        let mine = events.iter().filter(|event| event.key.starts_with(&prefix));
        Ok(Some(mine.filter_map(|event| self.event(event)).collect()))
    }

    fn event(&mut self, event: &Event) -> Option<Bytes> {
        let mut change = event.change;
        if !self.selector.is_everything() {
            // Versions of a custom resource may have other selectable fields.
            let own;
            let (after, before) = match self.resource.custom {
                None => event.attributes(&self.resource.fields),
                Some(_) => {
                    own = event.read_attributes(&self.resource.fields);
                    &own
                }
            };
            let is = event.change != Change::Deleted && self.selector.matches(after);
            let was = before.as_ref().is_some_and(|before| self.selector.matches(before));
            change = match (was, is) {
                (false, true) => Change::Added,
                (true, true) => Change::Modified,
                (true, false) => Change::Deleted,
                (false, false) => return None,
            };
        }
        if self.form == Form::Plain && self.resource.as_kept() && change == event.change {
            return Some(event.frame.clone());
        }
        // A client whose selector no longer matches gets a deletion with the old object, at the new revision.
        let mut object = match (&event.before, change, event.change) {
            (Some(before), Change::Deleted, Change::Modified) => before.value(),
            _ => event.object.value(),
        };
        crate::value::set(&mut object, "metadata.resourceVersion", event.object.revision.to_string());
        Some(self.line(change.name(), object))
    }

    fn line(&mut self, change: &str, object: Value) -> Bytes {
        let object = self.state.core.seen_as(&self.resource, object);
        let object = answer::watched(&self.asked, self.form, &self.resource, &object, !self.begun);
        self.begun = true;
        let mut bytes = Vec::new();
        crate::store::write(&mut bytes, &object);
        frame(change, &bytes)
    }

    fn bookmark(&self, end: bool) -> Bytes {
        let mut object = match self.form {
            Form::Plain => {
                json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": {}})
            }
            Form::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {}}),
            Form::Table => {
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": null, "rows": []})
            }
        };
        crate::value::set(&mut object, "metadata.resourceVersion", self.at.to_string());
        if end && let Some(metadata) = object.get_mut("metadata") {
            crate::value::set(metadata, "annotations", json!({"k8s.io/initial-events-end": "true"}));
        }
        if self.form == Form::Plain && self.resource.custom.is_none() {
            crate::schema::normalise(self.resource.schema(), &self.resource.shape, &mut object);
        }
        let mut bytes = Vec::new();
        crate::store::write(&mut bytes, &object);
        frame("BOOKMARK", &bytes)
    }
}
