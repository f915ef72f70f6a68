//! Structured logs, on standard error.

use thiserror::Error;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// Output format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// For people: `time level target: message key=value`.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// Logging cannot be set up.
#[derive(Debug, Error)]
pub enum LogError {
    /// The filter is not a level or a list of levels.
    #[error("`{0}` is not a log level: use one such as `info`, or `info,ovs=debug`")]
    Filter(String),
    /// Logging was set up before; it is global.
    #[error("logging is already set up")]
    Twice,
}

/// Sets up logging for the whole program. `filter` is a level, or a list of levels by target.
pub fn init(filter: &str, format: Format) -> Result<(), LogError> {
    let levels: Targets = filter.parse().map_err(|_| LogError::Filter(filter.to_owned()))?;
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(levels)).try_init().map_err(|_| LogError::Twice)
}
