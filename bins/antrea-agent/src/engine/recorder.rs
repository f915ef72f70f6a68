//! Records the events of the brain to a file, for `antctl replay`.
//!
//! The file is bounded: at its maximum size a new one begins with a checkpoint, and the one before is kept. A thread writes, so that
//! a slow disk does not delay the agent; events that it cannot take are dropped, and the recording goes on with a checkpoint.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use node::Event;
use node::recording::{EntryRef, Header};
use tracing::{info, warn};

/// The recording, and the one before.
const FILE: &str = "events.jsonl";
const BEFORE: &str = "events.old.jsonl";
/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// A recording that cannot begin again, since calls are in progress all the time, ends at this multiple of its size.
const MAX_GROWTH: u64 = 4;

/// What the thread writes.
enum Line {
    Append(String),
    /// Begins a new file with these lines.
    Begin(Vec<String>),
}

/// Writes the events of an agent to a file.
#[derive(Debug)]
pub(crate) struct Recorder {
    lines: SyncSender<Line>,
    header: String,
    size: u64,
    limit: u64,
    /// Whether events are missing, so that only a checkpoint can follow.
    has_gap: bool,
}

impl Recorder {
    /// Begins a recording in a directory, and keeps the one before.
    pub(crate) fn start(directory: &Path, header: &Header, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let header = serde_json::to_string(header)?;
        let mut writer = Writer { directory: directory.to_owned(), file: None, has_failed: false };
        writer.begin(std::slice::from_ref(&header))?;
        info!(file = %directory.join(FILE).display(), "recording events");
        let (lines, queue) = sync_channel(QUEUE);
        std::thread::Builder::new().name("recorder".to_owned()).spawn(move || writer.run(&queue))?;
        Ok(Self { lines, size: header.len() as u64, header, limit, has_gap: false })
    }

    /// Records a step. `checkpoint` is the state before it, if nothing is in progress.
    pub(super) fn record(&mut self, now: Duration, events: &[Event], checkpoint: impl FnOnce() -> Option<Vec<Event>>) {
        if self.needs_checkpoint()
            && let Some(state) = checkpoint()
        {
            self.begin(now, &state);
        }
        if self.size > self.limit.saturating_mul(MAX_GROWTH) {
            self.has_gap = true;
        }
        if self.has_gap {
            return;
        }
        match serde_json::to_string(&EntryRef::new(now, events)) {
            Ok(line) => {
                self.size += line.len() as u64 + 1;
                self.send(Line::Append(line));
            }
            // A bug: every event can be written.
            Err(error) => warn!(%error, "cannot record an event"),
        }
    }

    /// Whether the recording is to begin again.
    pub(super) fn needs_checkpoint(&self) -> bool {
        self.size > self.limit || self.has_gap
    }

    fn begin(&mut self, now: Duration, state: &[Event]) {
        let Ok(line) = serde_json::to_string(&EntryRef::new(now, state)) else { return };
        self.size = (self.header.len() + line.len()) as u64;
        self.has_gap = false;
        self.send(Line::Begin(vec![self.header.clone(), line]));
        // A state that is larger than the limit would begin a file with each event.
        self.limit = self.limit.max(self.size.saturating_mul(2));
    }

    fn send(&mut self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.has_gap = true;
        }
    }
}

/// The thread that writes.
struct Writer {
    directory: PathBuf,
    file: Option<BufWriter<File>>,
    /// Whether the last write failed, and that was logged.
    has_failed: bool,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Line>) {
        while let Ok(line) = self.next(queue) {
            let written = match line {
                Line::Append(line) => self.append(&line),
                Line::Begin(lines) => self.begin(&lines),
            };
            if let Err(error) = &written
                && !self.has_failed
            {
                warn!(file = %self.directory.join(FILE).display(), %error, "cannot record events");
            }
            self.has_failed = written.is_err();
        }
    }

    /// The next line. What is written is complete while there is none, should the agent be killed.
    fn next(&mut self, queue: &Receiver<Line>) -> Result<Line, TryRecvError> {
        match queue.try_recv() {
            Err(TryRecvError::Empty) => {
                // A failure is reported by the next write.
                let _ = self.file.as_mut().map(Write::flush);
                queue.recv().map_err(|_| TryRecvError::Disconnected)
            }
            line => line,
        }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        match &mut self.file {
            Some(file) => writeln!(file, "{line}"),
            None => Ok(()),
        }
    }

    fn begin(&mut self, lines: &[String]) -> io::Result<()> {
        if let Some(mut before) = self.file.take() {
            before.flush()?;
        }
        let path = self.directory.join(FILE);
        match fs::rename(&path, self.directory.join(BEFORE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        let mut file = BufWriter::new(file);
        lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
        file.flush()?;
        self.file = Some(file);
        Ok(())
    }
}
