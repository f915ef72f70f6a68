//! The state on disk: a snapshot of every object, and a journal of later changes.
//!
//! The journal follows the store like a watcher, with a short delay: a server that is killed loses the changes of that
//! delay at most. When the journal is as large as the snapshot, a new snapshot replaces both.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::core::Core;
use crate::store::{Change, Event};
use crate::value::text;

/// Every object, one in each line.
const SNAPSHOT: &str = "snapshot.jsonl";
/// Every change since the snapshot, one in each line.
const JOURNAL: &str = "journal.jsonl";
/// Smaller journals are not compacted.
const MIN_COMPACTED: u64 = 16 << 20;
/// Revisions that are skipped after a crash, so that none is used twice.
const SKIPPED_REVISIONS: u64 = 1_000_000;
/// Delay before a retry after a disk error.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The files of a server.
pub(crate) struct Disk {
    directory: PathBuf,
    journal: BufWriter<File>,
    /// All changes up to this revision are on disk.
    revision: u64,
    written: u64,
    /// Size of the last snapshot in bytes.
    snapshot: u64,
}

impl Disk {
    /// Reads the files into the store, and begins a new snapshot and journal.
    pub(crate) fn open(core: &Core, directory: &Path) -> io::Result<Self> {
        read(core, directory)?;
        Self::begin(core, directory)
    }

    /// Writes a snapshot atomically, and begins a journal.
    fn begin(core: &Core, directory: &Path) -> io::Result<Self> {
        let (revision, group_resources) = core.store.dump();
        let new = directory.join("snapshot.new");
        let mut file = BufWriter::new(crate::auth::create_private(&new)?);
        writeln!(file, "{}", json!({"revision": revision}))?;
        for (group_resource, objects) in group_resources {
            for (key, stored) in objects {
                write!(file, "{{\"shelf\":{},\"key\":{},\"object\":", json!(*group_resource), json!(*key))?;
                file.write_all(&stored.bytes)?;
                file.write_all(b"}\n")?;
            }
        }
        file.flush()?;
        file.get_ref().sync_all()?;
        let snapshot = file.get_ref().metadata()?.len();
        std::fs::rename(new, directory.join(SNAPSHOT))?;
        // If the server is killed before this, the old journal has only changes that are in the snapshot.
        let journal = BufWriter::new(crate::auth::create_private(&directory.join(JOURNAL))?);
        Ok(Self { directory: directory.to_owned(), journal, revision, written: 0, snapshot })
    }

    /// Appends the changes since the last call.
    fn catch_up(&mut self, core: &Core) -> io::Result<()> {
        let behind = match core.store.all_since(self.revision) {
            Ok((events, revision)) if self.written < MIN_COMPACTED.max(self.snapshot) => {
                for (group_resource, event) in &events {
                    self.append(group_resource, event)?;
                }
                self.journal.flush()?;
                self.revision = revision;
                false
            }
            // Too far behind, or the journal is too long.
            _ => true,
        };
        if behind {
            *self = Self::begin(core, &self.directory)?;
        }
        Ok(())
    }

    fn append(&mut self, group_resource: &str, event: &Event) -> io::Result<()> {
        let head = format!("{{\"shelf\":{},\"key\":{},\"object\":", json!(group_resource), json!(*event.key));
        let tail = if event.change == Change::Deleted { ",\"gone\":true}\n" } else { "}\n" };
        for part in [head.as_bytes(), &event.object.bytes, tail.as_bytes()] {
            self.journal.write_all(part)?;
            self.written += part.len() as u64;
        }
        Ok(())
    }
}

/// Follows the store until the server stops.
pub(crate) async fn follow(core: Arc<Core>, mut disk: Disk, mut ending: watch::Receiver<bool>) {
    let mut writes = core.store.writes();
    loop {
        writes.mark_unchanged();
        let own = core.clone();
        let work = move || {
            let result = disk.catch_up(&own);
            (disk, result)
        };
        let Ok((back, result)) = tokio::task::spawn_blocking(work).await else { return };
        disk = back;
        if let Err(error) = result {
            let directory = disk.directory.display();
            tracing::error!(%error, %directory, "cannot write changes to disk, retrying in {RETRY_DELAY:?}");
            // The last line of the journal may be incomplete.
            disk.written = u64::MAX;
            let again = Instant::now() + RETRY_DELAY;
            tokio::select! {
                () = sleep_until(again) => continue,
                () = crate::server::ended(&mut ending) => return,
            }
        }
        tokio::select! {
            _ = writes.changed() => {}
            () = crate::server::ended(&mut ending) => return,
        }
    }
}

/// Writes a final snapshot without a journal: a clean shutdown.
pub(crate) fn close(core: &Core, directory: &Path) -> io::Result<()> {
    Disk::begin(core, directory)?;
    std::fs::remove_file(directory.join(JOURNAL))
}

/// Reads the snapshot and the journal; missing files count as empty.
fn read(core: &Core, directory: &Path) -> io::Result<()> {
    let mut lines = lines(&directory.join(SNAPSHOT))?.into_iter().flatten();
    let head = lines.next().transpose()?.unwrap_or_default();
    let mut revision = head.get("revision").and_then(Value::as_u64).unwrap_or(1);
    let mut objects = BTreeMap::new();
    for line in lines {
        apply(&mut objects, line?);
    }
    if let Some(journal) = whole_lines(&directory.join(JOURNAL))? {
        for line in journal {
            let at = text(&line, "object.metadata.resourceVersion").parse().unwrap_or(0);
            // Earlier changes are in the snapshot.
            if at > revision {
                revision = at;
                apply(&mut objects, line);
            }
        }
        revision += SKIPPED_REVISIONS;
    }
    core.store
        .restore(revision, objects.into_iter().map(|((group_resource, key), object)| (group_resource, key, object)));
    core.refresh();
    Ok(())
}

type Objects = BTreeMap<(Arc<str>, Box<str>), Value>;

fn apply(objects: &mut Objects, mut line: Value) {
    let place = (text(&line, "shelf").into(), text(&line, "key").into());
    match (line.get("gone").is_some(), crate::value::remove(&mut line, "object")) {
        (false, Some(object)) => drop(objects.insert(place, object)),
        _ => drop(objects.remove(&place)),
    }
}

type Lines = Box<dyn Iterator<Item = io::Result<Value>>>;

fn lines(path: &Path) -> io::Result<Option<Lines>> {
    match File::open(path) {
        Ok(file) => {
            let lines = BufReader::new(file).lines();
            Ok(Some(Box::new(lines.map(|line| serde_json::from_str(&line?).map_err(io::Error::from)))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The complete lines of a journal: the last one may be cut if the server was killed.
fn whole_lines(path: &Path) -> io::Result<Option<impl Iterator<Item = Value>>> {
    Ok(lines(path)?.map(|lines| lines.map_while(Result::ok)))
}
