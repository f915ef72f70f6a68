//! What can be asked of a lab that runs, line by line through a socket in its directory.

use serde::{Deserialize, Serialize};

/// A change that somebody wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wish {
    /// One more Node.
    Join,
    /// That Node is to leave.
    Leave(String),
}
