//! Sysctls, in the calling thread's namespace for those that are per namespace.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use crate::error::Error;

/// The directory of sysctls, if it is not `/proc/sys`.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Uses another mount of the sysctls from now on: in a container, `/proc/sys` is read-only. The first call counts. It has no
/// influence on the namespace, which is always that of the calling thread.
pub fn use_directory(directory: PathBuf) {
    DIRECTORY.get_or_init(|| directory);
}

/// The value of a sysctl, without the line break; `None` if the kernel does not have it.
pub(crate) fn get(key: &str) -> Result<Option<String>, Error> {
    match fs::read_to_string(path(key)?) {
        Ok(value) => Ok(Some(value.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("cannot read sysctl {key}"))(error)),
    }
}

/// Writes an existing sysctl.
pub(crate) fn set(key: &str, value: &str) -> Result<(), Error> {
    // Opens without creating; `fs::write` would try to create a file.
    let write = |path| fs::OpenOptions::new().write(true).open(path);
    write(path(key)?)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(Error::io(format!("cannot set sysctl {key} to {value}")))
}

fn path(key: &str) -> Result<PathBuf, Error> {
    let below = Path::new(key).components().all(|part| matches!(part, Component::Normal(_)));
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidInput, "is not a path below /proc/sys, such as net/ipv4/ip_forward");
    if below && !key.is_empty() {
        let directory = DIRECTORY.get().map_or(Path::new("/proc/sys"), PathBuf::as_path);
        Ok(directory.join(key))
    } else {
        Err(Error::io(format!("sysctl `{key}`"))(invalid()))
    }
}
