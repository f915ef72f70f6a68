//! Objects as they come in: the right kind, for the right place, with fields of the right types.

use serde_json::Value;

use super::{Core, Strictness, Write};
use crate::failure::{Failure, FieldError};
use crate::resources::Resource;
use crate::schema::decode;
use crate::value::{self, text};

impl Core {
    /// Checks an object against the resource and the path it was sent to. Answers with warnings.
    pub(super) fn accept(
        &self,
        resource: &Resource,
        namespace: &str,
        name: Option<&str>,
        object: &mut Value,
        write: &Write,
    ) -> Result<Vec<String>, Failure> {
        self.check_kind(resource, object)?;
        let (version, kind) = (&resource.version, &resource.kind);
        let warnings = read(resource, object, write).map_err(|why| {
            Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
        })?;
        check_place(resource, namespace, name, object)?;
        Ok(warnings)
    }

    /// Checks what a patch has made of an object. Answers with warnings.
    pub(super) fn accept_patched(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        object: &mut Value,
        patch: &Value,
        write: &Write,
    ) -> Result<Vec<String>, Failure> {
        self.check_kind(resource, object)?;
        let patched = object.clone();
        let warnings = read(resource, object, write).map_err(|why| {
            let shown = crate::patch::shown(resource.schema(), &resource.shape, &patched, patch);
            Failure::invalid("", "", "", &[FieldError::invalid("patch", &shown.into(), &why)])
        })?;
        check_place(resource, namespace, Some(name), object)?;
        Ok(warnings)
    }

    fn check_kind(&self, resource: &Resource, object: &mut Value) -> Result<(), Failure> {
        let (api_version, kind) = (text(object, "apiVersion").to_owned(), text(object, "kind").to_owned());
        let expected = resource.api_version();
        if (!api_version.is_empty() && api_version != expected) || (!kind.is_empty() && kind != resource.kind) {
            return Err(self.wrong_kind(resource, &api_version, &kind, text(object, "metadata.name")));
        }
        value::set(object, "apiVersion", expected);
        value::set(object, "kind", resource.kind.as_str());
        Ok(())
    }

    fn wrong_kind(&self, resource: &Resource, api_version: &str, kind: &str, name: &str) -> Failure {
        let expected = resource.api_version();
        let given = if api_version.is_empty() { &expected } else { api_version };
        let version = given.rsplit('/').next().unwrap_or_default();
        let to = resource.kind.as_str();
        let cannot = |why: String| {
            Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {to}: {why}"))
        };
        let known = self.registry().of_kind(given, kind).is_some_and(|known| known.custom.is_none());
        match (resource.custom.is_some(), given == expected) {
            (true, true) => {
                let wrong = FieldError::invalid("kind", &kind.into(), &format!("must be {to}"));
                Failure::invalid(&resource.group, kind, name, &[wrong])
            }
            (false, true) if known => cannot(format!("converting (v1.{kind}) to (core.{to}): unknown conversion")),
            (false, _) if !known => {
                let scheme = "pkg/runtime/scheme.go:111";
                cannot(format!("no kind \"{kind}\" is registered for version \"{given}\" in scheme \"{scheme}\""))
            }
            (_, _) => Failure::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )),
        }
    }
}

/// Checks the types of all fields, and what the client says of fields that there are not, or twice.
fn read(resource: &Resource, object: &mut Value, write: &Write) -> Result<Vec<String>, String> {
    let decoded = decode(resource.schema(), &resource.shape, object)?;
    let twice = write.twice.iter().map(|path| format!("duplicate field \"{path}\""));
    let odd: Vec<_> = twice.chain(decoded.unknown.iter().map(|path| format!("unknown field \"{path}\""))).collect();
    match write.strictness {
        Strictness::Strict if !odd.is_empty() => Err(format!("strict decoding error: {}", odd.join(", "))),
        Strictness::Warn => Ok(odd),
        Strictness::Strict | Strictness::Ignore => Ok(Vec::new()),
    }
}

/// The object is where it says it is, and says so.
fn check_place(resource: &Resource, namespace: &str, name: Option<&str>, object: &mut Value) -> Result<(), Failure> {
    if resource.namespaced {
        match text(object, "metadata.namespace") {
            "" => value::set(object, "metadata.namespace", namespace),
            other if other != namespace => {
                let why = format!(
                    "the namespace of the provided object does not match the namespace sent on the request ({other} != {namespace})"
                );
                let why =
                    if resource.custom.is_some() { why } else { why.split(" (").next().unwrap_or_default().to_owned() };
                return Err(Failure::bad_request(why));
            }
            _ => {}
        }
    }
    if let Some(name) = name {
        match text(object, "metadata.name") {
            "" => value::set(object, "metadata.name", name),
            other if other != name => {
                let why = format!("the name of the object ({other}) does not match the name on the URL ({name})");
                return Err(Failure::bad_request(why));
            }
            _ => {}
        }
    }
    Ok(())
}
