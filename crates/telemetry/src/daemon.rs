//! What every long-running program does at its start and at its end.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use config::{ConfigError, Problem, Reader, Schema};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::log::{self, LogError};

/// kube logs an error for every failed attempt, without its cause; watches log the cause, once per outage.
const DEFAULT_FILTER: &str = "info,kube_client::client::builder=off";

/// A long-running program with a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Daemon {
    /// Name of the executable, such as `antrea-agent`.
    pub name: &'static str,
    /// What it is called in messages, such as `agent`.
    pub role: &'static str,
}

impl Daemon {
    /// Reads a configuration file, or uses the defaults without one. Returns warnings for the log, too.
    pub fn load_config<T>(
        self,
        schema: &'static Schema,
        file: Option<&Path>,
        ask: impl FnOnce(&mut Reader) -> T,
    ) -> Result<(T, Vec<String>), ConfigError> {
        let Some(file) = file else { return config::read(schema, "(no file)", "", ask) };
        let name = file.display().to_string();
        match fs::read_to_string(file) {
            Ok(text) => config::read(schema, &name, &text, ask),
            Err(error) => {
                let problem = Problem::Unreadable { reason: error.to_string(), program: self.role };
                Err(ConfigError { file: name, problems: vec![problem] })
            }
        }
    }

    /// Prints the effective configuration as JSON, and warnings about it to standard error.
    pub fn print_config(self, config: &impl Serialize, notes: &[String]) -> io::Result<()> {
        for note in notes {
            writeln!(io::stderr(), "{}: {note}", self.name)?;
        }
        writeln!(io::stdout(), "{}", serde_json::to_string_pretty(config)?)
    }

    /// Begins the log, with warnings about the configuration. `RUST_LOG` has its levels.
    pub fn start_log(self, notes: &[String]) -> Result<(), LogError> {
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| DEFAULT_FILTER.to_owned());
        log::init(&filter, log::Format::Text)?;
        for note in notes {
            info!("{note}");
        }
        Ok(())
    }

    /// The exit status of an outcome; an error is printed, with its causes.
    pub fn exit(self, outcome: Result<(), impl fmt::Display>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "{}: {error:#}", self.name);
                ExitCode::FAILURE
            }
        }
    }
}

/// Ends with SIGTERM or SIGINT. From the call on, these signals do not end the program themselves.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use config::key;

    use super::*;

    const DAEMON: Daemon = Daemon { name: "antrea-test", role: "test" };
    static SCHEMA: Schema = Schema { keys: &[key("port", "7", "a port")], not_yet: &[], features: &[] };

    fn port(reader: &mut Reader) -> u16 {
        reader.port("port").unwrap_or(7)
    }

    #[test]
    fn a_configuration_is_read_from_a_file_and_without_one_has_defaults() {
        assert_eq!(DAEMON.load_config(&SCHEMA, None, port).unwrap(), (7, vec![]));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "port: 8\nother: 1\n").unwrap();
        let (loaded, notes) = DAEMON.load_config(&SCHEMA, Some(file.path()), port).unwrap();
        assert_eq!((loaded, notes.len()), (8, 1), "{notes:?}");
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_path_and_the_flag() {
        let error = DAEMON.load_config(&SCHEMA, Some(Path::new("/nonexistent/test.conf")), port).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("/nonexistent/test.conf: cannot be read: "), "{text}");
        assert!(text.ends_with("--config must be the path of the test's configuration file"), "{text}");
    }
}
