//! Reconciles the host network: after changes of the desired state, after changes in the kernel, and periodically.

use std::time::{Duration, Instant};

use host::{Kernel, diff};
use node::Brain;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::backoff::Backoff;
use types::host::{Desired, Op};

use crate::engine::Engine;

/// Period of reconciliations without a change, for drift that the kernel does not report.
const PERIOD: Duration = Duration::from_secs(60);
/// How long changes in the kernel are collected before a reconciliation.
const COLLECT: Duration = Duration::from_millis(50);

/// Status of the host network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostStatus {
    /// Version of the desired state that is applied.
    pub(crate) version: u64,
    /// Whether the nftables rules have been applied since the agent started.
    pub(crate) has_firewall: bool,
    /// Why the desired state is not applied.
    pub(crate) failure: Option<String>,
    /// Number of repaired differences that another program has caused.
    pub(crate) repaired: u64,
}

/// Reconciles the host network until the agent stops.
pub(crate) async fn run(engine: Engine, gateway: String, status: watch::Sender<HostStatus>) {
    let mut progress = engine.progress();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut watch = host::watch::Watch::open([gateway])
        .map_err(|error| warn!(%error, "cannot watch the kernel; the host network is checked once a minute"))
        .ok();
    let mut kernel = None;
    let mut next = Instant::now();
    loop {
        let version = progress.borrow_and_update().host_version;
        let due = version != status.borrow().version || next <= Instant::now();
        if due && version > 0 {
            // Read version and state together: the state may have changed since the reconciliation was due.
            let query = |brain: &Brain| (brain.host_version(), brain.host(), brain.is_synced());
            let (version, desired, sweep) = engine.read(query).await;
            match reconcile_once(kernel.take(), desired, sweep).await {
                Ok(reconciled) => {
                    kernel = Some(reconciled.kernel);
                    let drifted = version == status.borrow().version && !reconciled.changed.is_empty();
                    for op in &reconciled.changed {
                        if drifted {
                            warn!(?op, "host network drifted; repaired");
                        } else {
                            debug!(?op, "applied a host network change");
                        }
                    }
                    let failure = reconciled.failures.first().cloned();
                    status.send_modify(|status| {
                        status.has_firewall |= reconciled.has_firewall;
                        status.failure = failure;
                    });
                    if reconciled.failures.is_empty() {
                        backoff.reset();
                        next = Instant::now() + PERIOD;
                        let repaired = if drifted { reconciled.changed.len() as u64 } else { 0 };
                        status.send_modify(|status| {
                            status.version = version;
                            status.repaired += repaired;
                        });
                    } else {
                        next = Instant::now() + backoff.next_delay();
                        for failure in reconciled.failures.iter().filter(|_| backoff.is_news()) {
                            warn!(error = failure, "cannot apply a host network change; retrying");
                        }
                    }
                }
                Err(error) => {
                    status.send_modify(|status| status.failure = Some(error.clone()));
                    next = Instant::now() + backoff.next_delay();
                    if backoff.is_news() {
                        warn!(error, "cannot read the host network state; retrying");
                    }
                }
            }
        }
        tokio::select! {
            changed = progress.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(next.into()) => {}
            () = kernel_changed(&mut watch) => {
                let gathered = Instant::now() + COLLECT;
                tokio::time::sleep_until(gathered.into()).await;
                next = next.min(gathered);
            }
        }
    }
}

struct Reconciled {
    kernel: Kernel,
    changed: Vec<Op>,
    failures: Vec<String>,
    /// Whether the nftables rules are as desired.
    has_firewall: bool,
}

/// Observes the host network, and applies the difference to the desired state.
async fn reconcile_once(kernel: Option<Kernel>, desired: Desired, sweep: bool) -> Result<Reconciled, String> {
    let work = move || -> Result<Reconciled, host::Error> {
        let mut kernel = match kernel {
            Some(kernel) => kernel,
            None => Kernel::open()?,
        };
        let observed = kernel.observe(&desired)?;
        let mut changed = diff(&desired, &observed, sweep);
        let failed = kernel.apply(&changed);
        changed.retain(|op| !failed.iter().any(|failure| failure.op == *op));
        if !changed.is_empty() {
            info!(changes = changed.len(), "applied host network changes");
        }
        let has_rules = !failed.iter().any(|failure| matches!(failure.op, Op::ReplaceFirewall(_)));
        let has_firewall = desired.firewall.is_some() && has_rules;
        Ok(Reconciled { kernel, changed, failures: failed.iter().map(ToString::to_string).collect(), has_firewall })
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| format!("a bug: {error}"))?.map_err(|error| error.to_string())
}

/// Waits for a change in the kernel.
async fn kernel_changed(watch: &mut Option<host::watch::Watch>) {
    match watch {
        Some(open) => {
            if let Err(error) = open.changed().await {
                warn!(%error, "lost the watch of the kernel; from now on the host network is checked once a minute");
                *watch = None;
            }
        }
        None => std::future::pending().await,
    }
}
