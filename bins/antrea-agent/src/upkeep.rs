//! Keeps the host as it should be: after every change of what is wanted, of what is there, and now and then.

use std::time::{Duration, Instant};

use host::{Kernel, diff};
use node::Brain;
use ovs::backoff::Backoff;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::host::{Desired, Op};

use crate::engine::Engine;

/// How often the host is looked at though nothing seems to have changed: for what the kernel does not tell of.
const PERIOD: Duration = Duration::from_secs(60);
/// How long changes of the host are gathered before it is looked at.
const GATHER: Duration = Duration::from_millis(50);

/// How the upkeep is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Upkeep {
    /// The version of what is wanted that the host holds.
    pub(crate) version: u64,
    /// How many things were found changed by somebody else, and repaired.
    pub(crate) repaired: u64,
}

/// Keeps the host as the engine wants it, for ever.
pub(crate) async fn keep(engine: Engine, gateway: String, status: watch::Sender<Upkeep>) {
    let mut progress = engine.progress();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut watch = host::watch::Watch::open([gateway])
        .map_err(|error| warn!(%error, "changes of the host are noticed only every minute"))
        .ok();
    let mut kernel = None;
    let mut next = Instant::now();
    loop {
        let version = progress.borrow_and_update().host_version;
        let due = version != status.borrow().version || next <= Instant::now();
        if due && version > 0 {
            // The version of what is looked at: what is wanted may have changed since it was found to be due.
            let look = |brain: &Brain| (brain.host_version(), brain.host(), brain.is_synced());
            let Ok((version, desired, sweep)) = engine.look(look).await else { return };
            match tend(kernel.take(), desired, sweep).await {
                Ok(tended) => {
                    kernel = Some(tended.kernel);
                    let drifted = version == status.borrow().version && !tended.changed.is_empty();
                    for op in &tended.changed {
                        if drifted {
                            warn!(?op, "somebody has changed the host; repaired");
                        } else {
                            debug!(?op, "the host was changed");
                        }
                    }
                    if tended.failures.is_empty() {
                        backoff.reset();
                        next = Instant::now() + PERIOD;
                        let repaired = if drifted { tended.changed.len() as u64 } else { 0 };
                        status.send_modify(|status| {
                            status.version = version;
                            status.repaired += repaired;
                        });
                    } else {
                        next = Instant::now() + backoff.next_delay();
                        for failure in tended.failures.iter().filter(|_| backoff.is_news()) {
                            warn!(error = failure, "the host is not as it should be; trying again");
                        }
                    }
                }
                Err(error) => {
                    next = Instant::now() + backoff.next_delay();
                    if backoff.is_news() {
                        warn!(error, "cannot look at the host; trying again");
                    }
                }
            }
        }
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(next.into()) => {}
            () = something(&mut watch) => {
                let gathered = Instant::now() + GATHER;
                tokio::time::sleep_until(gathered.into()).await;
                next = next.min(gathered);
            }
        }
    }
}

struct Tended {
    kernel: Kernel,
    changed: Vec<Op>,
    failures: Vec<String>,
}

/// Makes the host what it should be.
async fn tend(kernel: Option<Kernel>, desired: Desired, sweep: bool) -> Result<Tended, String> {
    let work = move || -> Result<Tended, host::Error> {
        let mut kernel = match kernel {
            Some(kernel) => kernel,
            None => Kernel::open()?,
        };
        let observed = kernel.observe(&desired)?;
        let mut changed = diff(&desired, &observed, sweep);
        let failed = kernel.apply(&changed);
        changed.retain(|op| !failed.iter().any(|failure| failure.op == *op));
        if !changed.is_empty() {
            info!(changes = changed.len(), "the host was told");
        }
        Ok(Tended { kernel, changed, failures: failed.iter().map(ToString::to_string).collect() })
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| format!("a bug: {error}"))?.map_err(|error| error.to_string())
}

async fn something(watch: &mut Option<host::watch::Watch>) {
    match watch {
        Some(open) => {
            if let Err(error) = open.changed().await {
                warn!(%error, "changes of the host are noticed only every minute from now on");
                *watch = None;
            }
        }
        None => std::future::pending().await,
    }
}
