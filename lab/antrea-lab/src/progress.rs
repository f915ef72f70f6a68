//! Progress messages: a Node prints them for the supervisor, the supervisor for `up` and `join`, as lines of JSON.

use std::io::Write;

use serde::{Deserialize, Serialize};

/// A progress message, one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    /// A step that is done or in progress.
    Step(String),
    /// The Node or the lab is ready.
    Ready,
    /// The start failed, with the reason.
    Failed(String),
}

impl Progress {
    /// Prints the message. A closed pipe is not an error.
    pub(crate) fn print(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// Parses a line; text that is not JSON is a step.
    pub(crate) fn read(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|_| Self::Step(line.to_owned()))
    }
}

/// Logs and prints a step.
pub(crate) fn step(what: impl Into<String>) {
    let what = what.into();
    tracing::info!("{what}");
    Progress::Step(what).print();
}
