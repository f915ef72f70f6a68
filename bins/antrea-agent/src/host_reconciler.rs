//! Reconciles the host network: after changes of the desired state, after changes in the kernel, and periodically.

use std::time::Duration;

use host::{Kernel, diff};
use reconcile::{Pass, Settings, Status, Target};
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::{info, warn};
use types::host::{Desired, Op};

use crate::desired::DesiredPart;
use crate::engine::Engine;

const SETTINGS: Settings = Settings { period: Some(Duration::from_secs(60)), ..Settings::ON_CHANGE };

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

/// Reconciles the host network until the agent stops. `devices` are those that it configures.
pub(crate) async fn run(engine: Engine, devices: Vec<String>, status: watch::Sender<HostStatus>) {
    let watch = host::watch::Watch::open(devices)
        .map_err(|error| warn!(%error, "cannot watch the kernel; the host network is checked once a minute"))
        .ok();
    // Stale state is swept only after every source has finished its initial sync.
    let desired = DesiredPart::new(
        engine,
        |progress| Some(progress.host_version).filter(|version| *version > 0),
        |brain| (brain.host_version(), (brain.host(), brain.is_synced())),
    );
    let network = HostNetwork { kernel: None, watch, has_firewall: false, status };
    reconcile::run(network, desired, SETTINGS).await;
}

struct HostNetwork {
    /// Opened again after an error.
    kernel: Option<Kernel>,
    watch: Option<host::watch::Watch>,
    has_firewall: bool,
    status: watch::Sender<HostStatus>,
}

#[derive(Debug, thiserror::Error)]
enum HostProblem {
    #[error("cannot read the host network state: {0}")]
    Observe(#[from] host::Error),
    #[error(transparent)]
    Apply(Box<host::Failure>),
    #[error("a bug: {0}")]
    Panic(#[from] JoinError),
}

impl Target for HostNetwork {
    type Desired = (Desired, bool);
    type Change = Op;
    type Failure = HostProblem;

    fn name(&self) -> &'static str {
        "host network"
    }

    async fn reconcile(&mut self, (desired, sweep): (Desired, bool)) -> Pass<Op, HostProblem> {
        let kernel = self.kernel.take();
        let done = tokio::task::spawn_blocking(move || apply(kernel, &desired, sweep)).await;
        match done.map_err(HostProblem::from).and_then(|applied| Ok(applied?)) {
            Ok(applied) => {
                self.kernel = Some(applied.kernel);
                self.has_firewall |= applied.has_firewall;
                for device in applied.changed.iter().filter_map(unmerged) {
                    info!(
                        device,
                        "turned off GRO of the transport interface: Open vSwitch drops merged tunnel packets"
                    );
                }
                let failures =
                    applied.failures.into_iter().map(|failure| HostProblem::Apply(Box::new(failure))).collect();
                Pass { changes: applied.changed, failures, ..Pass::default() }
            }
            Err(problem) => Pass::failed(problem),
        }
    }

    async fn changed(&mut self) {
        let Some(open) = &mut self.watch else { return std::future::pending().await };
        if let Err(error) = open.changed().await {
            warn!(%error, "lost the watch of the kernel; from now on the host network is checked once a minute");
            self.watch = None;
        }
    }

    fn report(&mut self, status: &Status) {
        self.status.send_replace(HostStatus {
            version: status.version.unwrap_or_default(),
            has_firewall: self.has_firewall,
            failure: status.failure.clone(),
            repaired: status.drift_repaired,
        });
    }
}

/// The device whose GRO a change turns off.
fn unmerged(op: &Op) -> Option<&str> {
    match op {
        Op::StopMerging(device) => Some(device),
        _ => None,
    }
}

struct Applied {
    kernel: Kernel,
    changed: Vec<Op>,
    failures: Vec<host::Failure>,
    /// Whether the nftables rules are as desired.
    has_firewall: bool,
}

/// Observes the host network, and applies the difference to the desired state.
fn apply(kernel: Option<Kernel>, desired: &Desired, sweep: bool) -> Result<Applied, host::Error> {
    let mut kernel = match kernel {
        Some(kernel) => kernel,
        None => Kernel::open()?,
    };
    let observed = kernel.observe(desired)?;
    let mut changed = diff(desired, &observed, sweep);
    let failures = kernel.apply(&changed);
    changed.retain(|op| !failures.iter().any(|failure| failure.op == *op));
    let has_rules = !failures.iter().any(|failure| matches!(failure.op, Op::ReplaceFirewall(_)));
    Ok(Applied { kernel, changed, failures, has_firewall: desired.firewall.is_some() && has_rules })
}
