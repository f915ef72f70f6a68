//! What a server said, in words that do not differ between runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The normalised answer to one step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The step's name.
    pub step: String,
    /// The HTTP status code; 0 when there was no answer at all.
    pub status: u16,
    /// The content type of the answer.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// The texts of the `Warning` headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body: a value, an array of a watch's events, or a string if it is no JSON.
    #[serde(default)]
    pub body: Value,
}

impl Answer {
    /// The answer as one value, as it is compared: `/status`, `/type`, `/warnings`, `/body/...`.
    pub(crate) fn value(&self) -> Value {
        let mut value = serde_json::json!({ "status": self.status, "type": self.content_type, "body": self.body });
        if !self.warnings.is_empty() {
            value["warnings"] = self.warnings.clone().into();
        }
        value
    }
}
