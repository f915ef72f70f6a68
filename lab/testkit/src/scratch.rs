//! Temporary directories, removed after the test, or by the next test if the process was killed.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

const PREFIX: &str = "tk-";
/// A unix socket's path has at most 107 bytes; the longest name that a daemon appends needs less than this.
const LONGEST_DIR: usize = 107 - 40;

/// A directory of this process, removed on drop. Its path is short enough for unix sockets.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates an empty directory. The first call of a process also removes directories of killed processes.
    pub fn new() -> Result<Self> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        let parent = env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", process::id()))
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let length = dir.path().as_os_str().len();
        ensure!(
            length <= LONGEST_DIR,
            "{} is too long for unix sockets: set TMPDIR to a shorter path",
            parent.display()
        );
        Ok(Self(dir))
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Removes the directories of dead processes. What cannot be read or removed is left to the next sweep.
pub(crate) fn sweep() {
    for dir in leftovers() {
        let _ = fs::remove_dir_all(dir);
    }
}

fn leftovers() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(env::temp_dir()) else { return Vec::new() };
    let dead = |dir: &PathBuf| owner(dir).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
    entries.flatten().map(|entry| entry.path()).filter(dead).collect()
}

/// The process id in the name of a directory that [`Scratch::new`] has made.
fn owner(dir: &Path) -> Option<u32> {
    let (pid, _) = dir.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_removes_directories_of_dead_processes_only() {
        let mine = Scratch::new().unwrap();
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let stale = env::temp_dir().join(format!("{PREFIX}{}-stale", child.id()));
        let foreign = env::temp_dir().join(format!("{PREFIX}notapid-{}", process::id()));
        fs::create_dir(&stale).unwrap();
        fs::create_dir(&foreign).unwrap();
        sweep();
        assert!(!stale.exists());
        assert!(mine.path().exists());
        assert!(foreign.exists());
        fs::remove_dir(foreign).unwrap();
    }
}
