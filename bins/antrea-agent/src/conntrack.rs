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

use ovs::unixctl::{Control, DatapathFeatures, UnixctlError};
use pipeline::model::Datapath;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::blocking::{BlockingError, blocking};

/// Timeout of one command to ovs-vswitchd.
const UNIXCTL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long released addresses are collected before a flush.
const COLLECT: Duration = Duration::from_millis(250);

/// A larger table is not listed at the start: that takes long, and blocks forwarding.
const MAX_LISTED: u64 = 4096;

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
    /// Addresses that may have connections in the switch; `None` if any may.
    tracked: Arc<Mutex<Option<BTreeSet<IpAddr>>>>,
    releases: Arc<Releases>,
}

/// Released addresses, whose connections are flushed together: a flush takes up to a second, and walks through whole tables.
#[derive(Debug, Default)]
struct Releases {
    waiting: Mutex<Vec<(Vec<IpAddr>, oneshot::Sender<Flushed>)>>,
    /// Held during a flush; meanwhile others wait for the next one.
    turn: tokio::sync::Mutex<()>,
}

type Flushed = Result<(), Arc<ConntrackError>>;

impl Conntrack {
    /// The tables of an Open vSwitch with this run directory and datapath.
    pub(crate) fn new(run_dir: PathBuf, datapath: Datapath) -> Self {
        let datapath = match datapath {
            Datapath::System | Datapath::Windows => "system@ovs-system",
            Datapath::Netdev => "netdev@ovs-netdev",
        };
        Self { run_dir: Arc::new(run_dir), datapath, tracked: Arc::default(), releases: Arc::default() }
    }

    /// Lists the addresses with connections from before the agent's start: addresses without a Pod get no new ones. Until then, and
    /// if the datapath does not support it, any address may have connections.
    pub(crate) async fn list_tracked(&self) -> Result<(), ConntrackError> {
        let switch = self.switch()?;
        switch.revalidated().await?;
        let load = switch.conntrack_load(Some(self.datapath)).await?;
        if load.connections <= MAX_LISTED {
            let entries = switch.conntrack_dump(Some(self.datapath), None).await?;
            let tuples = entries.into_iter().flat_map(|entry| [entry.original, entry.reply]);
            *lock(&self.tracked) = Some(tuples.flat_map(|tuple| [tuple.src, tuple.dst]).collect());
        }
        Ok(())
    }

    /// Before a Pod gets these addresses: flushes their connections in the switch, unless that was done at their release.
    pub(crate) async fn prepare(&self, addresses: &[IpAddr]) -> Result<(), ConntrackError> {
        let may_be_tracked: Vec<IpAddr> = match &mut *lock(&self.tracked) {
            Some(tracked) => addresses.iter().copied().filter(|ip| !tracked.insert(*ip)).collect(),
            None => addresses.to_vec(),
        };
        self.flush(&may_be_tracked).await
    }

    /// After the flows of a Pod are deleted: flushes the connections of its addresses in the switch and in the kernel.
    pub(crate) async fn flush_released(&self, addresses: Vec<IpAddr>) -> Flushed {
        let (sender, mut flushed) = oneshot::channel();
        lock(&self.releases.waiting).push((addresses, sender));
        let _turn = self.releases.turn.lock().await;
        // The flush before may have been for these addresses too.
        if let Ok(outcome) = flushed.try_recv() {
            return outcome;
        }
        tokio::time::sleep_until(Instant::now() + COLLECT).await;
        let waiting = std::mem::take(&mut *lock(&self.releases.waiting));
        let (addresses, senders): (Vec<Vec<IpAddr>>, Vec<_>) = waiting.into_iter().unzip();
        let outcome = self.flush_all(addresses.concat()).await.map_err(Arc::new);
        // Fails if the caller no longer waits.
        senders.into_iter().for_each(|sender| _ = sender.send(outcome.clone()));
        outcome
    }

    async fn flush_all(&self, addresses: Vec<IpAddr>) -> Result<(), ConntrackError> {
        match self.switch()?.revalidated().await {
            // A switch with several datapath types does not support it.
            Ok(()) | Err(UnixctlError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.flush(&addresses).await?;
        let of = addresses.clone();
        blocking(move || host::conntrack::forget_addresses(&of)).await?;
        if let Some(tracked) = &mut *lock(&self.tracked) {
            addresses.iter().for_each(|ip| _ = tracked.remove(ip));
        }
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

    /// Features of the datapath of a bridge; without an answer none is used.
    pub(crate) async fn features(&self, bridge: &str) -> DatapathFeatures {
        let asked = async { self.switch()?.datapath_features(bridge).await };
        asked.await.unwrap_or_else(|error| {
            warn!(%error, "cannot read the features of the datapath; source ports of connections to Services may collide");
            DatapathFeatures::default()
        })
    }

    /// Found each time: a restarted ovs-vswitchd has another socket.
    fn switch(&self) -> Result<Control, UnixctlError> {
        Control::vswitchd(&self.run_dir, UNIXCTL_TIMEOUT)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call: the value is consistent even if a thread panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
