//! Errors of requests: `Status` objects.

use serde_json::{Map, Value, json};

/// The error of a request, in the words of the API.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status code, such as 404.
    pub code: u16,
    /// Reason for programs, such as `NotFound`.
    pub reason: &'static str,
    /// Message for the user.
    pub message: String,
    /// The object, and a cause for each invalid field.
    pub details: Option<Value>,
    /// A continue token for a list that expired.
    pub continue_token: Option<String>,
}

/// An error of one field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    reason: &'static str,
    message: String,
    field: String,
}

/// Group and plural name of a resource, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
}

impl Of<'_> {
    fn qualified(self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(self, name: &str) -> Value {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details.into()
    }
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    pub(crate) fn about(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(crate) fn not_found(of: Of<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", of.qualified())).about(of.details(name))
    }

    pub(crate) fn already_exists(of: Of<'_>, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", of.qualified())).about(of.details(name))
    }

    /// Whether another writer has created the object first.
    pub(crate) fn lost_creation_race(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    pub(crate) fn conflict(of: Of<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", of.qualified());
        Self::new(409, "Conflict", message).about(of.details(name))
    }

    pub(crate) fn modified(of: Of<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(of, name, why)
    }

    pub(crate) fn forbidden(of: Of<'_>, name: &str, why: &str) -> Self {
        let message = match (of.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", of.qualified()),
            _ => format!("{} \"{name}\" is forbidden: {why}", of.qualified()),
        };
        Self::new(403, "Forbidden", message).about(of.details(name))
    }

    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            crate::value::set(&mut cause, "field", field);
        }
        match details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => crate::value::set(details, "causes", vec![cause]),
        }
        self
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<_> = errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        let mut unique: Vec<&String> = Vec::new();
        for text in &texts {
            if !unique.contains(&text) {
                unique.push(text);
            }
        }
        let text = match unique.as_slice() {
            [one] => (*one).clone(),
            many => format!("[{}]", many.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let causes: Vec<_> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
            .collect();
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut details = Of { group, resource: kind }.details(name);
        crate::value::set(&mut details, "causes", causes);
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {text}")).about(details)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed(of: Of<'_>, verb: &str) -> Self {
        let message = if of.resource.is_empty() {
            "the server does not allow this method on the requested resource".to_owned()
        } else {
            format!("{verb} is not supported on resources of kind \"{}\"", of.qualified())
        };
        Self::new(405, "MethodNotAllowed", message).about(of.details(""))
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").about(json!({}))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.about(json!({"causes": [{"message": message}]}))
    }

    /// The `Status` object that clients get.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            crate::value::set(&mut status, "details", details.clone());
        }
        if let Some(token) = &self.continue_token {
            crate::value::set(&mut status, "metadata.continue", token.as_str());
        }
        if self.reason.is_empty() {
            crate::value::remove(&mut status, "reason");
        }
        status
    }
}

impl FieldError {
    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, message, field: field.into() }
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value", detail))
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_rendered(field, &render_for_error(value), detail)
    }

    /// Like [`FieldError::invalid`], for a value with a format of its own.
    pub(crate) fn invalid_rendered(field: impl Into<String>, rendered: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, with_detail(&format!("Invalid value: {rendered}"), detail))
    }

    /// The same error with `parent` prepended to its field.
    pub(crate) fn below(mut self, parent: &str) -> Self {
        if self.field != "<nil>" {
            self.field = if self.field.is_empty() { parent.to_owned() } else { format!("{parent}.{}", self.field) };
        }
        self
    }

    /// Whether the error prevents validation rules from running, because they need a well-formed object.
    pub(crate) fn blocks_rules(&self) -> bool {
        let blocking = ["Required", "NotSupported", "TooLong", "TooMany", "TypeInvalid"];
        self.reason.strip_prefix("FieldValue").is_some_and(|reason| blocking.contains(&reason))
    }

    pub(crate) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            "FieldValueTypeInvalid",
            field,
            with_detail(&format!("Invalid value: {}", render_for_error(value)), detail),
        )
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        Self::not_supported_rendered(field, &render_for_error(value), supported)
    }

    /// Like [`FieldError::not_supported`], for a value with a format of its own.
    pub(crate) fn not_supported_rendered(field: impl Into<String>, rendered: &str, supported: &[&str]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {rendered}: supported values: {}", quoted.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::duplicate_rendered(field, &render_for_error(value))
    }

    /// Like [`FieldError::duplicate`], for a value with a format of its own.
    pub(crate) fn duplicate_rendered(field: impl Into<String>, rendered: &str) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {rendered}"))
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", render_for_error(value)))
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"))
    }

    pub(crate) fn too_many(field: impl Into<String>, got: usize, most: usize) -> Self {
        Self::new("FieldValueTooMany", field, format!("Too many: {got}: must have at most {most} items"))
    }
}

fn with_detail(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

/// A value in the format of messages: strings quoted, the rest as JSON.
fn render_for_error(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_are_listed_and_each_is_a_cause() {
        let errors = [
            FieldError::required("spec.containers", ""),
            FieldError::invalid("spec.ports[0].port", &json!(0), "must be between 1 and 65535, inclusive"),
        ];
        let failure = Failure::invalid("", "Pod", "x", &errors);
        assert_eq!(
            failure.message,
            "Pod \"x\" is invalid: [spec.containers: Required value, spec.ports[0].port: Invalid value: 0: must be \
             between 1 and 65535, inclusive]"
        );
        assert_eq!(failure.to_status()["details"]["causes"][1]["reason"], "FieldValueInvalid");
    }
}
