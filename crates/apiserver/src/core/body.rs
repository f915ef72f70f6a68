//! Objects as they come in: the right kind, for the right place, with fields of the right types.

use serde_json::Value;

use super::{Core, Strictness};
use crate::failure::Failure;
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
        strictness: Strictness,
    ) -> Result<Vec<String>, Failure> {
        self.check_kind(resource, object)?;
        let result = decode(resource.schema(), &resource.shape, object);
        let (version, kind) = (&resource.version, &resource.kind);
        let cannot = |why: &str| format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}");
        let decoded = result.map_err(|why| Failure::bad_request(cannot(&why)))?;
        let unknown = decoded.unknown.iter().map(|path| format!("unknown field \"{path}\""));
        let mut warnings = Vec::new();
        match strictness {
            Strictness::Strict if !decoded.unknown.is_empty() => {
                let why = format!("strict decoding error: {}", unknown.collect::<Vec<_>>().join(", "));
                return Err(Failure::bad_request(cannot(&why)));
            }
            Strictness::Warn => warnings.extend(unknown),
            _ => {}
        }
        if resource.namespaced {
            match text(object, "metadata.namespace") {
                "" => value::set(object, "metadata.namespace", namespace),
                other if other != namespace => {
                    let why = format!(
                        "the namespace of the provided object does not match the namespace sent on the request ({other} != {namespace})"
                    );
                    let why = if resource.custom.is_some() {
                        why
                    } else {
                        why.split(" (").next().unwrap_or_default().to_owned()
                    };
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
        Ok(warnings)
    }

    fn check_kind(&self, resource: &Resource, object: &mut Value) -> Result<(), Failure> {
        if !object.is_object() {
            let why = "couldn't get version/kind; json parse error: json: cannot unmarshal";
            let kind = if object.is_array() { "array" } else { "value" };
            return Err(Failure::bad_request(format!(
                "{why} {kind} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            )));
        }
        let (api_version, kind) = (text(object, "apiVersion").to_owned(), text(object, "kind").to_owned());
        let expected = resource.api_version();
        if resource.custom.is_some() {
            if kind.is_empty() {
                return Err(Failure::bad_request(format!("Object 'Kind' is missing in '{object}'")));
            }
            if api_version.is_empty() {
                return Err(Failure::bad_request(format!("Object 'apiVersion' is missing in '{object}'")));
            }
        }
        if (!api_version.is_empty() && api_version != expected) || (!kind.is_empty() && kind != resource.kind) {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            let known = self.registry().of_kind(&api_version, &kind).is_some();
            let why = if kind == resource.kind || known && api_version != expected {
                format!(
                    "the API version in the data ({api_version}) does not match the expected API version ({expected})"
                )
            } else if known {
                let to = resource.kind.as_str();
                format!(
                    "{kind} in version \"{version}\" cannot be handled as a {to}: converting (v1.{kind}) to (core.{to}): unknown conversion"
                )
            } else {
                let at = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30";
                let shown = if api_version.is_empty() { &expected } else { &api_version };
                format!(
                    "{kind} in version \"{}\" cannot be handled as a {}: no kind \"{kind}\" is registered for version \"{shown}\" in scheme \"{at}\"",
                    shown.rsplit('/').next().unwrap_or_default(),
                    resource.kind
                )
            };
            return Err(Failure::bad_request(why));
        }
        value::set(object, "apiVersion", expected);
        value::set(object, "kind", resource.kind.as_str());
        Ok(())
    }
}
