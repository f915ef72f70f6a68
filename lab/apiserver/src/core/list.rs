//! List, by pages and at revisions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Core;
use crate::failure::Failure;
use crate::resources::Resource;
use crate::selector::{Fields, Selector};
use crate::store::Stored;
use crate::value::{at, text};

/// Options of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    /// `Exact`, `NotOlderThan`, or nothing.
    pub(crate) version_match: String,
}

impl ListOptions {
    /// Selects the Pods of a Node.
    pub(crate) fn of_node(name: &str) -> Result<Self, Failure> {
        let fields = Fields::parse(&format!("spec.nodeName={name}"), "", |_| true)?;
        Ok(Self { selector: Selector { fields, ..Selector::default() }, ..Self::default() })
    }
}

/// The result of a list.
pub(crate) struct Listed {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Stored>,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl Listed {
    /// `metadata` of the list.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            crate::value::set(&mut metadata, "continue", token.as_str());
        }
        if let Some(remaining) = self.remaining {
            crate::value::set(&mut metadata, "remainingItemCount", remaining);
        }
        metadata
    }
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
    without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
    Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between \
    the time the first chunk was returned and now may show up in the list.";

impl Core {
    pub(crate) fn list(&self, resource: &Resource, namespace: &str, options: &ListOptions) -> Result<Listed, Failure> {
        let (mut after, mut at_revision) = (String::new(), None);
        if !options.continue_token.is_empty() {
            (at_revision, after) = read_token(&options.continue_token)?;
        } else if let Some(asked) = revision(&options.resource_version)
            .map_err(|why| Failure::bad_request(format!("invalid resource version: {why}")))?
        {
            if asked > self.store.revision() {
                return Err(too_large(asked, self.store.revision()));
            }
            if options.version_match == "Exact" {
                at_revision = Some(asked);
            }
        }
        let (selector, everything) = (&options.selector, options.selector.is_everything());
        let place = if resource.namespaced { namespace } else { "" };
        // A field selector for one name needs only that object.
        let one = selector.name().filter(|_| !place.is_empty() || !resource.namespaced);
        let one = one.map(|name| resource.key(namespace, name));
        let prefix = match &one {
            Some(key) => key.clone(),
            None if place.is_empty() => String::new(),
            None => format!("{place}/"),
        };
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let most = if everything { limit } else { usize::MAX };
        let page = self.store.page(&resource.group_resource, &prefix, &after, at_revision, most).map_err(|_| {
            if options.continue_token.is_empty() {
                return Failure::expired("The resourceVersion for the provided list is too old.");
            }
            let mut failure = Failure::expired(TOO_OLD);
            failure.continue_token = Some(write_token(None, &after));
            failure
        })?;
        let matches = |key: &str, stored: &Stored| {
            everything || (one.as_deref().is_none_or(|one| one == key) && selector.matches_bytes(&stored.bytes))
        };
        let mut objects = Vec::new();
        let mut last = None;
        let mut rest = page.objects.into_iter();
        for (key, stored) in rest.by_ref().filter(|(key, stored)| matches(key, stored)).take(limit) {
            objects.push(stored);
            last = Some(key);
        }
        // The rest is not filtered: the next page may turn out to be empty.
        let left = rest.len() + page.left;
        let continue_token = last.filter(|_| left > 0).map(|key| write_token(Some(page.revision), &key));
        let remaining = (left > 0 && everything).then_some(left);
        Ok(Listed { revision: page.revision, objects, continue_token, remaining })
    }
}

/// The `resourceVersion` of a request; `None` for "" and "0".
pub(crate) fn revision(text: &str) -> Result<Option<u64>, String> {
    match text {
        "" | "0" => Ok(None),
        text => {
            let malformed = |_| format!("resourceVersion: Invalid value: {text:?}: {}", not_a_number(text));
            text.parse().map(Some).map_err(malformed)
        }
    }
}

/// The message of Go for a text that is not a number.
pub(super) fn not_a_number(text: &str) -> String {
    format!("strconv.ParseUint: parsing {text:?}: invalid syntax")
}

/// The requested revision does not exist yet.
fn too_large(asked: u64, current: u64) -> Failure {
    let message = format!("Too large resource version: {asked}, current: {current}");
    let failure = Failure::new(504, "Timeout", format!("Timeout: {message}"));
    failure.with_cause("ResourceVersionTooLarge", "Too large resource version", "")
}

/// The continue token: the revision, unless it is the latest, and the last key.
fn write_token(revision: Option<u64>, after: &str) -> String {
    let revision = revision.map_or(json!(-1), |revision| json!(revision));
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\0")});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn read_token(token: &str) -> Result<(Option<u64>, String), Failure> {
    let bad = |why: String| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| bad(error.to_string()))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = bytes.first().map(|first| char::from(*first)).unwrap_or_default();
        bad(format!("invalid character {first:?} looking for beginning of value"))
    })?;
    let start = text(&token, "start").trim_end_matches('\0').to_owned();
    match at(&token, "rv").as_i64() {
        Some(-1) => Ok((None, start)),
        Some(revision) if revision > 0 => Ok((u64::try_from(revision).ok(), start)),
        _ => Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned())),
    }
}
