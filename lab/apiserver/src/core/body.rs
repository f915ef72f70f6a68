//! Decodes objects of requests: checks their kind, name, namespace and the types of their fields.

use serde_json::Value;

use super::{Core, Strictness, Write};
use crate::failure::{Failure, FieldError};
use crate::patch;
use crate::resources::Resource;
use crate::schema::{Decoded, Schema, Shape, decode, restore};
use crate::value::{self, text};

/// Why a body is not an object of the expected kind.
enum Foreign {
    /// A message about the object.
    Object(String),
    /// An error of the request.
    Request(Failure),
}

impl Core {
    /// Checks an object against the resource and path of the request. Returns warnings.
    pub(super) fn accept(
        &self,
        resource: &Resource,
        namespace: &str,
        name: Option<&str>,
        object: &mut Value,
        write: &Write,
    ) -> Result<Vec<String>, Failure> {
        let (given, kind) = stated_type(resource, object);
        let read = self.read_body(resource, object, write, decode);
        let warnings = read.map_err(|why| match why {
            Foreign::Object(why) => cannot(&given, &kind, &resource.kind, &why),
            Foreign::Request(failure) => failure,
        })?;
        check_place(resource, namespace, name, object)?;
        Ok(warnings)
    }

    /// Checks the result of a patch. Returns warnings.
    pub(super) fn accept_patched(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        object: &mut Value,
        patch: &Value,
        strategic: bool,
        write: &Write,
    ) -> Result<Vec<String>, Failure> {
        let patched = object.clone();
        let read = self.read_body(resource, object, write, if strategic { restore } else { decode });
        let warnings = read.map_err(|why| match why {
            Foreign::Object(why) => {
                let rendered = match (strategic, &resource.custom) {
                    (true, _) => patch::go(patch),
                    (false, Some(_)) => patched.to_string(),
                    (false, None) => patch::render(resource.schema(), &resource.shape, &patched, patch),
                };
                Failure::invalid("", "", "", &[FieldError::invalid("patch", &rendered.into(), &why)])
            }
            Foreign::Request(failure) => failure,
        })?;
        check_place(resource, namespace, Some(name), object)?;
        Ok(warnings)
    }

    /// Checks the kind of an object that is answered and not stored, such as a review.
    pub(crate) fn check_question(&self, group: &str, kind: &str, object: &Value) -> Result<(), Failure> {
        let (given, is) = (text(object, "apiVersion"), text(object, "kind"));
        let expected = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        if is.is_empty() || (is, given) == (kind, &expected) {
            return Ok(());
        }
        Err(cannot(given, is, kind, &self.unconvertible(given, is, (group, kind))))
    }

    /// Checks the kind and the types of all fields, and reports unknown and duplicate fields.
    fn read_body(
        &self,
        resource: &Resource,
        object: &mut Value,
        write: &Write,
        decode: fn(&Schema, &Shape, &mut Value) -> Result<Decoded, String>,
    ) -> Result<Vec<String>, Foreign> {
        self.check_kind(resource, object)?;
        if resource.custom.is_some() {
            value::whole_numbers(object);
        }
        let decoded = decode(resource.schema(), &resource.shape, object).map_err(|why| {
            // Metadata of custom objects is decoded by itself.
            let alone = resource.custom.is_some();
            Foreign::Object(if alone { why.replacen("ObjectMeta.metadata.", "ObjectMeta.", 1) } else { why })
        })?;
        let unknown = decoded.unknown.iter().map(|path| format!("unknown field \"{path}\""));
        match write.strictness {
            Strictness::Ignore => Ok(Vec::new()),
            Strictness::Warn => Ok(write.duplicates.iter().cloned().chain(unknown).collect()),
            Strictness::Strict => {
                // Errors of the YAML reader come first, in one message.
                let (lines, fields): (Vec<_>, Vec<_>) =
                    write.duplicates.iter().cloned().partition(|one| one.starts_with("line "));
                let lines = (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", lines.join("\n  ")));
                let odd: Vec<_> = lines.into_iter().chain(fields).chain(unknown).collect();
                if odd.is_empty() {
                    return Ok(odd);
                }
                Err(Foreign::Object(format!("strict decoding error: {}", odd.join(", "))))
            }
        }
    }

    fn check_kind(&self, resource: &Resource, object: &mut Value) -> Result<(), Foreign> {
        let (mut given, kind) = stated_type(resource, object);
        if resource.custom.is_some() && !text(object, "kind").is_empty() {
            // Custom objects must state their apiVersion.
            text(object, "apiVersion").clone_into(&mut given);
        }
        let expected = resource.api_version();
        if (given.as_str(), kind.as_str()) == (expected.as_str(), resource.kind.as_str()) {
            value::set(object, "apiVersion", expected);
            value::set(object, "kind", kind);
            return Ok(());
        }
        if resource.custom.is_some() && given == expected {
            let wrong = FieldError::invalid("kind", &kind.as_str().into(), &format!("must be {}", resource.kind));
            let failure = Failure::invalid(&resource.group, &kind, text(object, "metadata.name"), &[wrong]);
            return Err(Foreign::Request(failure));
        }
        let registry = self.registry();
        let other = registry.of_kind(&given, &kind).filter(|other| other.custom.is_none());
        match other {
            Some(other) if resource.custom.is_none() && given == expected => {
                decode(other.schema(), &other.shape, object).map_err(Foreign::Object)?;
            }
            None if resource.custom.is_none() => {}
            _ => {
                let why = format!(
                    "the API version in the data ({given}) does not match the expected API version ({expected})"
                );
                return Err(Foreign::Request(Failure::bad_request(why)));
            }
        }
        Err(Foreign::Object(self.unconvertible(&given, &kind, (&resource.group, &resource.kind))))
    }

    /// Why an object of one kind is not of another, in a group.
    fn unconvertible(&self, given: &str, kind: &str, (group, to): (&str, &str)) -> String {
        let version = given.rsplit('/').next().unwrap_or_default();
        if self.registry().of_kind(given, kind).is_none_or(|known| known.custom.is_some()) {
            let scheme = "pkg/runtime/scheme.go:111";
            return format!("no kind \"{kind}\" is registered for version \"{given}\" in scheme \"{scheme}\"");
        }
        let package = group.split('.').next().filter(|package| !package.is_empty()).unwrap_or("core");
        format!("converting ({version}.{kind}) to ({package}.{to}): unknown conversion")
    }
}

/// The apiVersion and kind of an object; those of the resource where it has none.
fn stated_type(resource: &Resource, object: &Value) -> (String, String) {
    let or = |stated: &str, otherwise: &str| if stated.is_empty() { otherwise.to_owned() } else { stated.to_owned() };
    (or(text(object, "apiVersion"), &resource.api_version()), or(text(object, "kind"), &resource.kind))
}

fn cannot(given: &str, kind: &str, to: &str, why: &str) -> Failure {
    let version = given.rsplit('/').next().unwrap_or_default();
    Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {to}: {why}"))
}

/// Checks name and namespace against the path, and sets them if they are missing.
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
            "" => {
                let why = "was undeterminable: name must be provided";
                return Err(Failure::bad_request(format!("the name of the object ({name} based on URL) {why}")));
            }
            other if other != name => {
                let why = format!("the name of the object ({other}) does not match the name on the URL ({name})");
                return Err(Failure::bad_request(why));
            }
            _ => {}
        }
    }
    Ok(())
}
