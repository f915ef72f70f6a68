//! Limits the share of the connection tables that one address can use, so that no Pod exhausts them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::{Excess, Load, Own, Tracked, crowding};
use ovs::unixctl::{ConntrackEntry, ConntrackLoad, ConntrackMatch, UnixctlError};
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::backoff::Backoff;

use super::{Conntrack, ConntrackError};
use crate::blocking::blocking;
use crate::engine::Engine;

/// Period of checks, normally and while a table is nearly full.
const PERIOD: Duration = Duration::from_secs(2);
const PERIOD_NEARLY_FULL: Duration = Duration::from_millis(250);
/// Listing a table blocks the switch's forwarding: the pause after it is at least this many times its duration.
const PAUSE_FACTOR: u32 = 5;
/// The longest pause while a table is nearly full and no address exceeds its share.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The default limit of Open vSwitch in userspace: gigabytes of memory, and many seconds to list.
const OVS_LIMIT: u64 = 3_000_000;
/// The limit that replaces it: the kernel's own on an ordinary Node.
const LIMIT: u64 = 262_144;
/// From this many connections of one initiator on, all of them are flushed by address instead of one by one.
const BULK: usize = 4096;
/// State of a TCP connection without a reply.
const NO_REPLY: &str = "SYN_SENT";

/// State of the connection tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tables {
    /// Of the switch; the userspace datapath has its own table.
    pub(crate) switch: Option<Table>,
    /// Of the kernel, if conntrack is loaded.
    pub(crate) kernel: Option<Table>,
}

/// State of one connection table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Table {
    pub(crate) load: Load,
    /// Connections that were flushed since the start.
    pub(crate) flushed: u64,
}

/// Checks the tables until the agent stops.
pub(crate) async fn run(engine: Engine, conntrack: Conntrack, own: Arc<Own>, tables: watch::Sender<Tables>) {
    let (mut switch, mut kernel) = (TableGuard::new(Kind::Switch), TableGuard::new(Kind::Kernel));
    loop {
        for guard in [&mut switch, &mut kernel] {
            guard.check(&engine, &conntrack, &own).await;
        }
        let now = Tables { switch: switch.table, kernel: kernel.table };
        tables.send_replace(now);
        let is_nearly_full = [now.switch, now.kernel].into_iter().flatten().any(|table| table.load.is_nearly_full());
        let next = Instant::now() + if is_nearly_full { PERIOD_NEARLY_FULL } else { PERIOD };
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = tables.closed() => return,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Switch,
    Kernel,
}

/// The guard of one table.
struct TableGuard {
    kind: Kind,
    table: Option<Table>,
    /// The table is not listed again before this time.
    not_before: Instant,
    backoff: Backoff,
}

impl TableGuard {
    fn new(kind: Kind) -> Self {
        Self { kind, table: None, not_before: Instant::now(), backoff: Backoff::new(PERIOD, MAX_PAUSE) }
    }

    async fn check(&mut self, engine: &Engine, conntrack: &Conntrack, own: &Own) {
        let Some(load) = self.kind.load(conntrack).await else {
            self.table = None;
            return;
        };
        let table = self.table.get_or_insert_default();
        table.load = load;
        if !load.is_nearly_full() {
            self.backoff.reset();
            return;
        }
        let began = Instant::now();
        if began < self.not_before {
            return;
        }
        let outcome = self.kind.flush_surplus(engine, conntrack, own, load).await;
        let took = began.elapsed();
        let pause = match &outcome {
            Ok(flushed) if *flushed > 0 => {
                table.flushed += *flushed as u64;
                self.backoff.reset();
                took * PAUSE_FACTOR
            }
            Ok(_) | Err(_) => self.backoff.next_delay().max(took * PAUSE_FACTOR),
        };
        let Load { connections, limit } = load;
        match outcome {
            Ok(0) if self.backoff.is_news() => {
                let what = "the connection table is nearly full, and no single address exceeds its share";
                warn!(
                    table = self.kind.name(),
                    connections,
                    limit,
                    "{what}: raise its limit ({})",
                    self.kind.setting()
                );
            }
            Ok(flushed) => debug!(table = self.kind.name(), connections, limit, flushed, ?took, "flushed connections"),
            Err(error) => warn!(
                table = self.kind.name(),
                connections, limit, %error, "cannot flush connections of a table that is nearly full; retrying"
            ),
        }
        self.not_before = Instant::now() + pause;
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Switch => "ovs",
            Self::Kernel => "kernel",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Switch => "ovs-appctl dpctl/ct-set-maxconns",
            Self::Kernel => "sysctl net.netfilter.nf_conntrack_max",
        }
    }

    /// The load; `None` if the table does not exist or cannot be read.
    async fn load(self, conntrack: &Conntrack) -> Option<Load> {
        match self {
            Self::Switch => match conntrack.load().await {
                Ok(load) => Some(load),
                // The kernel datapath uses the kernel's table, or ovs-vswitchd is not running.
                Err(error) => {
                    debug!(%error, "cannot read the connection count of the switch");
                    None
                }
            },
            Self::Kernel => blocking(|| Ok::<_, std::convert::Infallible>(host::conntrack::load()))
                .await
                .ok()
                .flatten()
                .map(|(connections, limit)| Load { connections, limit }),
        }
    }

    /// Lists the table, and flushes the surplus of addresses that exceed their share; returns the number of connections.
    async fn flush_surplus(
        self,
        engine: &Engine,
        conntrack: &Conntrack,
        own: &Own,
        load: Load,
    ) -> Result<usize, ConntrackError> {
        let exempt = own_addresses(own);
        match self {
            Self::Switch => {
                let (listed, known) = conntrack.list().await?;
                let all = crowding(&known, load.limit, &exempt);
                log_excess(engine, self, &all).await;
                Ok(conntrack.flush_excess(&listed, &all).await?)
            }
            Self::Kernel => {
                let listed = blocking(host::conntrack::list).await?;
                let known: Vec<Tracked> = listed.iter().map(tracked_by_kernel).collect();
                let all = crowding(&known, load.limit, &exempt);
                log_excess(engine, self, &all).await;
                let surplus = all.iter().flat_map(|excess| &excess.surplus);
                let surplus: Vec<_> = surplus.filter_map(|index| listed.get(*index).cloned()).collect();
                Ok(blocking(move || host::conntrack::forget(&surplus)).await?)
            }
        }
    }
}

