//! Checks that a schema is structural: every field has a type.

use serde_json::{Value, json};

use crate::failure::FieldError;
use crate::validate::Errors;
use crate::value::{at, text};

/// Checks the schema of a version.
pub(super) fn check(schema: &Value, path: &str, errors: &mut Errors) {
    match text(schema, "type") {
        "" => errors.push(FieldError::required(format!("{path}.type"), "must not be empty at the root")),
        "object" => {}
        other => errors.push(FieldError::invalid(format!("{path}.type"), &json!(other), "must be object at the root")),
    }
    below(schema, path, errors);
}

fn below(schema: &Value, path: &str, errors: &mut Errors) {
    let properties = at(schema, "properties").as_object();
    for (name, inner) in properties.into_iter().flatten() {
        node(inner, &format!("{path}.properties[{name}]"), "must not be empty for specified object fields", errors);
    }
    if let Some(inner) = schema.get("items") {
        node(inner, &format!("{path}.items"), "must not be empty for specified array items", errors);
    } else if text(schema, "type") == "array" {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
        if properties.is_some_and(|properties| !properties.is_empty()) {
            let why = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
        }
        node(inner, &format!("{path}.additionalProperties"), "must not be empty for specified object fields", errors);
    }
}

fn node(schema: &Value, path: &str, missing: &str, errors: &mut Errors) {
    let open = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
    if text(schema, "type").is_empty() && !open.iter().any(|key| schema.get(*key).is_some_and(|on| on == true)) {
        errors.push(FieldError::required(format!("{path}.type"), missing));
    }
    below(schema, path, errors);
}
