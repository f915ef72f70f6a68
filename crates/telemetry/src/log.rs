//! Structured logs, on standard error.

use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// For people: `time level target: message key=value`.
    #[default]
    Text,
    /// For programs: a JSON object a line.
    Json,
}

/// Why there are no logs.
#[derive(Debug, Error)]
pub enum LogError {
    /// The filter makes no sense.
    #[error("`{0}` is no level of the log: give one such as `info`, or `info,ovs=debug`")]
    Filter(String),
    /// Somebody else has set up logs.
    #[error("logs have been set up already")]
    Twice,
}

/// Sets up logs for the whole program. `filter` is a level, or a list of levels by target.
pub fn init(filter: &str, format: Format) -> Result<(), LogError> {
    let parsed = EnvFilter::builder().parse(filter).map_err(|_| LogError::Filter(filter.to_owned()))?;
    let logs = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr).with_ansi(false);
    let done = match format {
        Format::Text => logs.try_init(),
        Format::Json => logs.json().flatten_event(true).try_init(),
    };
    done.map_err(|_| LogError::Twice)
}