/// Logs the addresses that exceed their share, with their Pods.
async fn log_excess(engine: &Engine, kind: Kind, all: &[Excess]) {
    if all.is_empty() {
        return;
    }
    let query = |brain: &node::Brain| {
        let pods = brain.interfaces().flat_map(|one| one.addresses.iter().map(|ip| (*ip, one.pod.to_string())));
        pods.collect::<BTreeMap<IpAddr, String>>()
    };
    let pods = engine.read(query).await;
    for Excess { initiator, held, share, surplus } in all {
        let pod = pods.get(initiator).map_or("(not a Pod of this Node)", String::as_str);
        warn!(
            table = kind.name(),
            pod,
            address = %initiator,
            held,
            share,
            flushed = surplus.len(),
            "the connection table is nearly full; flushing connections of an address that holds more than its share"
        );
    }
}

/// The addresses of the Node itself, which are exempt.
fn own_addresses(own: &Own) -> BTreeSet<IpAddr> {
    let of_bridge = own.families().flat_map(|address| [address.gateway, address.snat, address.virtual_service]);
    of_bridge.chain(own.node_port_addresses.iter().copied()).collect()
}

fn tracked_by_kernel(one: &host::conntrack::Connection) -> Tracked {
    Tracked { initiator: one.initiator, is_answered: one.is_answered, timeout: one.timeout }
}

/// The switch reports replies only for TCP. Connections of other protocols count as unanswered; their next packet recreates them.
fn tracked_by_switch(entry: &ConntrackEntry) -> Tracked {
    Tracked {
        initiator: entry.original.src,
        is_answered: entry.state.as_deref().is_some_and(|state| state != NO_REPLY),
        timeout: 0,
    }
}

impl Conntrack {
    /// The load of the switch's table; replaces the default limit.
    async fn load(&self) -> Result<Load, UnixctlError> {
        let switch = self.switch()?;
        let ConntrackLoad { connections, mut limit } = switch.conntrack_load(Some(self.datapath)).await?;
        // A limit that an operator has set is kept.
        if limit == OVS_LIMIT {
            switch.conntrack_limit(Some(self.datapath), LIMIT).await?;
            limit = LIMIT;
            info!(limit, "lowered the limit of the switch's connection table from the default of Open vSwitch");
        }
        Ok(Load { connections, limit })
    }

    async fn list(&self) -> Result<(Vec<ConntrackEntry>, Vec<Tracked>), UnixctlError> {
        let listed = self.switch()?.conntrack_dump(Some(self.datapath), None).await?;
        let known = listed.iter().map(tracked_by_switch).collect();
        Ok((listed, known))
    }

    async fn flush_excess(&self, listed: &[ConntrackEntry], all: &[Excess]) -> Result<usize, UnixctlError> {
        let (switch, any) = (self.switch()?, ConntrackMatch::default());
        let mut flushed = 0;
        for Excess { initiator, surplus, .. } in all {
            let entries = surplus.iter().filter_map(|index| listed.get(*index));
            let (entries, unflushable): (Vec<&ConntrackEntry>, Vec<_>) =
                entries.partition(|entry| entry.is_flushable());
            if entries.len() >= BULK {
                switch.conntrack_flush_address(*initiator).await?;
                flushed += entries.len();
            } else {
                let entries: Vec<ConntrackEntry> = entries.into_iter().cloned().collect();
                flushed += switch.conntrack_flush_entries(&entries).await?;
            }
            if unflushable.len() > surplus.len() / 2 {
                // These entries cannot be flushed alone: flush their zones; the next packets recreate the other connections.
                let zones: BTreeSet<u16> = unflushable.iter().map(|entry| entry.zone).collect();
                warn!(address = %initiator, ?zones, "ICMPv6 connections fill the connection table; flushing their zones");
                for zone in zones {
                    switch.conntrack_flush(Some(zone), &any, &any).await?;
                }
                flushed += unflushable.len();
            }
        }
        Ok(flushed)
    }
}
