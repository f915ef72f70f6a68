//! CustomResourceDefinitions: validation and status.

use serde_json::{Value, json};

use super::structural;
use crate::failure::FieldError;
use crate::moment;
use crate::validate::{Errors, one_of};
use crate::value::{at, items, set, text};

/// The finalizer that keeps a definition until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(crate) fn definition(object: &Value, errors: &mut Errors) {
    let (group, plural) = (text(object, "spec.group"), text(object, "spec.names.plural"));
    let name = text(object, "metadata.name");
    if !group.is_empty() && !plural.is_empty() && name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
    one_of(at(object, "spec.scope"), "spec.scope", &["Cluster", "Namespaced"], errors);
    if plural.is_empty() {
        errors.push(FieldError::required("spec.names.plural", ""));
    }
    if text(object, "spec.names.kind").is_empty() {
        errors.push(FieldError::required("spec.names.kind", ""));
    }
    versions(items(object, "spec.versions"), errors);
    if items(object, "status.storedVersions").is_empty() {
        let why = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, why));
    }
}

fn versions(versions: &[Value], errors: &mut Errors) {
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
    } else if versions.iter().filter(|version| at(version, "storage") == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        let rendered: Vec<_> = versions.iter().map(render_version).collect();
        errors.push(FieldError::invalid_rendered("spec.versions", &format!("[{}]", rendered.join(",")), why));
    }
    for (index, version) in versions.iter().enumerate() {
        let schema = at(version, "schema.openAPIV3Schema");
        if schema.is_null() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            continue;
        }
        // With a single version, the path is that of the schema for all versions.
        let path = match versions.len() {
            1 => "spec.validation.openAPIV3Schema".to_owned(),
            _ => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        structural::check(schema, &path, errors);
    }
}

/// A version in the format of the real server's messages.
fn render_version(version: &Value) -> String {
    let bool = |key: &str| at(version, key) == true;
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
         \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        at(version, "name"),
        bool("served"),
        bool("storage"),
        bool("deprecated"),
        at(version, "deprecationWarning"),
    )
}

/// The initial status of a definition.
pub(crate) fn new_status(definition: &Value) -> Value {
    let names = json!({"plural": "", "kind": ""});
    json!({"acceptedNames": names, "conditions": null, "storedVersions": stored_versions(definition)})
}

/// The status of a definition: always accepted, because name conflicts are not checked.
pub(crate) fn status(definition: &Value) -> Value {
    let mut status = at(definition, "status").clone();
    set(&mut status, "acceptedNames", at(definition, "spec.names").clone());
    set(&mut status, "storedVersions", stored_versions(definition));
    if items(&status, "conditions").is_empty() {
        let now = moment::now();
        let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
        let conditions = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
        set(&mut status, "conditions", conditions);
    }
    status
}

/// The versions in which objects may be stored: previous ones, and the current one.
fn stored_versions(definition: &Value) -> Vec<Value> {
    let mut versions = items(definition, "status.storedVersions").to_vec();
    let stored = items(definition, "spec.versions").iter().find(|version| at(version, "storage") == true);
    versions.extend(stored.map(|version| at(version, "name").clone()).filter(|name| !versions.contains(name)));
    versions
}
