//! IPAM for a Node's Pods, stored on disk in the format of the CNI project's `host-local`, so that either can take over from
//! the other, and both may use one directory at the same time.
//!
//! A file named after an address contains its owner: the container, and in a second line its interface (host-local before
//! 0.8 wrote the container only). `last_reserved_ip.N` has the last address allocated from the N-th range set, where the
//! next search starts: a released address is reused as late as possible. Changes require a lock on the file `lock`.
//!
//! Files are not synced to disk: no Pod that has an address survives a crash of the machine. When a process dies half-way, an
//! address may stay reserved without an owner; [`Pool::leaked`] finds it.

mod range;
mod store;

pub use range::{InvalidRange, Range};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{Listing, Locked};

/// The owner of an address: an interface of a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// Container ID from the runtime.
    pub container: String,
    /// The interface's name; empty in files of old versions, which apply to all interfaces of the container.
    pub interface: String,
}

impl Owner {
    /// The owner for an interface of a container.
    pub fn new(container: impl Into<String>, interface: impl Into<String>) -> Self {
        Self { container: container.into(), interface: interface.into() }
    }

    /// Whether a reservation of `self` counts as one of `other`.
    fn is(&self, other: &Owner) -> bool {
        self.container == other.container && (self.interface == other.interface || self.interface.is_empty())
    }
}

/// An address in use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reservation {
    /// IP address that is reserved.
    pub ip: IpAddr,
    /// The owner; `None` if a process died while writing the file.
    pub owner: Option<Owner>,
}

impl Reservation {
    fn is_of(&self, owner: &Owner) -> bool {
        self.owner.as_ref().is_some_and(|holder| holder.is(owner))
    }
}

/// A file that cannot be read or written. If it is named like an address, the address counts as taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unusable {
    /// Path of the file.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub problem: String,
}

/// An address cannot be allocated or released.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All addresses are in use.
    #[error("all {size} addresses of {range} are taken (in {})", directory.display())]
    Full {
        /// The range, for the message.
        range: String,
        /// Number of addresses in the range.
        size: u128,
        /// Directory with the reservations.
        directory: PathBuf,
    },
    /// A file or directory that cannot be used.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// An owner that cannot be stored.
    #[error("`{0}` is not a container ID or interface name: it is empty or contains a line break")]
    Owner(String),
}

/// The address pool of a Node's Pods.
#[derive(Clone, Debug)]
pub struct Pool {
    directory: PathBuf,
    ranges: Vec<Range>,
    /// Files that cannot be used, and whether `news` has returned them.
    unusable: Arc<Mutex<BTreeMap<Unusable, bool>>>,
}

