//! Patch, and server-side apply.

use serde_json::Value;

use super::{Core, Write, Written};
use crate::failure::Failure;
use crate::managed::{self, Writer};
use crate::patch;
use crate::resources::Resource;
use crate::value::{self, set, text};

/// Content types of patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Core {
    /// Patches an object. An apply that finds no object and loses the race to create it fails with `AlreadyExists` and
    /// must be repeated: keeping a copy of the body for that would cost every apply of a large object.
    pub(crate) fn patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        kind: PatchKind,
        patch: Value,
        write: &Write,
    ) -> Result<Written, Failure> {
        if kind == PatchKind::Apply {
            return self.apply(resource, namespace, name, patch, write);
        }
        if kind == PatchKind::Strategic && resource.custom.is_some() {
            let known = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            let why =
                format!("the body of the request was in an unknown format - accepted media types include: {known}");
            return Err(Failure::new(415, "UnsupportedMediaType", why));
        }
        let mut warnings = Vec::new();
        let written = self.modify(resource, namespace, name, write, true, |old| {
            let mut new = old.clone();
            match kind {
                PatchKind::Json => patch::json(&mut new, &patch)?,
                PatchKind::Merge => patch::merge_object(&mut new, &patch)?,
                PatchKind::Strategic | PatchKind::Apply => {
                    patch::strategic(resource.schema(), &resource.shape, &mut new, &patch)?;
                }
            }
            let strategic = kind == PatchKind::Strategic;
            same_uid(resource, name, old, &new)?;
            warnings = self.accept_patched(resource, (namespace, name), &mut new, &patch, strategic, write)?;
            Ok(new)
        })?;
        Ok(written.warned(warnings))
    }

    fn apply(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut config: Value,
        write: &Write,
    ) -> Result<Written, Failure> {
        if write.manager.is_empty() {
            let errors = [crate::failure::FieldError::required("fieldManager", "is required for apply patch")];
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
        }
        if !value::at(&config, "metadata.managedFields").is_null() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let api_version = resource.api_version();
        let (given, kind) = (text(&config, "apiVersion"), text(&config, "kind"));
        if (given, kind) != (api_version.as_str(), resource.kind.as_str()) {
            let (group, version) = given.split_once('/').unwrap_or(("", given));
            return Err(Failure::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        managed::check(resource.schema(), &resource.shape, &config).map_err(|why| {
            let (namespace, name) = (text(&config, "metadata.namespace"), text(&config, "metadata.name"));
            let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
            let what = format!("({namespace}/{name}; {group}/{version}, Kind={kind})");
            Failure::new(500, "", format!("failed to create typed patch object {what}: {why}"))
        })?;
        value::default_text(&mut config, "metadata.name", name);
        let warnings = self.accept(resource, namespace, Some(name), &mut config, write)?;
        let writer = Writer { manager: &write.manager, api_version: &api_version, subresource: &write.subresource };
        let (schema, shape) = (resource.schema(), &resource.shape);
        let result = self.modify(resource, namespace, name, write, false, |old| {
            same_uid(resource, name, old, &config)?;
            let mut merged = managed::apply(schema, shape, old, &config, writer, write.force)?;
            let asked = text(&config, "metadata.resourceVersion");
            set(
                &mut merged,
                "metadata.resourceVersion",
                if asked.is_empty() { text(old, "metadata.resourceVersion") } else { asked },
            );
            Ok(merged)
        });
        match result {
            Err(failure) if failure.code == 404 && write.subresource.is_empty() => {}
            result => return result.map(|written| written.warned(warnings)),
        }
        let uid = text(&config, "metadata.uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Failure::conflict(resource.id(), name, &why));
        }
        let new = managed::apply_new(schema, shape, config, writer);
        Ok(self.insert(resource, namespace, new, write, false)?.warned(warnings))
    }
}

/// A patch with a uid must match the existing object.
fn same_uid(resource: &Resource, name: &str, old: &Value, new: &Value) -> Result<(), Failure> {
    let uid = value::at(new, "metadata.uid");
    if uid.is_null() || uid == value::at(old, "metadata.uid") {
        return Ok(());
    }
    // The real server reports it twice.
    let errors = [(); 2].map(|()| crate::validate::immutable("metadata.uid", uid));
    Err(Failure::invalid(resource.kept_group(), &resource.kind, name, &errors))
}
