//! Restarts of ovs-vswitchd without an outage on the kernel's datapath.
//!
//! The kernel forwards packets by its own flows while ovs-vswitchd is away. A new ovs-vswitchd deletes them, and has none to
//! install before the agent has sent its flows. With the setting `flow-restore-wait`, which the script that starts
//! ovs-vswitchd makes, it leaves them alone until the agent removes the setting.

use std::sync::Arc;
use std::time::Duration;

use ovs::database::Database;
use ovsdb::condition::Where;
use ovsdb::operation::Mutation;
use ovsdb::replica::Replica;
use ovsdb::transaction::Transaction;
use ovsdb::value::Datum;
use tokio::time::Instant;
use tracing::{info, warn};
use types::backoff::Backoff;

use crate::engine::{Engine, sleep_until};

/// Key of `other_config` in table `Open_vSwitch`.
const SETTING: &str = "flow-restore-wait";
/// Pauses between attempts to remove the setting.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Removes the setting whenever it is there and all flows are installed, until the agent stops.
pub(crate) async fn run(database: Arc<Database>, engine: Engine) {
    let (mut progress, mut backoff) = (engine.progress(), Backoff::new(PAUSES.0, PAUSES.1));
    while database.wait_for(waits).await.is_some() {
        if progress.wait_for(|progress| progress.ready).await.is_err() {
            return;
        }
        engine.settled().await;
        let mut transaction = Transaction::new();
        let remove = Mutation::delete("other_config", Datum::from_iter([SETTING]));
        transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [remove]);
        match database.transact(transaction).await {
            Ok(_) => {
                info!("all flows are installed: removed {SETTING}, so that ovs-vswitchd forwards new connections");
                backoff.reset();
                let _ = database.wait_for(|replica| !waits(replica)).await;
            }
            Err(error) => {
                let delay = backoff.next_delay();
                warn!(%error, ?delay, "cannot remove {SETTING} from OVSDB, which stops new connections; trying again");
                sleep_until(Some((Instant::now() + delay).into_std())).await;
            }
        }
    }
}

/// Whether ovs-vswitchd waits for flows.
fn waits(replica: &Replica) -> bool {
    let root = replica.open_vswitch().ok().flatten();
    root.and_then(|root| root.other_config.get(SETTING).cloned()).is_some_and(|value| value == "true")
}
