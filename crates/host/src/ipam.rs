//! The addresses of a Node's Pods, kept on disk as the CNI project's `host-local` keeps them, so that either can take over from
//! the other, and both may work in one directory at the same time.
//!
//! A file named like an address says who holds it: the container, and in a second line its interface (host-local before 0.8
//! wrote the container alone). `last_reserved_ip.N` is where the search in the N-th list of ranges goes on, so that an
//! address that was given back rests for as long as possible. Whoever changes anything holds a lock on `lock`.
//!
//! What is written need not be forced to the disk: when the machine crashes, no Pod that holds an address lives on. When a
//! process dies half-way, an address may stay taken by nobody; [`Pool::collect`] finds it.

mod range;
mod store;

pub use range::{InvalidRange, Range};

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use store::Locked;

/// Who holds an address: an interface of a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// The container's id.
    pub container: String,
    /// The interface's name; empty in files of old versions, which stand for all interfaces of the container.
    pub interface: String,
}

impl Owner {
    /// An interface of a container.
    pub fn new(container: impl Into<String>, interface: impl Into<String>) -> Self {
        Self { container: container.into(), interface: interface.into() }
    }

    /// Whether what is held by `self` is held by `other`.
    fn is(&self, other: &Owner) -> bool {
        self.container == other.container && (self.interface == other.interface || self.interface.is_empty())
    }
}

/// An address that is taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reservation {
    /// The address.
    pub ip: IpAddr,
    /// By whom; nobody where a process died while it wrote.
    pub owner: Option<Owner>,
}

/// Why there is no address.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All addresses are taken.
    #[error("all {size} addresses of {range} are taken (in {})", directory.display())]
    Full {
        /// The range, for people.
        range: String,
        /// How many addresses there are.
        size: u128,
        /// Where it is written who holds them.
        directory: PathBuf,
    },
    /// A file or directory that cannot be used.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// An owner that cannot be written down.
    #[error("`{0}` is no name of a container or an interface: it is empty or has a line break")]
    Owner(String),
}

/// The addresses of a Node's Pods.
#[derive(Clone, Debug)]
pub struct Pool {
    directory: PathBuf,
    ranges: Vec<Range>,
}

impl Pool {
    /// The addresses in `ranges`, at most one range a family; who holds which is in `directory`, which is made if it is missing.
    pub fn open(directory: &Path, ranges: Vec<Range>) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|source| Error::Io {
            doing: "cannot make the directory",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self { directory: directory.to_owned(), ranges })
    }

    /// Takes an address of each range for `owner`. One who holds addresses gets the same again.
    pub fn allocate(&self, owner: &Owner) -> Result<Vec<IpAddr>, Error> {
        valid(owner)?;
        let store = Locked::open(&self.directory)?;
        let taken = store.reservations()?;
        let held = |range: &Range| {
            let mine = |entry: &&Reservation| entry.owner.as_ref().is_some_and(|holder| holder.is(owner));
            taken.iter().filter(mine).map(|entry| entry.ip).find(|ip| range.contains(*ip))
        };
        let used: BTreeSet<IpAddr> = taken.iter().map(|entry| entry.ip).collect();
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
                    // All or nothing. What cannot be removed now is found by `collect`.
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
        store.set_last(index, ip)?;
        Ok(ip)
    }

    /// Gives back what `owner` holds; nothing is as good. Gives the addresses.
    pub fn release(&self, owner: &Owner) -> Result<Vec<IpAddr>, Error> {
        self.remove(|entry| entry.owner.as_ref().is_some_and(|holder| holder.is(owner)))
    }

    /// Who holds what.
    pub fn holders(&self) -> Result<Vec<Reservation>, Error> {
        Locked::open(&self.directory)?.reservations()
    }

    /// Gives back what is held by anybody but the containers in `keep`. Gives what that was.
    pub fn collect(&self, keep: &BTreeSet<String>) -> Result<Vec<IpAddr>, Error> {
        self.remove(|entry| entry.owner.as_ref().is_none_or(|owner| !keep.contains(&owner.container)))
    }

    fn remove(&self, unwanted: impl Fn(&Reservation) -> bool) -> Result<Vec<IpAddr>, Error> {
        let store = Locked::open(&self.directory)?;
        let entries = store.reservations()?.into_iter().filter(unwanted);
        entries.map(|entry| store.remove(entry.ip).map(|()| entry.ip)).collect()
    }
}

fn valid(owner: &Owner) -> Result<(), Error> {
    let bad = |text: &&String| text.is_empty() || text.contains(['\r', '\n']) || text.trim() != text.as_str();
    match [&owner.container, &owner.interface].into_iter().find(bad) {
        Some(text) => Err(Error::Owner(text.clone())),
        None => Ok(()),
    }
}
