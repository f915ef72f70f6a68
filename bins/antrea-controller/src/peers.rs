//! The other replicas, and the reports of their agents.
//!
//! An agent reports to one replica, and the status of a policy can be requested from any. A replica asks the others on request and
//! caches nothing: the status is current, reports need no writes to the cluster, and a failed replica is not missed, since its
//! agents have reported to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::control::client::{self, Credentials};
use k8s::{Client, WatchEvent, WatchFilter};
use policy::status::StatusByNode;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::debug;
use types::ObjectName;
use types::service::EndpointSlice;

use crate::ca::{CaState, SERVER_NAME};

/// The path of the reports of a replica.
pub(crate) const PATH: &str = "/v1/reports";
/// The port name of the Service.
const PORT: &str = "api";
/// For the answer of another replica.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The reports of the agents of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PeerReports {
    /// The Nodes whose agents are connected to it.
    pub(crate) connected: BTreeSet<String>,
    /// By policy, as `namespace/name`.
    pub(crate) policies: BTreeMap<String, StatusByNode>,
}

/// Finds the other replicas, and reads their reports.
#[derive(Clone)]
pub(crate) struct Peers {
    client: Client,
    addresses: watch::Receiver<BTreeSet<SocketAddr>>,
    ca: watch::Receiver<Arc<CaState>>,
}

impl Peers {
    /// Watches the endpoints of the Service; `me` is left out.
    pub(crate) fn find(client: Client, me: Option<IpAddr>, ca: watch::Receiver<Arc<CaState>>) -> Self {
        let (found, addresses) = watch::channel(BTreeSet::new());
        tokio::spawn(follow(client.clone(), me, found));
        Self { client, addresses, ca }
    }

    /// The reports of all replicas that answer.
    pub(crate) async fn reports(&self) -> Vec<PeerReports> {
        let addresses = self.addresses.borrow().clone();
        if addresses.is_empty() {
            return Vec::new();
        }
        let Ok(token) = self.client.token().await else { return Vec::new() };
        let ca_bundle = self.ca.borrow().bundle();
        let credentials = Arc::new(Credentials { ca_bundle, token, server_name: SERVER_NAME.to_owned() });
        let mut requests = JoinSet::new();
        for address in addresses {
            let credentials = Arc::clone(&credentials);
            requests.spawn(async move {
                let answer = tokio::time::timeout(PEER_TIMEOUT, client::get(address, &credentials, PATH)).await;
                match answer {
                    Ok(Ok(body)) => serde_json::from_slice::<PeerReports>(&body).ok(),
                    Ok(Err(error)) => {
                        debug!(%error, "cannot get the agent reports of another replica");
                        None
                    }
                    Err(_) => None,
                }
            });
        }
        requests.join_all().await.into_iter().flatten().collect()
    }
}

async fn follow(client: Client, me: Option<IpAddr>, found: watch::Sender<BTreeSet<SocketAddr>>) {
    let filter = WatchFilter {
        namespace: "kube-system".to_owned(),
        labels: "kubernetes.io/service-name=antrea".to_owned(),
        ..WatchFilter::default()
    };
    let mut watch = client.watch::<EndpointSlice>(&filter);
    let mut slices: BTreeMap<ObjectName, EndpointSlice> = BTreeMap::new();
    loop {
        match watch.next().await {
            WatchEvent::Applied(slice) => drop(slices.insert(slice.metadata.object_name(), slice)),
            WatchEvent::Deleted(name) => drop(slices.remove(&name)),
            WatchEvent::Synced => {}
        }
        let ready = slices.values().flat_map(|slice| slice.ready_addresses(PORT));
        let addresses = ready.filter(|address| Some(address.ip()) != me).collect();
        found.send_if_modified(|known| std::mem::replace(known, addresses) != *known);
    }
}
