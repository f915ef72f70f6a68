//! List, by pages and at revisions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Core;
use crate::failure::Failure;
use crate::resources::Resource;
use crate::selector::Selector;
use crate::store::Stored;
use crate::value::{at, text};

/// What to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    /// `Exact`, `NotOlderThan`, or nothing.
    pub(crate) version_match: String,
}

/// What was listed.
pub(crate) struct Listed {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Stored>,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl Listed {
    /// The metadata of the list.
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
        let prefix = if namespace.is_empty() || !resource.namespaced { String::new() } else { format!("{namespace}/") };
        let (mut after, mut at_revision) = (String::new(), None);
        if !options.continue_token.is_empty() {
            let (revision, start) = read_token(&options.continue_token)?;
            (after, at_revision) = (start, Some(revision));
        } else if let Some(asked) = revision(&options.resource_version)? {
            if asked > self.store.revision() {
                return Err(too_large(asked, self.store.revision()));
            }
            if options.version_match == "Exact" {
                at_revision = Some(asked);
            }
        }
        let page = self.store.list(&resource.shelf, &prefix, &after, at_revision).map_err(|compacted| {
            if options.continue_token.is_empty() {
                Failure::expired(format!("The resourceVersion for the provided list is too old ({})", compacted.oldest))
            } else {
                Failure::expired(TOO_OLD)
            }
        })?;
        let (selector, everything) = (&options.selector, options.selector.is_everything());
        let name = selector
            .name()
            .map(|name| resource.key(namespace, name))
            .filter(|_| !namespace.is_empty() || !resource.namespaced);
        let matches = |key: &str, stored: &Stored| {
            everything || (name.as_deref().is_none_or(|name| name == key) && selector.matches_bytes(&stored.bytes))
        };
        let mut found = page.objects.into_iter().filter(|(key, stored)| matches(key, stored));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut objects = Vec::new();
        let mut last = None;
        for (key, stored) in found.by_ref().take(limit) {
            objects.push(stored);
            last = Some(key);
        }
        let mut rest = found.peekable();
        let more = rest.peek().is_some();
        let continue_token = last.filter(|_| more).map(|key| write_token(page.revision, &key));
        let remaining = (more && everything).then(|| rest.count());
        Ok(Listed { revision: page.revision, objects, continue_token, remaining })
    }
}

/// A revision as a request gives it: none for "" and "0".
pub(crate) fn revision(text: &str) -> Result<Option<u64>, Failure> {
    match text {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            Failure::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"))
        }),
    }
}

/// Asked for a revision that is not there yet.
pub(crate) fn too_large(asked: u64, current: u64) -> Failure {
    let message = format!("Too large resource version: {asked}, current: {current}");
    let failure = Failure::new(504, "Timeout", format!("Timeout: {message}"));
    let mut failure = failure.with_cause("ResourceVersionTooLarge", "Too large resource version", "");
    if let Some(details) = &mut failure.details {
        crate::value::set(details, "retryAfterSeconds", 1);
    }
    failure
}

fn write_token(revision: u64, after: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\0")});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn read_token(token: &str) -> Result<(u64, String), Failure> {
    let bad = || Failure::bad_request("continue key is not valid: invalid character");
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    let revision = at(&token, "rv").as_u64().ok_or_else(bad)?;
    Ok((revision, text(&token, "start").trim_end_matches('\0').to_owned()))
}
