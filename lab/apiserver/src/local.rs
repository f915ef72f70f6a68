//! The API without a socket, for controllers, the lab and simulations.

use std::sync::Arc;

use serde_json::Value;

use crate::core::{Core, DeleteOptions, ListOptions, PatchKind, Write};
use crate::failure::Failure;
use crate::resources::Resource;
use crate::selector::{Labels, Selector};

/// Kind of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patch {
    /// JSON patch, RFC 6902.
    Json,
    /// JSON merge patch, RFC 7386.
    Merge,
    /// Strategic merge patch: merges lists of built-in types by key.
    Strategic,
    /// Server-side apply with force: takes over fields of other managers.
    Apply,
}

/// A client of a server in this process, with the rights of the admin. Objects are JSON, `api_version` is like `v1` or
/// `apps/v1`.
#[derive(Clone)]
pub struct Local {
    core: Arc<Core>,
    manager: String,
}

impl Local {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, manager: "embedded".to_owned() }
    }

    /// The same client with another field manager.
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

    /// Reads one object by name.
    pub fn get(&self, api_version: &str, plural: &str, namespace: &str, name: &str) -> Result<Value, Failure> {
        let resource = self.resource(api_version, plural)?;
        Ok(self.core.seen_as(&resource, self.core.get(&resource, namespace, name)?.value()))
    }

    /// The objects in a namespace (in all if it is empty) that match a label selector, and their revision.
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

    /// Creates an object, and returns it as stored.
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

    /// Patches an object, or only its `status`.
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
                Err(failure) if kind == PatchKind::Apply && failure.lost_creation_race() => {}
                result => return Ok(result?.object),
            }
        }
    }

    /// Deletes an object; a grace period of 0 seconds deletes it at once.
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

    /// Waits until a resource has changed after a revision, and returns its latest one.
    pub async fn changed(&self, api_version: &str, plural: &str, after: u64) -> Result<u64, Failure> {
        let resource = self.resource(api_version, plural)?;
        let mut latest = self.core.store.subscribe(&resource.group_resource);
        let result = latest.wait_for(|latest| *latest > after).await.map(|latest| *latest);
        result.map_err(|_| Failure::expired("the resource is gone"))
    }
}
