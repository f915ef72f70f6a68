//! The connection tables of this Node: of the switch and of the kernel.
//!
//! A reused Pod address must not inherit connections that were accepted for its previous Pod, and no Pod may exhaust a table
//! ([`guard`]).

pub(crate) mod guard;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ovs::unixctl::{Control, UnixctlError};
use pipeline::model::Datapath;

use crate::blocking::{BlockingError, blocking};

/// Timeout of one command to ovs-vswitchd.
const UNIXCTL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of addresses in `clean`; connections of other addresses are flushed again.
const MAX_CLEAN: usize = 4096;

/// Why connections are not flushed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConntrackError {
    #[error(transparent)]
    Switch(#[from] UnixctlError),
    #[error("cannot flush conntrack entries of {ip}: {source}")]
    Address { ip: IpAddr, source: UnixctlError },
    #[error("cannot flush conntrack entries of the kernel: {0}")]
    Kernel(#[from] BlockingError<host::Error>),
}

/// The connection tables of this Node.
#[derive(Clone, Debug)]
pub(crate) struct Conntrack {
    run_dir: Arc<PathBuf>,
    datapath: &'static str,
    /// Free addresses whose connections were flushed when they were released.
    clean: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Conntrack {
    /// The tables of an Open vSwitch with this run directory and datapath.
    pub(crate) fn new(run_dir: PathBuf, datapath: Datapath) -> Self {
        let datapath = match datapath {
            Datapath::System | Datapath::Windows => "system@ovs-system",
            Datapath::Netdev => "netdev@ovs-netdev",
        };
        Self { run_dir: Arc::new(run_dir), datapath, clean: Arc::default() }
    }

    /// Before a Pod gets these addresses: flushes their connections in the switch, unless that was done at their release.
    pub(crate) async fn prepare(&self, addresses: &[IpAddr]) -> Result<(), ConntrackError> {
        let unknown: Vec<IpAddr> = {
            let mut clean = self.clean();
            addresses.iter().copied().filter(|ip| !clean.remove(ip)).collect()
        };
        self.flush(&unknown).await
    }

    /// After the flows of a Pod are deleted: flushes the connections of its addresses in the switch and in the kernel.
    pub(crate) async fn flush_released(&self, addresses: Vec<IpAddr>) -> Result<(), ConntrackError> {
        match self.switch()?.revalidated().await {
            // A switch with several datapath types does not support it.
            Ok(()) | Err(UnixctlError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.flush(&addresses).await?;
        let of = addresses.clone();
        blocking(move || host::conntrack::forget_addresses(&of)).await?;
        let mut clean = self.clean();
        if clean.len() >= MAX_CLEAN {
            clean.clear();
        }
        clean.extend(addresses);
        Ok(())
    }

    /// Flushes the connections of these addresses in the switch, in all zones.
    async fn flush(&self, addresses: &[IpAddr]) -> Result<(), ConntrackError> {
        if addresses.is_empty() {
            return Ok(());
        }
        let switch = self.switch()?;
        for ip in addresses {
            let flushed = switch.conntrack_flush_address(*ip).await;
            flushed.map_err(|source| ConntrackError::Address { ip: *ip, source })?;
        }
        Ok(())
    }

    fn clean(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        // The set stays consistent even if a thread panics while it holds the lock.
        self.clean.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Found each time: a restarted ovs-vswitchd has another socket.
    fn switch(&self) -> Result<Control, UnixctlError> {
        Control::vswitchd(&self.run_dir, UNIXCTL_TIMEOUT)
    }
}
