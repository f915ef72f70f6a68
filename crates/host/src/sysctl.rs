//! Settings of the kernel, those of the calling thread's namespace where they belong to one.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::error::Error;

/// The value of a setting, without the end of the line; nothing where the kernel has no such setting.
pub(crate) fn get(key: &str) -> Result<Option<String>, Error> {
    match fs::read_to_string(path(key)?) {
        Ok(value) => Ok(Some(value.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("cannot read the setting {key}"))(error)),
    }
}

/// Writes a setting.
pub(crate) fn set(key: &str, value: &str) -> Result<(), Error> {
    // What is there is written to; `fs::write` would try to make a file.
    let write = |path| fs::OpenOptions::new().write(true).open(path);
    write(path(key)?)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(Error::io(format!("cannot set {key} to {value}")))
}

fn path(key: &str) -> Result<PathBuf, Error> {
    let below = Path::new(key).components().all(|part| matches!(part, Component::Normal(_)));
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidInput, "is no path below /proc/sys, such as net/ipv4/ip_forward");
    if below && !key.is_empty() {
        Ok(Path::new("/proc/sys").join(key))
    } else {
        Err(Error::io(format!("setting `{key}`"))(invalid()))
    }
}
