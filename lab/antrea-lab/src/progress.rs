//! What is happening, told line by line from a Node to the supervisor, and from there to whoever waits.

use std::io::Write;

use serde::{Deserialize, Serialize};

/// A line of news.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum News {
    /// Something was done, or is waited for.
    Step(String),
    /// Everything is up.
    Ready,
    /// It will not come up: why.
    Failed(String),
}

impl News {
    /// Writes a line to standard output. Nobody may be listening any more, which is nobody's failure.
    pub(crate) fn tell(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// What a line says.
    pub(crate) fn read(line: &str) -> Self {
        serde_json::from_str(line).unwrap_or_else(|_| Self::Step(line.to_owned()))
    }
}

/// Tells a step.
pub(crate) fn step(what: impl Into<String>) {
    let what = what.into();
    tracing::info!("{what}");
    News::Step(what).tell();
}
