//! The other replicas, which are asked what their agents have reported.
//!
//! An agent is connected to one replica, and whoever asks for a policy's status may ask any. Replicas ask each other when they are
//! asked, and keep nothing: what is told is as new as it can be, nothing has to be written to the cluster for every report, and a
//! replica that has died is missed by nobody, since its agents have reported to another one by then.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::control::client::{Credentials, ask};
use k8s::{Client, Notice, Only};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::debug;
use types::ObjectName;
use types::service::EndpointSlice;

use crate::authority::{Authorities, SERVER_NAME};
use crate::status::ByNode;

/// Where a replica tells what its agents have reported.
pub(crate) const PATH: &str = "/v1/reports";
/// The name of the Service's port.
const PORT: &str = "api";
/// How long another replica may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the agents of a replica have reported.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Heard {
    /// The Nodes whose agents are connected there.
    pub(crate) connected: BTreeSet<String>,
    /// By policy, as `namespace/name`.
    pub(crate) policies: BTreeMap<String, ByNode>,
}

/// The other replicas.
#[derive(Clone)]
pub(crate) struct Peers {
    client: Client,
    addresses: watch::Receiver<BTreeSet<SocketAddr>>,
    authorities: watch::Receiver<Arc<Authorities>>,
}

impl Peers {
    /// Finds the others by the endpoints of the Service; `me` is none of them.
    pub(crate) fn find(client: Client, me: Option<IpAddr>, authorities: watch::Receiver<Arc<Authorities>>) -> Self {
        let (found, addresses) = watch::channel(BTreeSet::new());
        tokio::spawn(follow(client.clone(), me, found));
        Self { client, addresses, authorities }
    }

    /// What all others that answer have heard.
    pub(crate) async fn ask(&self) -> Vec<Heard> {
        let addresses = self.addresses.borrow().clone();
        if addresses.is_empty() {
            return Vec::new();
        }
        let Ok(token) = self.client.token().await else { return Vec::new() };
        let authorities = self.authorities.borrow().bundle();
        let credentials = Arc::new(Credentials { authorities, token, server_name: SERVER_NAME.to_owned() });
        let mut asked = JoinSet::new();
        for address in addresses {
            let credentials = Arc::clone(&credentials);
            asked.spawn(async move {
                let answer = tokio::time::timeout(PATIENCE, ask(address, &credentials, PATH)).await;
                match answer {
                    Ok(Ok(body)) => serde_json::from_slice::<Heard>(&body).ok(),
                    Ok(Err(error)) => {
                        debug!(%error, "another replica does not say what it has heard");
                        None
                    }
                    Err(_) => None,
                }
            });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }
}

async fn follow(client: Client, me: Option<IpAddr>, found: watch::Sender<BTreeSet<SocketAddr>>) {
    let only = Only {
        namespace: "kube-system".to_owned(),
        labels: "kubernetes.io/service-name=antrea".to_owned(),
        ..Only::default()
    };
    let mut watch = client.watch::<EndpointSlice>(&only);
    let mut slices: BTreeMap<ObjectName, EndpointSlice> = BTreeMap::new();
    loop {
        match watch.next().await {
            Notice::Set(slice) => drop(slices.insert(slice.metadata.object_name(), slice)),
            Notice::Gone(name) => drop(slices.remove(&name)),
            Notice::Synced => {}
        }
        let ready = slices.values().flat_map(|slice| slice.ready_addresses(PORT));
        let addresses = ready.filter(|address| Some(address.ip()) != me).collect();
        found.send_if_modified(|known| std::mem::replace(known, addresses) != *known);
    }
}
