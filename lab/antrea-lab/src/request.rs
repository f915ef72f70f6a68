//! Requests to the supervisor of a running lab: lines of JSON on a socket in its directory.

use serde::{Deserialize, Serialize};

/// A change of the Nodes of a lab.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Change {
    /// Add the next Node.
    Join,
    /// Remove the Node with this name.
    Leave(String),
}
