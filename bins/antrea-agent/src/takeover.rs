//! Takes over a Node from Antrea: its Pods stay attached, with their addresses and connections.
//!
//! Bridge, gateway, tunnel port and reservations of addresses have the same names and formats. What differs is where the reservations
//! are, where OVSDB has the Pods, marks in the kernel, and iptables rules. A Node on which Antrea never ran has none of it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use host::ipam::{Error, Pool};
use node::database::Adoption;
use ovs::database::Database;
use ovsdb::replica::Replica;
use tracing::{info, warn};
use types::network::Datapath;

use crate::blocking::blocking;
use crate::config::Config;
use crate::database::BridgeError;

/// Directory beside the CNI socket in which Antrea's host-local has its reservations: its container has it at `/var/lib/cni`.
const RESERVATIONS: &str = "cni/networks/antrea";

/// The addresses that Pods have, also those of Antrea, whose reservations become ours.
pub(crate) fn pod_addresses(config: &Config) -> Result<BTreeSet<IpAddr>, Error> {
    let pool = Pool::open(&config.ipam_dir, Vec::new())?;
    let taken = pool.take_over(&config.cni_socket.with_file_name(RESERVATIONS))?;
    if !taken.is_empty() {
        info!(addresses = ?taken, "took over the addresses of Antrea's Pods");
    }
    Ok(pool.holders()?.into_iter().map(|reservation| reservation.ip).collect())
}

/// Makes the Pods of Antrea on a bridge Pods of this agent. The bridge exists.
pub(crate) async fn adopt_pods(bridge: &str, datapath: Datapath, database: &Arc<Database>) -> Result<(), BridgeError> {
    let Some(replica) = database.snapshot() else { return Ok(()) };
    let Adoption { ports, transaction } = Adoption::find(&replica, bridge)?;
    if ports.is_empty() {
        return Ok(());
    }
    info!(?ports, "taking over the Pods of Antrea");
    // First, because a restarted agent finds ports without the ids only.
    for port in ports {
        let device = port.clone();
        if let Err(error) = blocking(move || host::pod::adopt(&device, datapath)).await {
            warn!(port, %error, "cannot take over the veth of a Pod; delete the Pod if it has no network");
        }
    }
    let refused = |source| BridgeError::Transact { bridge: bridge.to_owned(), source };
    database.transact(transaction).await.map_err(refused)?;
    // The first list of ports has to contain them: addresses without a Pod are released.
    let adopted = |replica: &Replica| Adoption::find(replica, bridge).is_ok_and(|found| found.ports.is_empty());
    database.wait_for(adopted).await;
    Ok(())
}

/// Removes the iptables rules of Antrea. Ours must be in place.
pub(crate) async fn remove_rules() {
    match blocking(host::antrea_rules::remove).await {
        Ok(removed) => {
            if !removed.chains.is_empty() {
                info!(chains = ?removed.chains, "removed the iptables rules of Antrea");
            }
            if !removed.kept.is_empty() {
                info!(chains = ?removed.kept, "kept iptables rules of Antrea that accept packets of Pods: this Node drops others");
            }
        }
        Err(error) => warn!(%error, "cannot remove the iptables rules of Antrea; the next start tries again"),
    }
}
