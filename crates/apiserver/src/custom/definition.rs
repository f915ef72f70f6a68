//! CustomResourceDefinitions themselves: what makes one invalid, and what the server says about one.

use serde_json::{Value, json};

use super::structural;
use crate::failure::FieldError;
use crate::moment;
use crate::validate::{Errors, one_of};
use crate::value::{at, items, set, text};

/// What keeps a definition until the objects that it defines are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Checks a definition.
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
        let shown: Vec<_> = versions.iter().map(shown).collect();
        errors.push(FieldError::invalid_shown("spec.versions", &format!("[{}]", shown.join(",")), why));
    }
    for (index, version) in versions.iter().enumerate() {
        let schema = at(version, "schema.openAPIV3Schema");
        if schema.is_null() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            continue;
        }
        // The only schema there is belongs to all versions.
        let path = match versions.len() {
            1 => "spec.validation.openAPIV3Schema".to_owned(),
            _ => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        structural::check(schema, &path, errors);
    }
}

/// A version as the messages of the real server show it.
fn shown(version: &Value) -> String {
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

/// The status that a definition begins with.
pub(crate) fn new_status(definition: &Value) -> Value {
    let names = json!({"plural": "", "kind": ""});
    json!({"acceptedNames": names, "conditions": null, "storedVersions": stored_versions(definition)})
}

/// The status that a definition ought to have: accepted, as nothing here objects to names.
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

/// The versions in which objects may have been kept: those before, and the current one.
fn stored_versions(definition: &Value) -> Vec<Value> {
    let mut versions = items(definition, "status.storedVersions").to_vec();
    let stored = items(definition, "spec.versions").iter().find(|version| at(version, "storage") == true);
    versions.extend(stored.map(|version| at(version, "name").clone()).filter(|name| !versions.contains(name)));
    versions
}
