//! The last policy snapshot on disk, for an agent that starts while no controller is available.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::{debug, warn};
use types::control::Batch;

use crate::engine::{Engine, sleep_until};

/// How long changes are collected before a write.
const COLLECT: Duration = Duration::from_millis(200);
/// Delay before a failed write is repeated, without a change.
const RETRY: Duration = Duration::from_secs(5);
/// Name of the snapshot.
const FILE: &str = "policies";

/// The file with the last policy snapshot.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    directory: PathBuf,
    changed: Arc<Notify>,
}

impl SnapshotFile {
    /// The directory is created with the first snapshot.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, changed: Arc::default() }
    }

    /// Whether the file exists, even unreadable: then the cluster has had a controller.
    pub(super) fn exists(&self) -> bool {
        self.file().exists()
    }

    /// Schedules a write of the current snapshot.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Writes a snapshot after each change until the agent stops, and repeats failed writes.
    pub(super) async fn run(self, engine: Engine) {
        let mut failing = false;
        loop {
            let retry = failing.then(|| Instant::now() + RETRY);
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(retry) => {}
            }
            tokio::time::sleep_until((Instant::now() + COLLECT).into()).await;
            let query = |brain: &node::Brain| (!brain.replica().is_lost()).then(|| brain.replica().snapshot());
            let batch = engine.read(query).await;
            // An out-of-step replica is not written: the next snapshot of the controller replaces it.
            let Some(batch) = batch else { continue };
            let this = self.clone();
            let written = tokio::task::spawn_blocking(move || this.replace(&api::control::encode(&batch))).await;
            let written = written.map_err(io::Error::other).flatten();
            match &written {
                Ok(()) => debug!("wrote the policy snapshot"),
                Err(error) if !failing => {
                    warn!(file = %self.file().display(), %error, "cannot write the policy snapshot for a restart; retrying");
                }
                Err(_) => {}
            }
            failing = written.is_err();
        }
    }

    /// The snapshot, if it can be read and is the latest.
    pub(super) async fn load(&self) -> Option<Batch> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || this.read()).await;
        match read.map_err(io::Error::other).flatten() {
            Ok(bytes) => match api::control::decode(&bytes) {
                Ok(batch) => return Some(Batch { snapshot: true, ..batch }),
                Err(error) => warn!(file = %self.file().display(), %error, "cannot read the policy snapshot"),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(file = %self.file().display(), %error, "cannot read the policy snapshot"),
        }
        None
    }

    /// Reads the file. If the directory is not writable, the file may be outdated, and reading fails.
    fn read(&self) -> io::Result<Vec<u8>> {
        let bytes = fs::read(self.file())?;
        write_private(&self.part(), &[])?;
        Ok(bytes)
    }

    fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Temporary file, renamed to the snapshot once it is complete.
    fn part(&self) -> PathBuf {
        self.directory.join(format!(".{FILE}"))
    }

    /// Replaces the snapshot. If that fails, the file is truncated: an outdated snapshot may allow connections that are no longer
    /// allowed. An empty file means that the cluster has had a controller, so Pods wait for one.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map_err(|error| match write_private(&self.file(), &[]) {
            Ok(()) => error,
            Err(also) => io::Error::new(error.kind(), format!("{error}; the older snapshot cannot be cleared: {also}")),
        })
    }

    /// Replaces the file atomically.
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
