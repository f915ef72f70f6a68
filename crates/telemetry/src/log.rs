//! Structured logs, on standard error.

use thiserror::Error;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

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
    let levels: Targets = filter.parse().map_err(|_| LogError::Filter(filter.to_owned()))?;
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(levels)).try_init().map_err(|_| LogError::Twice)
}
