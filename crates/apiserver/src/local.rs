//! The API without a socket: for controllers, the lab and simulations.

use std::sync::Arc;

use serde_json::Value;

use crate::core::{Core, DeleteOptions, ListOptions, PatchKind, Write};
use crate::failure::Failure;
use crate::resources::Resource;
use crate::selector::{Labels, Selector};

/// The kinds of patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// By the keys of lists, for built-in types.
    Strategic,
    /// Server-side apply, which takes over what others own.
    Apply,
}

/// A handle to a server in this process, as the admin. Objects are JSON, `api_version` is like `v1` or `apps/v1`.
#[derive(Clone)]
pub struct Local {
    core: Arc<Core>,
    manager: String,
}

impl Local {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, manager: "embedded".to_owned() }
    }

    /// The same handle, owning fields under another name.
    pub fn named(&self, manager: &str) -> Self {
        Self { core: self.core.clone(), manager: manager.to_owned() }
    }

    fn resource(&self, api_version: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.core.registry().get(group, version, plural).cloned().ok_or_else(Failure::no_such_path)
    }

    fn write(&self, subresource: &str) -> Write {
        Write { subresource: subresource.to_owned(), force: true, ..Write::by(&self.manager) }
    }

    /// One object.
    pub fn get(&self, api_version: &str, plural: &str, namespace: &str, name: &str) -> Result<Value, Failure> {
        let resource = self.resource(api_version, plural)?;
        Ok(self.core.seen_as(&resource, self.core.get(&resource, namespace, name)?.value()))
    }

    /// All objects in a namespace, or in all with an empty one, that a label selector selects, and their revision.
    pub fn list(
        &self,
        api_version: &str,
        plural: &str,
        namespace: &str,
        labels: &str,
    ) -> Result<(Vec<Value>, u64), Failure> {
        let resource = self.resource(api_version, plural)?;
        let selector = Selector { labels: Labels::parse(labels)?, ..Selector::default() };
        let listed = self.core.list(&resource, namespace, &ListOptions { selector, ..ListOptions::default() })?;
        let objects = listed.objects.iter().map(|stored| self.core.seen_as(&resource, stored.value())).collect();
        Ok((objects, listed.revision))
    }

    /// Makes an object.
    pub fn create(&self, api_version: &str, plural: &str, namespace: &str, object: Value) -> Result<Value, Failure> {
        let resource = self.resource(api_version, plural)?;
        Ok(self.core.create(&resource, namespace, object, &self.write(""))?.object)
    }

    /// Replaces an object, or only its `status`.
    pub fn update(
        &self,
        api_version: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        subresource: &str,
        object: Value,
    ) -> Result<Value, Failure> {
        let resource = self.resource(api_version, plural)?;
        Ok(self.core.update(&resource, namespace, name, object, &self.write(subresource))?.object)
    }

    /// Changes an object, or only its `status`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of what a request says")]
    pub fn patch(
        &self,
        api_version: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        subresource: &str,
        kind: Patch,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let resource = self.resource(api_version, plural)?;
        let kind = match kind {
            Patch::Json => PatchKind::Json,
            Patch::Merge => PatchKind::Merge,
            Patch::Strategic => PatchKind::Strategic,
            Patch::Apply => PatchKind::Apply,
        };
        let write = self.write(subresource);
        loop {
            match self.core.patch(&resource, namespace, name, kind, patch.clone(), &write) {
                Err(failure) if kind == PatchKind::Apply && failure.is_overtaken() => {}
                result => return Ok(result?.object),
            }
        }
    }

    /// Deletes an object; with a grace of 0 seconds at once.
    pub fn delete(
        &self,
        api_version: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        grace_seconds: Option<i64>,
    ) -> Result<(), Failure> {
        let resource = self.resource(api_version, plural)?;
        let options = DeleteOptions { grace_seconds, ..DeleteOptions::default() };
        self.core.delete(&resource, namespace, name, &options).map(drop)
    }

    /// Waits until a resource has changed after a revision, and answers with its latest one.
    pub async fn changed(&self, api_version: &str, plural: &str, after: u64) -> Result<u64, Failure> {
        let resource = self.resource(api_version, plural)?;
        let mut latest = self.core.store.subscribe(&resource.shelf);
        let result = latest.wait_for(|latest| *latest > after).await.map(|latest| *latest);
        result.map_err(|_| Failure::expired("the resource is gone"))
    }

    /// How many objects a resource has.
    pub fn count(&self, api_version: &str, plural: &str) -> Result<usize, Failure> {
        Ok(self.core.store.count(&self.resource(api_version, plural)?.shelf))
    }
}
