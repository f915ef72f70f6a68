//! Restarts of ovs-vswitchd without an outage on the kernel's datapath.
//!
//! The kernel forwards packets by its own flows while ovs-vswitchd is away. A new ovs-vswitchd deletes them, and has none to
//! install before the agent has sent its flows. With the setting `flow-restore-wait`, which the script that starts
//! ovs-vswitchd makes, it leaves them alone until the agent removes the setting.

use std::sync::Arc;
use std::time::Duration;

use ovs::database::{Database, TransactError};
use ovsdb::condition::Where;
use ovsdb::operation::Mutation;
use ovsdb::replica::Replica;
use ovsdb::transaction::Transaction;
use ovsdb::value::Datum;
use tracing::info;

use crate::engine::Engine;

/// Key of `other_config` in table `Open_vSwitch`.
const SETTING: &str = "flow-restore-wait";
/// The first and the longest delay between attempts to remove the setting. While it is there, no new connection is forwarded.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Removes the setting whenever it is there and all flows are installed, until the agent stops.
pub(crate) async fn run(database: Arc<Database>, engine: Engine) {
    while database.wait_for(waits).await.is_some() {
        if engine.progress().wait_for(|progress| progress.ready).await.is_err() {
            return;
        }
        reconcile::retry("flow-restore-wait", BACKOFF, || remove(&database, &engine)).await;
        info!("all flows are installed: removed {SETTING}, so that ovs-vswitchd forwards new connections");
        let _ = database.wait_for(|replica| !waits(replica)).await;
    }
}

/// Removes the setting. Waits for the flows in each attempt: ovs-vswitchd may have started again after the last one.
async fn remove(database: &Database, engine: &Engine) -> Result<(), TransactError> {
    engine.settled().await;
    let mut transaction = Transaction::new();
    transaction.mutate(
        "Open_vSwitch",
        Where::EVERY_ROW,
        [Mutation::delete("other_config", Datum::from_iter([SETTING]))],
    );
    database.transact(transaction).await.map(drop)
}

/// Whether ovs-vswitchd waits for flows.
fn waits(replica: &Replica) -> bool {
    let root = replica.open_vswitch().ok().flatten();
    root.and_then(|root| root.other_config.get(SETTING).cloned()).is_some_and(|value| value == "true")
}
