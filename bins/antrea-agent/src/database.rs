//! OVSDB: sets up the bridge, passes its ports to the brain, and reconciles it with the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use node::database::{BridgePorts, BridgeSpec, Desired, PortRow, Subject, UnassignedPort};
use node::{Event, PortEvent, Source};
use ovs::database::{Database, TransactError};
use ovsdb::replica::Replica;
use ovsdb::tables::RowError;
use thiserror::Error;
use tracing::{debug, warn};
use types::backoff::Backoff;

use crate::engine::{Engine, sleep_until};

/// How long ovs-vswitchd may take to create the bridge and its ports.
const OVS_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the bridge cannot be set up.
#[derive(Debug, Error)]
pub(crate) enum BridgeError {
    /// ovsdb-server rejected the transaction.
    #[error("bridge {bridge}: {source}")]
    Transact { bridge: String, source: TransactError },
    /// A row of OVSDB cannot be decoded.
    #[error(transparent)]
    Row(#[from] RowError),
    /// ovs-vswitchd cannot create an interface.
    #[error(transparent)]
    Unassigned(#[from] UnassignedPort),
    /// The bridge was deleted, and ovs-vswitchd assigned other ports or another MAC.
    #[error(
        "bridge {bridge}: was deleted and created again with other OpenFlow ports; the agent exits in order to start again"
    )]
    Recreated { bridge: String },
    /// ovs-vswitchd or ovsdb-server does not respond.
    #[error("bridge {bridge}: ovs-vswitchd did not create it within {OVS_TIMEOUT:?}; is ovs-vswitchd running?")]
    Timeout { bridge: String },
}

/// Writes the difference to OVSDB, and waits until ovs-vswitchd has assigned the ports.
pub(crate) async fn set_up(spec: &BridgeSpec, database: &Database) -> Result<BridgePorts, BridgeError> {
    let timeout = || BridgeError::Timeout { bridge: spec.bridge.clone() };
    let is_initialised = |replica: &Replica| replica.open_vswitch().is_ok_and(|root| root.is_some());
    let replica = database.wait_for(is_initialised).await.ok_or_else(timeout)?;
    for change in Desired::bridge(spec.clone()).changes(&replica)? {
        let refused = |source| BridgeError::Transact { bridge: spec.bridge.clone(), source };
        database.transact(change.transaction).await.map_err(refused)?;
    }
    let mut outcome = Ok(None);
    let done = |replica: &Replica| {
        outcome = spec.assigned(replica);
        !matches!(outcome, Ok(None))
    };
    let _ = tokio::time::timeout(OVS_TIMEOUT, database.wait_for(done)).await;
    outcome?.ok_or_else(timeout)
}

/// Reconciles OVSDB with the brain's description of it.
pub(crate) struct Reconciler {
    pub(crate) spec: BridgeSpec,
    pub(crate) database: Arc<Database>,
    pub(crate) engine: Engine,
    /// The ports that the flows contain.
    pub(crate) ports: BridgePorts,
    /// Number of repaired differences that another program has caused.
    pub(crate) repairs: Arc<AtomicU64>,
}

impl Reconciler {
    /// Runs until the bridge was deleted and created again, or cannot be repaired.
    pub(crate) async fn run(self) -> BridgeError {
        let stopped = BridgeError::Timeout { bridge: self.spec.bridge.clone() };
        let (mut changes, mut progress) = (self.database.changes(), self.engine.progress());
        let mut known = Known::default();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        let (mut retry_at, mut applied) = (None, None);
        loop {
            let by_us = tokio::select! {
                feed = changes.next() => match feed {
                    Some(_) => false,
                    None => return stopped,
                },
                changed = progress.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return stopped,
                },
                () = sleep_until(retry_at) => true,
            };
            let Some(replica) = self.database.snapshot() else { continue };
            if !by_us && let Err(error) = known.follow(&replica, &self.spec.bridge, &self.engine).await {
                warn!(%error, "cannot read ports from OVSDB");
                continue;
            }
            if !known.is_synced {
                continue;
            }
            let version = progress.borrow_and_update().database_version;
            let is_new = applied != Some(version);
            if by_us && !is_new && retry_at.is_none() {
                continue;
            }
            retry_at = None;
            // Not the one above: its changes may have been made meanwhile.
            let Some(replica) = self.database.snapshot() else { continue };
            match self.reconcile(&replica, is_new).await {
                Ok(true) => {
                    applied = Some(version);
                    backoff.reset();
                }
                Ok(false) => retry_at = Some(Instant::now() + backoff.next_delay()),
                Err(error) => return error,
            }
        }
    }

    /// Applies all differences, and returns whether that succeeded. A difference without a change of the desired state is drift.
    async fn reconcile(&self, replica: &Replica, is_new: bool) -> Result<bool, BridgeError> {
        let spec = self.spec.clone();
        let desired = self.engine.read(move |brain| brain.database(spec)).await;
        let mut succeeded = true;
        for change in desired.changes(replica)? {
            if !is_new || change.subject == Subject::Bridge {
                self.repairs.fetch_add(1, Ordering::Relaxed);
            }
            match change.subject {
                Subject::Bridge => {
                    warn!(bridge = self.spec.bridge, "bridge settings drifted; repairing");
                    if set_up(&self.spec, &self.database).await? != self.ports {
                        return Err(BridgeError::Recreated { bridge: self.spec.bridge.clone() });
                    }
                }
                Subject::Port(name) => match self.database.transact(change.transaction).await {
                    Ok(_) => debug!(interface = name, "changed the port in OVSDB"),
                    Err(error) => {
                        succeeded = false;
                        warn!(interface = name, %error, "cannot change the Pod's port in OVSDB; retrying");
                        let problem = error.to_string();
                        self.engine.send(Event::Port(PortEvent::Failed { name, problem })).await;
                    }
                },
            }
        }
        Ok(succeeded)
    }
}

/// The ports that the brain knows.
#[derive(Default)]
struct Known {
    is_synced: bool,
    rows: BTreeMap<String, PortRow>,
    /// Ports with invalid `external_ids`, which have been logged.
    invalid: BTreeSet<String>,
}

impl Known {
    /// Passes differences to the brain.
    async fn follow(&mut self, replica: &Replica, bridge: &str, engine: &Engine) -> Result<(), RowError> {
        let (rows, invalid) = PortRow::all(replica, bridge)?;
        let invalid: BTreeSet<String> = invalid.iter().map(ToString::to_string).collect();
        for problem in invalid.difference(&self.invalid) {
            warn!("ignoring the port of a Pod: {problem}");
        }
        self.invalid = invalid;
        for name in self.rows.keys().filter(|name| !rows.contains_key(*name)) {
            engine.send(Event::Port(PortEvent::Gone(name.clone()))).await;
        }
        for row in rows.iter().filter(|(name, row)| self.rows.get(*name) != Some(row)).map(|(_, row)| row) {
            engine.send(Event::Port(PortEvent::Set(Box::new(row.clone())))).await;
        }
        self.rows = rows;
        if !self.is_synced {
            self.is_synced = true;
            engine.deliver(Event::Synced(Source::Interfaces)).await;
        }
        Ok(())
    }
}
