//! Forgets connections that do not lead where their Service does, in the switch and on the host, each at its own pace.

mod on_host;
mod switch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::{Owner, Versions};
use ovs::backoff::Backoff;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::engine::Engine;
use crate::upkeep::Upkeep;

/// Changes are gathered for so long.
const PERIOD: Duration = Duration::from_millis(100);
/// To list connections keeps a switch from forwarding: so much longer than a round is the pause after it, at least.
const PAUSE: u32 = 10;

/// Where connections are tracked.
pub(crate) enum Tracked {
    /// By Open vSwitch, which runs in this directory.
    Switch(PathBuf),
    /// By the kernel of the host, which translates NodePorts as soon as the upkeep has told it to.
    Host(watch::Receiver<Upkeep>),
}

/// What came of listing connections once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Round {
    /// How long the tracker was kept busy.
    took: Duration,
    /// How many connections were forgotten.
    forgotten: usize,
}

/// Forgets what is stale after every change, and once at the start, for ever.
pub(crate) async fn forget_stale(engine: Engine, mut tracked: Tracked) {
    let mut progress = engine.progress();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let (mut done, mut again) = (None, false);
    loop {
        let due = progress.wait_for(|now| now.ready && Some(tracked.version(now.services)) != done).await;
        // What changes from here on is a reason to look again.
        let Ok(version) = due.map(|now| tracked.version(now.services)) else { return };
        let of = tracked.name();
        let next = match tracked.forget(&engine).await {
            Ok(round) => {
                if round.forgotten > 0 {
                    info!(
                        of,
                        forgotten = round.forgotten,
                        "forgot connections that do not lead where their Service does"
                    );
                }
                backoff.reset();
                // What was under way meanwhile may have gone the old way: that is worth one more look.
                again = round.forgotten > 0 && !again;
                done = (!again).then_some(version);
                Instant::now() + round.pause()
            }
            Err(error) => {
                let delay = backoff.next_delay();
                let what = "cannot forget connections that do not lead where their Service does; trying again";
                if backoff.is_news() {
                    warn!(of, error, ?delay, "{what}");
                } else {
                    debug!(of, error, ?delay, "{what}");
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
            Self::Switch(_) => "the switch",
            Self::Host(_) => "the host",
        }
    }

    /// The version of what connections are compared with.
    fn version(&self, of: Versions) -> u64 {
        match self {
            Self::Switch(_) => of.connections,
            // The host does not know endpoints.
            Self::Host(_) => of.frontends,
        }
    }

    /// Forgets what is stale. What is known is looked at after connections are listed: one that was made meanwhile leads to an
    /// endpoint that is newer than what was known before, and lives.
    async fn forget(&mut self, engine: &Engine) -> Result<Round, String> {
        let look = async || {
            let looked = engine.look(node::Brain::connections).await.map_err(|stopped| stopped.to_string())?;
            looked.ok_or_else(|| "Services are not known yet".to_owned())
        };
        match self {
            Self::Switch(run_dir) => {
                // As long as flows lead to an endpoint that is gone, a connection that is forgotten may begin like that again.
                // What the switch refuses to hold is told elsewhere.
                let _ = engine.installed(Owner::Node).await;
                switch::forget(run_dir, look).await
            }
            Self::Host(upkeep) => {
                // The same of rules. Whether they can be set, and why not, is the upkeep's to say.
                let wanted = engine.look(node::Brain::host_version).await.map_err(|stopped| stopped.to_string())?;
                let held = upkeep.wait_for(|upkeep| upkeep.version >= wanted).await;
                held.map_err(|_| "the agent is stopping".to_owned())?;
                on_host::forget(look).await
            }
        }
    }
}

impl Round {
    fn pause(self) -> Duration {
        PERIOD.max(self.took * PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_takes_long_is_followed_by_a_pause_that_is_longer() {
        let pause = |took: u64| Round { took: Duration::from_millis(took), forgotten: 1 }.pause().as_millis();
        assert_eq!([pause(0), pause(9), pause(11), pause(1000)], [100, 100, 110, 10_000]);
    }
}
