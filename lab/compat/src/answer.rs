//! Answers of a server, normalised.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The normalised answer to one step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the step.
    pub step: String,
    /// HTTP status code; 0 if there was no answer.
    pub status: u16,
    /// Content type of the answer.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// Texts of the `Warning` headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body: a value, an array of watch events, or a string if it is not JSON.
    #[serde(default)]
    pub body: Value,
}

impl Answer {
    /// The answer as one value for the comparison: `/status`, `/type`, `/warnings`, `/body/...`.
    pub(crate) fn value(&self) -> Value {
        let mut value = serde_json::json!({ "status": self.status, "type": self.content_type, "body": self.body });
        if !self.warnings.is_empty() {
            value["warnings"] = self.warnings.clone().into();
        }
        value
    }
}
