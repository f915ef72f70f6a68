//! What the controller said last, on disk: for an agent that starts while the controller is away.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::{debug, warn};
use types::control::Batch;

use crate::engine::Engine;

/// How long changes are gathered before they are written.
const GATHER: Duration = Duration::from_millis(200);
/// How long after a failure it is tried again, if nothing is said meanwhile.
const RETRY: Duration = Duration::from_secs(5);
/// The file.
const FILE: &str = "policies";

/// A file with what the controller said last.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    directory: PathBuf,
    changed: Arc<Notify>,
}

impl Memory {
    /// In this directory, which is made when there is something to remember.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, changed: Arc::default() }
    }

    /// Whether anything is remembered, readable or not: then there was a controller.
    pub(super) fn is_there(&self) -> bool {
        self.file().exists()
    }

    /// Something was said.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Writes what the engine knows, whenever something was said, for ever. What cannot be written is tried again.
    pub(super) async fn keep(self, engine: Engine) {
        let mut failing = false;
        loop {
            let retry = failing.then(|| Instant::now() + RETRY);
            tokio::select! {
                () = self.changed.notified() => {}
                () = super::sleep_until(retry) => {}
            }
            tokio::time::sleep_until((Instant::now() + GATHER).into()).await;
            let look = |brain: &node::Brain| (!brain.replica().is_lost()).then(|| brain.replica().snapshot());
            let Ok(batch) = engine.look(look).await else { return };
            // What does not fit together is followed by a snapshot, or by nothing.
            let Some(batch) = batch else { continue };
            let this = self.clone();
            let written = tokio::task::spawn_blocking(move || this.replace(&api::control::encode(&batch))).await;
            let written = written.map_err(io::Error::other).flatten();
            match &written {
                Ok(()) => debug!("what antrea-controller said is remembered"),
                Err(error) if !failing => {
                    warn!(file = %self.file().display(), %error, "cannot remember policies for a restart");
                }
                Err(_) => {}
            }
            failing = written.is_err();
        }
    }

    /// What is remembered, if it can be read and is the last that was said.
    pub(super) async fn recall(&self) -> Option<Batch> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || this.read()).await;
        match read.map_err(io::Error::other).flatten() {
            Ok(bytes) => match api::control::decode(&bytes) {
                Ok(batch) => return Some(Batch { snapshot: true, ..batch }),
                Err(error) => warn!(file = %self.file().display(), %error, "what is remembered cannot be read"),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(file = %self.file().display(), %error, "what is remembered cannot be read"),
        }
        None
    }

    /// What the file says. Where nothing can be written, it may be older than what was said last, and is not believed.
    fn read(&self) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.file())?;
        write_private(&self.part(), &[])?;
        Ok(bytes)
    }

    fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// What becomes the file when it is whole.
    fn part(&self) -> PathBuf {
        self.directory.join(format!(".{FILE}"))
    }

    /// Replaces what is remembered. If that cannot be, nothing is: what was said before may allow what is no longer allowed. The
    /// empty file says that there was a controller, so Pods wait for one.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map_err(|error| match write_private(&self.file(), &[]) {
            Ok(()) => error,
            Err(also) => {
                io::Error::new(error.kind(), format!("{error}; what was said before cannot be forgotten: {also}"))
            }
        })
    }

    /// Replaces the file as a whole: nobody reads half of it.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        write_private(&self.part(), bytes)?;
        fs::rename(self.part(), self.file())
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
