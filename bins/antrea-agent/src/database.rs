//! OVSDB: sets up the bridge, passes its ports to the brain, and reconciles it with the desired state.

use std::sync::Arc;
use std::time::Duration;

use node::database::{
    BridgePorts, BridgeSpec, Change, Desired, Ports, Reconciled, Subject, TRANSPORT_BRIDGE, UnassignedPort,
};
use node::{Event, PortEvent, Source};
use ovs::database::{Changes, Database, TransactError};
use ovsdb::replica::Replica;
use ovsdb::tables::RowError;
use reconcile::{Pass, Settings, Status, Target};
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::desired::DesiredPart;
use crate::engine::Engine;

/// OVSDB reports all its changes. They are not collected: a runtime waits for the port of its Pod.
const SETTINGS: Settings = Settings { collect: Duration::ZERO, ..Settings::ON_CHANGE };
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

/// The bridge of another program that a device is a port of. Waits until OVSDB is initialised.
pub(crate) async fn foreign_bridge(database: &Database, device: &str) -> Result<Option<String>, BridgeError> {
    let timeout = || BridgeError::Timeout { bridge: TRANSPORT_BRIDGE.to_owned() };
    let replica = database.wait_for(is_initialised).await.ok_or_else(timeout)?;
    Ok(node::database::bridge_of(&replica, device)?)
}

fn is_initialised(replica: &Replica) -> bool {
    replica.open_vswitch().is_ok_and(|root| root.is_some())
}

/// Writes the difference to OVSDB, and waits until ovs-vswitchd has assigned the ports.
pub(crate) async fn set_up(spec: &BridgeSpec, database: &Database) -> Result<BridgePorts, BridgeError> {
    let timeout = || BridgeError::Timeout { bridge: spec.bridge.clone() };
    let replica = database.wait_for(is_initialised).await.ok_or_else(timeout)?;
    for change in Desired::bridge(spec.clone()).changes(&replica, &mut Reconciled::default())? {
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
    pub(crate) status: watch::Sender<Status>,
}

impl Reconciler {
    /// Runs until the bridge was deleted and created again, or cannot be repaired.
    pub(crate) async fn run(self) -> BridgeError {
        let stopped = BridgeError::Timeout { bridge: self.spec.bridge.clone() };
        let spec = self.spec.clone();
        let desired = DesiredPart::new(
            self.engine.clone(),
            |progress| Some(progress.database_version),
            move |brain| (brain.database_version(), brain.database(spec.clone())),
        );
        let (sender, unrepairable) = oneshot::channel();
        let changes = self.database.changes();
        let follow = follow(Arc::clone(&self.database), self.spec.bridge.clone(), self.engine.clone());
        let target = Bridge { of: self, changes, reconciled: Reconciled::default(), unrepairable: Some(sender) };
        tokio::select! {
            () = reconcile::run(target, desired, SETTINGS) => stopped,
            () = follow => stopped,
            Ok(error) = unrepairable => error,
        }
    }
}

/// The bridge in OVSDB.
struct Bridge {
    of: Reconciler,
    changes: Changes,
    reconciled: Reconciled,
    /// Ends the agent, which starts again with the new ports.
    unrepairable: Option<oneshot::Sender<BridgeError>>,
}

#[derive(Debug, Error)]
enum Problem {
    #[error("cannot change port {name}: {source}")]
    Port { name: String, source: TransactError },
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("the bridge cannot be repaired; the agent exits")]
    Unrepairable,
    #[error("OVSDB has not been read yet")]
    NotSynced,
}

impl Bridge {
    /// Applies a difference to the bridge or to one port.
    async fn apply(&mut self, change: Change) -> Result<Subject, Problem> {
        let Reconciler { spec, database, engine, ports, .. } = &self.of;
        match &change.subject {
            Subject::Bridge => {
                let error = match set_up(spec, database).await {
                    Ok(assigned) if assigned == *ports => return Ok(change.subject),
                    Ok(_) => BridgeError::Recreated { bridge: spec.bridge.clone() },
                    Err(error) => error,
                };
                // Fails if the agent is stopping.
                self.unrepairable.take().map(|sender| sender.send(error));
                Err(Problem::Unrepairable)
            }
            Subject::Port(name) => match database.transact(change.transaction).await {
                Ok(_) => Ok(change.subject),
                Err(source) => {
                    let (name, problem) = (name.clone(), source.to_string());
                    engine.send(Event::Port(PortEvent::Failed { name: name.clone(), problem })).await;
                    Err(Problem::Port { name, source })
                }
            },
        }
    }
}

impl Target for Bridge {
    type Desired = Desired;
    type Change = Subject;
    type Failure = Problem;

    fn name(&self) -> &'static str {
        "OVSDB"
    }

    async fn reconcile(&mut self, desired: Desired) -> Pass<Subject, Problem> {
        let Some(replica) = self.of.database.snapshot() else { return Pass::failed(Problem::NotSynced) };
        let changes = match desired.changes(&replica, &mut self.reconciled) {
            Ok(changes) => changes,
            Err(error) => return Pass::failed(error.into()),
        };
        let mut pass = Pass::default();
        for change in changes {
            match self.apply(change).await {
                Ok(subject) => pass.changes.push(subject),
                Err(problem) => pass.failures.push(problem),
            }
        }
        pass
    }

    async fn changed(&mut self) {
        if self.changes.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn report(&mut self, status: &Status) {
        self.of.status.send_replace(status.clone());
    }
}

/// Passes the ports of the bridge to the brain, until the agent stops.
async fn follow(database: Arc<Database>, bridge: String, engine: Engine) {
    let (mut changes, mut ports, mut is_synced) = (database.changes(), Ports::default(), false);
    while changes.next().await.is_some() {
        let Some(replica) = database.snapshot() else { continue };
        let (events, invalid) = match ports.update(&replica, &bridge) {
            Ok(changed) => changed,
            Err(error) => {
                warn!(%error, "cannot read ports from OVSDB");
                continue;
            }
        };
        for problem in invalid {
            warn!("ignoring the port of a Pod: {problem}");
        }
        for event in events {
            engine.send(Event::Port(event)).await;
        }
        if !is_synced {
            is_synced = true;
            engine.deliver(Event::Synced(Source::Interfaces)).await;
        }
    }
}
