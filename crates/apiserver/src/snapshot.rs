//! What is kept on disk: a snapshot of every object, and a journal of what happened since.
//!
//! The journal follows the store like a watcher, a moment behind: a server that is killed has lost that moment at most. When it
//! has grown as large as the snapshot, a new snapshot takes the place of both.

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

/// Every object, a line each.
const SNAPSHOT: &str = "snapshot.jsonl";
/// Every change since, a line each.
const JOURNAL: &str = "journal.jsonl";
/// A journal that is smaller is left to grow.
const SMALL: u64 = 16 << 20;
/// Revisions that are skipped after an end without notice, so that none is used for two things.
const LOST: u64 = 1_000_000;
/// How soon a disk that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The files of a server.
pub(crate) struct Disk {
    directory: PathBuf,
    journal: BufWriter<File>,
    /// Up to here everything is on disk.
    revision: u64,
    written: u64,
    /// The size of the last snapshot.
    snapshot: u64,
}

impl Disk {
    /// Reads what there is into the store, and starts anew from it.
    pub(crate) fn open(core: &Core, directory: &Path) -> io::Result<Self> {
        read(core, directory)?;
        Self::begin(core, directory)
    }

    /// Writes a snapshot, whole or not at all, and begins a journal.
    fn begin(core: &Core, directory: &Path) -> io::Result<Self> {
        let (revision, shelves) = core.store.dump();
        let new = directory.join("snapshot.new");
        let mut file = BufWriter::new(crate::auth::create_private(&new)?);
        writeln!(file, "{}", json!({"revision": revision}))?;
        for (shelf, objects) in shelves {
            for (key, stored) in objects {
                write!(file, "{{\"shelf\":{},\"key\":{},\"object\":", json!(*shelf), json!(*key))?;
                file.write_all(&stored.bytes)?;
                file.write_all(b"}\n")?;
            }
        }
        file.flush()?;
        file.get_ref().sync_all()?;
        let snapshot = file.get_ref().metadata()?.len();
        std::fs::rename(new, directory.join(SNAPSHOT))?;
        // Killed before this, the server finds a journal of which it has everything already.
        let journal = BufWriter::new(crate::auth::create_private(&directory.join(JOURNAL))?);
        Ok(Self { directory: directory.to_owned(), journal, revision, written: 0, snapshot })
    }

    /// Writes down what happened since the last time.
    fn catch_up(&mut self, core: &Core) -> io::Result<()> {
        let behind = match core.store.all_since(self.revision) {
            Ok((events, revision)) if self.written < SMALL.max(self.snapshot) => {
                for (shelf, event) in &events {
                    self.append(shelf, event)?;
                }
                self.journal.flush()?;
                self.revision = revision;
                false
            }
            // Too far behind, or too long a journal.
            _ => true,
        };
        if behind {
            *self = Self::begin(core, &self.directory)?;
        }
        Ok(())
    }

    fn append(&mut self, shelf: &str, event: &Event) -> io::Result<()> {
        let head = format!("{{\"shelf\":{},\"key\":{},\"object\":", json!(shelf), json!(*event.key));
        let tail = if event.change == Change::Deleted { ",\"gone\":true}\n" } else { "}\n" };
        for part in [head.as_bytes(), &event.object.bytes, tail.as_bytes()] {
            self.journal.write_all(part)?;
            self.written += part.len() as u64;
        }
        Ok(())
    }
}

/// Keeps the disk up to date until the server ends.
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
            tracing::error!(%error, %directory, "what changed is not on disk: trying again in {AGAIN:?}");
            // Half a line may be in the journal.
            disk.written = u64::MAX;
            let again = Instant::now() + AGAIN;
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

/// Leaves a snapshot of the end, and no journal: nothing was lost.
pub(crate) fn close(core: &Core, directory: &Path) -> io::Result<()> {
    Disk::begin(core, directory)?;
    std::fs::remove_file(directory.join(JOURNAL))
}

/// Reads the snapshot and the journal; what is not there holds nothing.
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
            // What happened before the snapshot is in it.
            if at > revision {
                revision = at;
                apply(&mut objects, line);
            }
        }
        revision += LOST;
    }
    core.store.restore(revision, objects.into_iter().map(|((shelf, key), object)| (shelf, key, object)));
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

/// The lines of a journal up to the one that was being written when the server was killed.
fn whole_lines(path: &Path) -> io::Result<Option<impl Iterator<Item = Value>>> {
    Ok(lines(path)?.map(|lines| lines.map_while(Result::ok)))
}
