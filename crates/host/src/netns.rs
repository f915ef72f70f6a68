//! Network namespaces: runs code inside one, on a thread that ends with it.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};

use crate::error::Error;

/// `NSFS_MAGIC`: the file system of namespaces.
const NSFS: FsType = FsType(0x6e73_6673);

/// A network namespace, which exists at least as long as this value.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
}

impl Netns {
    /// Opens the namespace at `path`, such as `/var/run/netns/cni-1234` or `/proc/17/ns/net`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bad = |problem: String| Error::Netns { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| {
            bad(format!("cannot be opened: {error}; the sandbox that it belongs to has ended, or the path is wrong"))
        })?;
        // After a namespace was unmounted, an ordinary file stays at its path.
        match fstatfs(&file) {
            Ok(fs) if fs.filesystem_type() == NSFS => Ok(Self { file, path: path.to_owned() }),
            Ok(_) => {
                Err(bad("is not a namespace; the sandbox that it belonged to has ended, or the path is wrong".into()))
            }
            Err(errno) => Err(bad(format!("cannot be inspected: {errno}"))),
        }
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A new namespace, empty except for `lo`.
    pub fn private() -> Result<Self, Error> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(Error::errno("cannot create a network namespace"))?;
            Self::current()
        })
    }

    /// Runs `work` inside, on a thread that ends with it. A socket that is opened there stays in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_a_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
                Errno::EINVAL => Error::Netns {
                    path: self.path.clone(),
                    problem: "is a namespace, but not a network namespace".into(),
                },
                errno => Error::errno(format!("cannot enter the network namespace {}", self.path.display()))(errno),
            })?;
            Ok(work())
        })
    }

    /// The path that it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Runs `work` on a thread of its own, so that no other code runs in the namespace it enters.
fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into()).stack_size(256 << 10);
        let thread = thread.spawn_scoped(scope, work).map_err(Error::io("cannot start a thread"))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