impl Pool {
    /// A pool of the addresses in `ranges`, at most one range for each family. Reservations are in `directory`, which is created if
    /// it is missing.
    pub fn open(directory: &Path, ranges: Vec<Range>) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|source| Error::Io {
            doing: "cannot create the directory",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self { directory: directory.to_owned(), ranges, unusable: Arc::default() })
    }

    /// Allocates an address of each range for `owner`. An owner that has addresses gets the same again.
    pub fn allocate(&self, owner: &Owner) -> Result<Vec<IpAddr>, Error> {
        valid(owner)?;
        let store = Locked::open(&self.directory)?;
        let Listing { reservations: taken, unreadable } = self.list(&store)?;
        let held = |range: &Range| {
            taken.iter().filter(|entry| entry.is_of(owner)).map(|entry| entry.ip).find(|ip| range.contains(*ip))
        };
        let used: BTreeSet<IpAddr> =
            taken.iter().map(|entry| entry.ip).chain(unreadable.iter().map(|(ip, _)| *ip)).collect();
        let mut fresh = Vec::new();
        let mut all = Vec::new();
        for (index, range) in self.ranges.iter().enumerate() {
            let ip = match held(range) {
                Some(ip) => Ok(ip),
                None => self.take(&store, index, range, &used, owner).inspect(|ip| fresh.push(*ip)),
            };
            match ip {
                Ok(ip) => all.push(ip),
                Err(error) => {
                    // All or nothing. `leaked` finds what cannot be removed now.
                    fresh.iter().for_each(|ip| _ = store.remove(*ip));
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    fn take(
        &self,
        store: &Locked,
        index: usize,
        range: &Range,
        used: &BTreeSet<IpAddr>,
        owner: &Owner,
    ) -> Result<IpAddr, Error> {
        let free = range.after(store.last(index)).find(|ip| !used.contains(ip));
        let full = || Error::Full { range: range.to_string(), size: range.size(), directory: self.directory.clone() };
        let ip = free.ok_or_else(full)?;
        store.write(ip, owner)?;
        if let Err(problem) = store.set_last(index, ip) {
            self.unusable().entry(problem).or_default();
        }
        Ok(ip)
    }

    /// Moves the reservations of another directory here, and returns their addresses; none if it does not exist. Where both have one
    /// of the same address, ours stays.
    pub fn take_over(&self, from: &Path) -> Result<Vec<IpAddr>, Error> {
        if !from.is_dir() {
            return Ok(Vec::new());
        }
        let (store, theirs) = (Locked::open(&self.directory)?, Locked::open(from)?);
        let ours: BTreeSet<IpAddr> = self.list(&store)?.reservations.into_iter().map(|entry| entry.ip).collect();
        let mut taken = Vec::new();
        for Reservation { ip, owner } in theirs.list()?.reservations {
            if let Some(owner) = owner.filter(|_| !ours.contains(&ip)) {
                store.write(ip, &owner)?;
                taken.push(ip);
            }
            theirs.remove(ip)?;
        }
        Ok(taken)
    }

    /// Releases all addresses of `owner`, possibly none, and returns them.
    pub fn release(&self, owner: &Owner) -> Result<Vec<IpAddr>, Error> {
        self.remove(|entry| entry.is_of(owner))
    }

    /// The reservations of `owner`.
    pub fn held_by(&self, owner: &Owner) -> Result<Vec<Reservation>, Error> {
        Ok(self.holders()?.into_iter().filter(|entry| entry.is_of(owner)).collect())
    }

    /// All reservations with their owners.
    pub fn holders(&self) -> Result<Vec<Reservation>, Error> {
        Ok(self.list(&Locked::open(&self.directory)?)?.reservations)
    }

    /// Reservations without an owner, or of a container that is not in `keep`.
    pub fn leaked(&self, keep: &BTreeSet<String>) -> Result<Vec<Reservation>, Error> {
        let is_leaked = |entry: &Reservation| entry.owner.as_ref().is_none_or(|owner| !keep.contains(&owner.container));
        Ok(self.holders()?.into_iter().filter(is_leaked).collect())
    }

    /// Releases these reservations if they still exist unchanged, and returns their addresses.
    pub fn free(&self, reservations: &[Reservation]) -> Result<Vec<IpAddr>, Error> {
        self.remove(|entry| reservations.contains(entry))
    }

    /// Files that cannot be used and were not returned before.
    pub fn news(&self) -> Vec<Unusable> {
        let mut known = self.unusable();
        let news =
            known.iter_mut().filter_map(|(file, reported)| (!std::mem::replace(reported, true)).then(|| file.clone()));
        news.collect()
    }

    fn remove(&self, unwanted: impl Fn(&Reservation) -> bool) -> Result<Vec<IpAddr>, Error> {
        let store = Locked::open(&self.directory)?;
        let entries = self.list(&store)?.reservations.into_iter().filter(unwanted);
        entries.map(|entry| store.remove(entry.ip).map(|()| entry.ip)).collect()
    }

    fn list(&self, store: &Locked) -> Result<Listing, Error> {
        let listing = store.list()?;
        let mut known = self.unusable();
        // A file that was removed and comes back is reported again.
        known.retain(|file, _| file.path.symlink_metadata().is_ok());
        for (_, file) in &listing.unreadable {
            known.entry(file.clone()).or_default();
        }
        Ok(listing)
    }

    fn unusable(&self) -> MutexGuard<'_, BTreeMap<Unusable, bool>> {
        // The map is consistent even if a thread panicked while it held the lock.
        self.unusable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn valid(owner: &Owner) -> Result<(), Error> {
    let bad = |text: &&String| text.is_empty() || text.contains(['\r', '\n']) || text.trim() != text.as_str();
    match [&owner.container, &owner.interface].into_iter().find(bad) {
        Some(text) => Err(Error::Owner(text.clone())),
        None => Ok(()),
    }
}
