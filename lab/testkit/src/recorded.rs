//! Messages and files of earlier versions, which all later versions must read: `tests/recorded/vN/NAME` of a crate.
//!
//! A recorded file is never changed. When a program begins to write other bytes, the new ones are recorded under the next version.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Set by `make codegen`.
const WRITE: &str = "ANTREA_CODEGEN";

/// The recorded file `name`, such as `v1/control/hello.bin`, of the crate in `root`.
pub fn read(root: &str, name: &str) -> Result<Vec<u8>> {
    let path = path(root, name);
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Checks that programs still write the bytes that were recorded; the error says what to do if they do not. With `ANTREA_CODEGEN`
/// set, a missing file is written; existing ones never are.
pub fn check_written(root: &str, name: &str, today: &[u8]) -> Result<()> {
    if std::env::var_os(WRITE).is_some() {
        write_new(&path(root, name), today).with_context(|| format!("cannot record {name}"))?;
    }
    if read(root, name)? != today {
        bail!(
            "{name}: programs write other bytes than when this was recorded, and other versions read them.\n\
             Fix: if that is intended, leave the file and the test that reads it, drop this check of it, and record the new bytes \
             under the next version: `make codegen` writes missing files."
        );
    }
    Ok(())
}

/// Writes a file unless it exists.
fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(content),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn path(root: &str, name: &str) -> PathBuf {
    Path::new(root).join("tests/recorded").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn a_recorded_file_is_written_once_and_never_changed() {
        let scratch = Scratch::new().unwrap();
        let file = scratch.path().join("v1").join("hello.bin");
        write_new(&file, b"first").unwrap();
        write_new(&file, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"first");
    }

    #[test]
    fn other_bytes_than_recorded_are_an_error_with_the_fix() {
        let scratch = Scratch::new().unwrap();
        let root = scratch.path().to_str().unwrap();
        write_new(&path(root, "v1/a.bin"), b"first").unwrap();
        check_written(root, "v1/a.bin", b"first").unwrap();
        let error = check_written(root, "v1/a.bin", b"second").unwrap_err().to_string();
        assert!(error.contains("record the new bytes under the next version"), "{error}");
    }
}
