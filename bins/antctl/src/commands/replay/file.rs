//! Reads a recording line by line: it may be larger than memory.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use node::recording::{Entry, Header, InvalidRecording, Replay};

/// The entries of a recording.
pub(super) struct Recording {
    reader: BufReader<File>,
    file: String,
    line: usize,
    /// Whether the last line is incomplete.
    pub(super) is_torn: bool,
}

impl Recording {
    /// The number of entries.
    pub(super) fn count(file: &Path) -> Result<usize> {
        let reader = BufReader::new(open(file)?);
        Ok(reader.split(b'\n').count().saturating_sub(1))
    }

    /// A brain as the agent began with, and the entries.
    pub(super) fn open(file: &Path) -> Result<(Replay, Self)> {
        let name = file.display().to_string();
        let mut this = Self { reader: BufReader::new(open(file)?), file: name.clone(), line: 0, is_torn: false };
        let header: Header = this.read().unwrap_or_else(|| Err(anyhow!("{name}: {}", InvalidRecording::Empty)))?;
        Ok((Replay::new(header).with_context(|| name)?, this))
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self) -> Option<Result<T>> {
        // Not a String: a torn line may end within a character.
        let mut text = Vec::new();
        self.line += 1;
        match self.reader.read_until(b'\n', &mut text) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(error).with_context(|| format!("{}: line {}", self.file, self.line))),
        }
        match serde_json::from_slice(&text) {
            Ok(value) => Some(Ok(value)),
            Err(_) if !text.ends_with(b"\n") && self.line > 1 => {
                self.is_torn = true;
                None
            }
            Err(error) => {
                let error = InvalidRecording::Line { line: self.line, problem: error.to_string() };
                Some(Err(error).with_context(|| self.file.clone()))
            }
        }
    }
}

impl Iterator for Recording {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.read()
    }
}

fn open(file: &Path) -> Result<File> {
    File::open(file).with_context(|| format!("{}: cannot be read", file.display()))
}
