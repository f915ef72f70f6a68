//! Flushes connections to endpoints that their Service no longer has, in the switch and in the kernel, independently.

mod on_host;
mod switch;

use std::path::PathBuf;
use std::time::Duration;

use reconcile::{Pass, Settings, Target};
use tokio::sync::watch;

use crate::blocking::BlockingError;
use crate::desired::DesiredPart;
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

/// Flushes stale connections at the start and after every change, until the agent stops.
pub(crate) async fn flush_stale(engine: Engine, tracked: Tracked) {
    let desired = match tracked {
        Tracked::Switch(_) => DesiredPart::new(
            engine.clone(),
            |progress| progress.ready.then_some(progress.services.connections),
            |brain| (brain.service_versions().connections, ()),
        ),
        // The kernel's rules do not depend on endpoints.
        Tracked::Host(_) => DesiredPart::new(
            engine.clone(),
            |progress| progress.ready.then_some(progress.services.frontends),
            |brain| (brain.service_versions().frontends, ()),
        ),
    };
    let table = StaleConnections { engine, tracked, is_second_round: false };
    reconcile::run(table, desired, Settings::ON_CHANGE).await;
}

/// The stale connections of a table: there should be none. Services are read by each round itself.
struct StaleConnections {
    engine: Engine,
    tracked: Tracked,
    is_second_round: bool,
}

/// Result of one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Round {
    /// Duration of the round.
    took: Duration,
    /// Number of flushed connections.
    flushed: usize,
}

/// One connection was flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flushed;

#[derive(Debug, thiserror::Error)]
enum FlushError {
    #[error("the agent is stopping")]
    Stopping,
    #[error("the initial sync of Services is not complete")]
    NotSynced,
    #[error(transparent)]
    Switch(#[from] ovs::unixctl::UnixctlError),
    #[error(transparent)]
    Kernel(#[from] BlockingError<host::Error>),
}

impl Target for StaleConnections {
    type Desired = ();
    type Change = Flushed;
    type Failure = FlushError;

    fn name(&self) -> &'static str {
        match self.tracked {
            Tracked::Switch(_) => "OVS connection table",
            Tracked::Host(_) => "kernel connection table",
        }
    }

    async fn reconcile(&mut self, (): ()) -> Pass<Flushed, FlushError> {
        match self.flush().await {
            Ok(round) => {
                // Packets in flight may have used the old flows: do one more round.
                self.is_second_round = round.flushed > 0 && !self.is_second_round;
                round.pass(self.is_second_round)
            }
            Err(error) => Pass::failed(error),
        }
    }
}

impl StaleConnections {
    /// Flushes stale connections. Services are read after connections are listed: a connection that is created in between may have
    /// an endpoint that is newer than an earlier read, and must stay.
    async fn flush(&mut self) -> Result<Round, FlushError> {
        let engine = &self.engine;
        let query = async || engine.read(node::Brain::connections).await.ok_or(FlushError::NotSynced);
        match &mut self.tracked {
            Tracked::Switch(run_dir) => {
                // While flows for a removed endpoint are in the switch, they could create a flushed connection again.
                engine.settled().await;
                switch::flush(run_dir, query).await
            }
            Tracked::Host(host_status) => {
                // The same for nftables rules. The host reconciler logs failures.
                let desired = engine.read(node::Brain::host_version).await;
                host_status.wait_for(|status| status.version >= desired).await.map_err(|_| FlushError::Stopping)?;
                on_host::flush(query).await
            }
        }
    }
}

impl Round {
    fn pass(self, another: bool) -> Pass<Flushed, FlushError> {
        let pause = PERIOD.max(self.took * PAUSE_FACTOR);
        Pass {
            changes: vec![Flushed; self.flushed],
            incomplete: another,
            again: another.then_some(pause),
            pause,
            ..Pass::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_round_grows_with_its_duration() {
        let pause = |took: u64| Round { took: Duration::from_millis(took), flushed: 1 }.pass(true).pause.as_millis();
        assert_eq!([pause(0), pause(9), pause(11), pause(1000)], [100, 100, 110, 10_000]);
    }

    #[test]
    fn services_are_applied_after_the_last_round_only() {
        let round = Round { took: Duration::ZERO, flushed: 2 };
        let (first, last) = (round.pass(true), round.pass(false));
        assert_eq!((first.incomplete, first.again, first.changes.len()), (true, Some(PERIOD), 2));
        assert_eq!((last.incomplete, last.again), (false, None));
    }
}
