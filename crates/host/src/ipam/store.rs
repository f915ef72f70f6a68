//! The locked directory of reservations.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::{Error, Owner, Reservation, Unusable};

/// Separator of container and interface.
const LINE_BREAK: &str = "\r\n";
/// Maximum size of a reservation: a container ID and an interface name are far shorter.
const LARGEST: u64 = 4096;

/// The reservations in the directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The reservations, ordered by address.
    pub(super) reservations: Vec<Reservation>,
    /// Files that are named like an address and cannot be read.
    pub(super) unreadable: Vec<(IpAddr, Unusable)>,
}

/// The directory, locked while this value exists.
pub(super) struct Locked {
    directory: PathBuf,
    _lock: Flock<File>,
}

impl Locked {
    pub(super) fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("lock");
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(failed("cannot open the lock", &path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, errno)| failed("cannot lock", &path)(errno.into()))?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// All addresses in use. Files with other names are ignored. The address of a file that cannot be read counts as in use, and
    /// does not affect the others.
    pub(super) fn list(&self) -> Result<Listing, Error> {
        let failed_to_list = || failed("cannot list the directory", &self.directory);
        let mut all = Listing::default();
        for entry in fs::read_dir(&self.directory).map_err(failed_to_list())? {
            let entry = entry.map_err(failed_to_list())?;
            let Some(ip) = entry.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()) else { continue };
            let path = entry.path();
            match read(&path) {
                Ok(text) => all.reservations.push(Reservation { ip, owner: owner(&text) }),
                Err(error) => all.unreadable.push((ip, Unusable { path, problem: error.to_string() })),
            }
        }
        all.reservations.sort();
        Ok(all)
    }

    /// Reserves `ip`, which must be free, for `owner`.
    pub(super) fn write(&self, ip: IpAddr, owner: &Owner) -> Result<(), Error> {
        let path = self.directory.join(ip.to_string());
        let text = format!("{}{LINE_BREAK}{}", owner.container, owner.interface);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            // A partial reservation must not stay; even a full disk usually allows removing it.
            let _ = fs::remove_file(&path);
            failed("cannot write", &path)(error)
        })
    }

    pub(super) fn remove(&self, ip: IpAddr) -> Result<(), Error> {
        let path = self.directory.join(ip.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("cannot remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// The last address allocated from a range. If it cannot be read, the search starts at the beginning.
    pub(super) fn last(&self, range: usize) -> Option<IpAddr> {
        fs::read_to_string(self.last_path(range)).ok()?.trim().parse().ok()
    }

    /// Stores where the next search starts. An error only makes the search start elsewhere.
    pub(super) fn set_last(&self, range: usize, ip: IpAddr) -> Result<(), Unusable> {
        let path = self.last_path(range);
        fs::write(&path, ip.to_string()).map_err(|error| Unusable { path, problem: error.to_string() })
    }

    fn last_path(&self, range: usize) -> PathBuf {
        self.directory.join(format!("last_reserved_ip.{range}"))
    }
}

/// Reads a reservation. Neither a pipe nor a large file blocks the reader.
fn read(path: &Path) -> io::Result<String> {
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(invalid("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(invalid("it is too large for a reservation"));
    }
    String::from_utf8(bytes).map_err(|_| invalid("its content is not UTF-8"))
}

fn owner(text: &str) -> Option<Owner> {
    let text = text.trim();
    let (container, interface) = text.split_once('\n').unwrap_or((text, ""));
    let owner = Owner::new(container.trim(), interface.trim());
    (!owner.container.is_empty()).then_some(owner)
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { doing, path, source }
}
