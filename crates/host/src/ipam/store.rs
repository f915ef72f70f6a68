//! The directory, while nobody else may change it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::{Error, Owner, Reservation};

/// What separates a container from its interface.
const LINE_BREAK: &str = "\r\n";

/// The directory, locked for as long as this value lives.
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

    /// All addresses that are taken, in order. Files of other names are not ours.
    pub(super) fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let failed_to_list = || failed("cannot list the directory", &self.directory);
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed_to_list())? {
            let entry = entry.map_err(failed_to_list())?;
            let Some(ip) = entry.file_name().to_str().and_then(|name| name.parse::<IpAddr>().ok()) else { continue };
            let path = entry.path();
            let text = fs::read_to_string(&path).map_err(failed("cannot read", &path))?;
            all.push(Reservation { ip, owner: owner(&text) });
        }
        all.sort();
        Ok(all)
    }

    /// Writes that `owner` holds `ip`, which nobody does.
    pub(super) fn write(&self, ip: IpAddr, owner: &Owner) -> Result<(), Error> {
        let path = self.directory.join(ip.to_string());
        let text = format!("{}{LINE_BREAK}{}", owner.container, owner.interface);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            // Half a reservation is none; a disk that is full may still have room for the directory's change.
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

    /// The address that was given last from a range. Where that cannot be known, any search is as good.
    pub(super) fn last(&self, range: usize) -> Option<IpAddr> {
        fs::read_to_string(self.last_path(range)).ok()?.trim().parse().ok()
    }

    pub(super) fn set_last(&self, range: usize, ip: IpAddr) -> Result<(), Error> {
        let path = self.last_path(range);
        fs::write(&path, ip.to_string()).map_err(failed("cannot write", &path))
    }

    fn last_path(&self, range: usize) -> PathBuf {
        self.directory.join(format!("last_reserved_ip.{range}"))
    }
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
