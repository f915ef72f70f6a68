//! Flushes connections to endpoints that their Service no longer has, in the switch and in the kernel, independently.

mod on_host;
mod switch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::Versions;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::backoff::Backoff;

use crate::engine::Engine;
use crate::host_reconciler::HostStatus;

/// Minimum time between two rounds.
const PERIOD: Duration = Duration::from_millis(100);
/// Listing connections blocks the switch's forwarding: the pause after a round is at least this many times its duration.
const PAUSE_FACTOR: u32 = 10;

/// A connection table that may have stale entries.
pub(crate) enum Tracked {
    /// Of Open vSwitch, with this run directory.
    Switch(PathBuf),
    /// Of the kernel, which translates NodePorts once the nftables rules are applied.
    Host(watch::Receiver<HostStatus>),
}

/// Result of one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Round {
    /// Duration of the round.
    took: Duration,
    /// Number of flushed connections.
    flushed: usize,
}

/// Flushes stale connections at the start and after every change, until the agent stops.
pub(crate) async fn flush_stale(engine: Engine, mut tracked: Tracked) {
    let mut progress = engine.progress();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let (mut done, mut again) = (None, false);
    loop {
        let due = progress.wait_for(|now| now.ready && Some(tracked.version(now.services)) != done).await;
        // Later changes cause another round.
        let Ok(version) = due.map(|now| tracked.version(now.services)) else { return };
        let of = tracked.name();
        let next = match tracked.flush(&engine).await {
            Ok(round) => {
                if round.flushed > 0 {
                    info!(table = of, connections = round.flushed, "flushed stale Service connections");
                }
                backoff.reset();
                // Packets in flight may have used the old flows: do one more round.
                again = round.flushed > 0 && !again;
                done = (!again).then_some(version);
                Instant::now() + round.pause()
            }
            Err(error) => {
                let delay = backoff.next_delay();
                let what = "cannot flush stale Service connections; retrying";
                if backoff.is_news() {
                    warn!(table = of, error, ?delay, "{what}");
                } else {
                    debug!(table = of, error, ?delay, "{what}");
                }
                Instant::now() + delay
            }
        };
        tokio::time::sleep_until(next.into()).await;
    }
}

impl Tracked {
    fn name(&self) -> &'static str {
        match self {
            Self::Switch(_) => "ovs",
            Self::Host(_) => "kernel",
        }
    }

    /// Version of the Services that connections are compared with.
    fn version(&self, of: Versions) -> u64 {
        match self {
            Self::Switch(_) => of.connections,
            // The kernel's rules do not depend on endpoints.
            Self::Host(_) => of.frontends,
        }
    }

    /// Flushes stale connections. Services are read after connections are listed: a connection that is created in between may have
    /// an endpoint that is newer than an earlier read, and must stay.
    async fn flush(&mut self, engine: &Engine) -> Result<Round, String> {
        let query = async || {
            let connections = engine.read(node::Brain::connections).await;
            connections.ok_or_else(|| "the initial sync of Services is not complete".to_owned())
        };
        match self {
            Self::Switch(run_dir) => {
                // While flows for a removed endpoint are in the switch, they could create a flushed connection again.
                engine.settled().await;
                switch::flush(run_dir, query).await
            }
            Self::Host(host_status) => {
                // The same for nftables rules. The host reconciler logs failures.
                let desired = engine.read(node::Brain::host_version).await;
                let held = host_status.wait_for(|status| status.version >= desired).await;
                held.map_err(|_| "the agent is stopping".to_owned())?;
                on_host::flush(query).await
            }
        }
    }
}

impl Round {
    fn pause(self) -> Duration {
        PERIOD.max(self.took * PAUSE_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_round_grows_with_its_duration() {
        let pause = |took: u64| Round { took: Duration::from_millis(took), flushed: 1 }.pause().as_millis();
        assert_eq!([pause(0), pause(9), pause(11), pause(1000)], [100, 100, 110, 10_000]);
    }
}
