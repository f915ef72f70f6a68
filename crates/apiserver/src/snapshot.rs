//! The snapshot: every object, a line each, so that a lab survives a restart.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::core::Core;

/// The name of the file in the data directory.
pub(crate) const FILE: &str = "snapshot.jsonl";

/// Writes everything to a file, whole or not at all.
pub(crate) fn write(core: &Core, path: &Path) -> io::Result<()> {
    let (revision, shelves) = core.store.dump();
    let new = path.with_extension("new");
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
    std::fs::rename(new, path)
}

/// Reads what [`write`] wrote; a file that is not there holds nothing.
pub(crate) fn read(core: &Core, path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut lines = file.lines().map(|line| serde_json::from_str::<Value>(&line?).map_err(io::Error::from));
    let revision = lines.next().transpose()?.and_then(|head| head.get("revision").and_then(Value::as_u64)).unwrap_or(1);
    let objects = lines.collect::<Result<Vec<_>, _>>()?;
    let entry = |mut line: Value| {
        let object = crate::value::remove(&mut line, "object")?;
        Some((crate::value::text(&line, "shelf").into(), crate::value::text(&line, "key").into(), object))
    };
    core.store.restore(revision, objects.into_iter().filter_map(entry));
    core.refresh();
    Ok(())
}
