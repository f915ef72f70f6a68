//! Events, in the old form and in the new one.

use serde_json::{Value, json};

use super::Errors;
use crate::failure::FieldError;
use crate::names;
use crate::value::text;

/// An Event is in the namespace of the object that it is about; for objects without a namespace, in `default`.
pub(crate) fn event(object: &Value, errors: &mut Errors) {
    about(object, "involvedObject", errors);
}

/// The new form requires the reporter, the action and the time.
pub(crate) fn new_event(object: &Value, errors: &mut Errors) {
    about(object, "regarding", errors);
    let controller = text(object, "reportingController");
    for field in ["eventTime", "reportingController", "reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        let wrong = if field == "reportingController" { names::qualified_name(controller) } else { Vec::new() };
        errors.extend(wrong.iter().map(|why| FieldError::invalid(field, &json!(controller), why)));
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", &json!(kind), &format!("has invalid value: {kind}")));
    }
}

fn about(object: &Value, field: &str, errors: &mut Errors) {
    let namespace = text(object, "metadata.namespace");
    let of = text(object, &format!("{field}.namespace"));
    let fits = if of.is_empty() { ["", "default"].contains(&namespace) } else { of == namespace };
    if !fits {
        // Messages name the field of the old form.
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(of), why));
    }
}
