//! The agent's API on loopback: health, metrics, and views of its state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::Brain;
use ovs::database::Status;
use pipeline::tables::Table;
use serde_json::{Value, json};
use telemetry::metrics::{Kind, Page};
use telemetry::server::{Answer, Answers};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::conntrack::guard::{Table as ConnectionTable, Tables};
use crate::engine::{Counters, Engine};
use crate::host_reconciler::HostStatus;
use crate::run::WATCH_DURATION;
use crate::tunnels::TunnelStatus;

/// Not ready after this time without an answer of the Kubernetes API: a watch is renewed after half of it.
const API_TIMEOUT: Duration = WATCH_DURATION.saturating_mul(2);

/// Why the agent is not ready.
#[derive(Debug, thiserror::Error)]
enum NotReady {
    #[error("not connected to ovsdb-server: {0}")]
    Ovsdb(String),
    #[error("OVSDB does not have the desired state: {0}")]
    Bridge(String),
    #[error("waiting for ovs-vswitchd: {0}")]
    Switch(String),
    #[error("waiting for the initial sync of {0}")]
    InitialSync(String),
    #[error("host network (routes, sysctls, nftables): {0}")]
    Host(String),
    #[error("tunnels: {0}")]
    Tunnels(String),
    #[error("the Kubernetes API has not answered for {0} s")]
    KubernetesApi(u64),
}

/// Sources of the answers.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) engine: Engine,
    /// Whether `/metrics` is served.
    pub(crate) has_metrics: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) host_status: watch::Receiver<HostStatus>,
    /// The tunnels of the userspace datapath.
    pub(crate) tunnel_status: watch::Receiver<TunnelStatus>,
    /// The connection tables of this Node.
    pub(crate) tracked: watch::Receiver<Tables>,
    /// The reconciler of OVSDB.
    pub(crate) database_status: watch::Receiver<reconcile::Status>,
    pub(crate) database: watch::Receiver<Status>,
    /// Time of the last answer of the Kubernetes API.
    pub(crate) last_answer: watch::Receiver<Instant>,
}

impl Answers for Rest {
    async fn get(&self, path: &str, _query: &str) -> Option<Answer> {
        let answer = match path {
            "/healthz" | "/livez" => Answer::health(self.engine.liveness()),
            "/readyz" => Answer::health(self.readiness().await),
            "/metrics" if self.has_metrics => Answer::metrics(self.metrics().await),
            "/v1/agentinfo" => {
                let unreachable = self.tunnel_status.borrow().failure.clone();
                self.view(|brain| agent_info(brain, unreachable)).await
            }
            "/v1/networkpolicies" => self.view(network_policies).await,
            "/v1/podinterfaces" => self.view(pod_interfaces).await,
            "/v1/ovsflows" => self.view(flows).await,
            _ => return None,
        };
        Some(answer)
    }
}

impl Rest {
    async fn view(&self, read: impl FnOnce(&Brain) -> Value) -> Answer {
        let value = self.engine.read(read).await;
        Answer::json(format!("{value:#}\n"))
    }

    async fn readiness(&self) -> Result<(), NotReady> {
        if let Status::Waiting { reason, .. } = &*self.database.borrow() {
            return Err(NotReady::Ovsdb(reason.clone()));
        }
        if let Some(failure) = &self.database_status.borrow().failure {
            return Err(NotReady::Bridge(failure.clone()));
        }
        let unsynced = |brain: &Brain| brain.unsynced().map(|source| format!("{source:?}")).collect::<Vec<_>>();
        let (unsynced, switch) = self.engine.read(|brain| (unsynced(brain), brain.switch_state())).await;
        if !unsynced.is_empty() {
            return Err(NotReady::InitialSync(unsynced.join(", ")));
        }
        switch.map_err(NotReady::Switch)?;
        self.tunnel_readiness().await?;
        self.host_readiness()
    }

    /// Tunnels work, if this Node has any: the transport bridge has had its flows since the agent started.
    async fn tunnel_readiness(&self) -> Result<(), NotReady> {
        let own = |brain: &Brain| (brain.own().tunnel_problem.clone(), brain.own().transport_bridge.is_some());
        let (problem, has_bridge) = self.engine.read(own).await;
        if let Some(problem) = problem {
            return Err(NotReady::Tunnels(problem));
        }
        let status = self.tunnel_status.borrow();
        if has_bridge && !status.is_up {
            let failure = status.failure.as_deref().unwrap_or("not applied yet");
            return Err(NotReady::Tunnels(failure.to_owned()));
        }
        Ok(())
    }

    /// The host network was applied since the agent started, the last attempt did not fail, and the Kubernetes API answers.
    fn host_readiness(&self) -> Result<(), NotReady> {
        let host_status = self.host_status.borrow();
        if host_status.version == 0 || !host_status.has_firewall || host_status.failure.is_some() {
            let failure = host_status.failure.as_deref().unwrap_or("not applied yet");
            return Err(NotReady::Host(failure.to_owned()));
        }
        let silence = self.last_answer.borrow().elapsed();
        if silence > API_TIMEOUT {
            return Err(NotReady::KubernetesApi(silence.as_secs()));
        }
        Ok(())
    }

    async fn metrics(&self) -> String {
        let read = |brain: &Brain| {
            let mut tables: BTreeMap<u8, u64> = BTreeMap::new();
            for flow in brain.desired_flows() {
                *tables.entry(flow.table).or_default() += 1;
            }
            let policies = (brain.replica().policies().len(), brain.rule_counts());
            (brain.interfaces().count(), tables, brain.service_counts(), policies)
        };
        let (pods, tables, (services, endpoints), (policies, (ingress, egress))) = self.engine.read(read).await;
        let mut page = Page::default();
        page.number(Kind::Gauge, ("antrea_agent_local_pod_count", "Pods that are attached to this Node."), pods);
        let of = "NetworkPolicies that apply to Pods of this Node.";
        page.number(Kind::Gauge, ("antrea_agent_networkpolicy_count", of), policies);
        let of = "Ingress rules that this Node enforces.";
        page.number(Kind::Gauge, ("antrea_agent_ingress_networkpolicy_rule_count", of), ingress);
        let of = "Egress rules that this Node enforces.";
        page.number(Kind::Gauge, ("antrea_agent_egress_networkpolicy_rule_count", of), egress);
        let total: u64 = tables.values().sum();
        page.number(Kind::Gauge, ("antrea_agent_ovs_total_flow_count", "Flows of this Node."), total);
        let named: Vec<(String, String, u64)> = tables
            .iter()
            .map(|(id, count)| (id.to_string(), Table::by_id(*id).map_or("", Table::name).to_owned(), *count))
            .collect();
        let labels: Vec<[(&str, &str); 2]> =
            named.iter().map(|(id, name, _)| [("table_id", id.as_str()), ("table_name", name.as_str())]).collect();
        let counts = labels.iter().zip(&named).map(|(labels, (_, _, count))| (&labels[..], *count));
        page.family(Kind::Gauge, ("antrea_agent_ovs_flow_count", "Flows of each table."), counts);
        self.counters.write(&mut page);
        let repaired = self.host_status.borrow().repaired;
        let repairs = "Routes, addresses, neighbours, sysctls and nftables rules that drifted and were repaired.";
        page.number(Kind::Counter, ("antrea_agent_host_repair_count", repairs), repaired);
        let repaired = self.database_status.borrow().drift_repaired;
        let repairs = "Ports and settings of the bridge that drifted and were repaired.";
        page.number(Kind::Counter, ("antrea_agent_bridge_repair_count", repairs), repaired);
        for (ip_family, services, endpoints) in [("v4", services.0, endpoints.0), ("v6", services.1, endpoints.1)] {
            let labels: &[(&str, &str)] = &[("ip_family", ip_family)];
            let of = "Service ports that this Node load-balances.";
            page.family(Kind::Gauge, ("antrea_proxy_total_services_installed", of), [(labels, services)]);
            let of = "Endpoints of Services that this Node load-balances.";
            page.family(Kind::Gauge, ("antrea_proxy_total_endpoints_installed", of), [(labels, endpoints)]);
        }
        self.tracked.borrow().write(&mut page);
        page.finish()
    }
}

impl Tables {
    fn write(self, page: &mut Page) {
        let tables = [([("table", "ovs")], self.switch), ([("table", "kernel")], self.kernel)];
        let mut family = |kind: Kind, name: &str, help: &str, number: fn(ConnectionTable) -> u64| {
            let counts = tables.iter().filter_map(|(labels, table)| Some((&labels[..], number((*table)?))));
            page.family(kind, (name, help), counts);
        };
        let name = "antrea_agent_conntrack_total_connection_count";
        family(Kind::Gauge, name, "Connections in the connection table.", |table| table.load.connections);
        let name = "antrea_agent_conntrack_max_connection_count";
        family(Kind::Gauge, name, "Size of the connection table.", |table| table.load.limit);
        let name = "antrea_agent_conntrack_flushed_connection_count";
        let help = "Connections that were flushed because the table was nearly full.";
        family(Kind::Counter, name, help, |table| table.flushed);
    }
}

impl Counters {
    fn write(&self, page: &mut Page) {
        let (add, delete): (&[_], &[_]) = (&[("operation", "add")], &[("operation", "delete")]);
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counts = [(add, read(&self.added)), (delete, read(&self.deleted))];
        page.family(
            Kind::Counter,
            ("antrea_agent_ovs_flow_ops_count", "Flows and groups that were committed to the switch."),
            counts,
        );
        let errors = [(add, read(&self.rejected)), (delete, 0)];
        page.family(
            Kind::Counter,
            ("antrea_agent_ovs_flow_ops_error_count", "Flows and groups that the switch rejected."),
            errors,
        );
        let took = ("antrea_agent_ovs_flow_ops_latency_milliseconds", "Duration of a bundle commit.");
        page.histogram(took, [(add, &self.took)]);
    }
}

/// `unreachable` says why Pods of another Node cannot be reached.
fn agent_info(brain: &Brain, unreachable: Option<String>) -> Value {
    let own = brain.own();
    let subnets: Vec<String> = own.families().map(|address| address.pod_cidr.to_string()).collect();
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).chain(unreachable).collect();
    let peers = brain.peers().iter().map(|(name, peer)| {
        let cidrs: Vec<String> = peer.peers.iter().map(|peer| peer.pod_cidr.to_string()).collect();
        json!({"name": name, "addresses": peer.addresses, "podCIDRs": cidrs})
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "nodeRef": {"kind": "Node", "name": own.name},
        "nodeSubnets": subnets,
        "localPodNum": brain.interfaces().count(),
        "networkPolicyControllerInfo": {
            "networkPolicyNum": brain.replica().policies().len(),
            "addressGroupNum": brain.replica().addresses().len(),
            "appliedToGroupNum": brain.replica().applied_to().len(),
        },
        "controller": brain.controller().map(|address| address.to_string()),
        "podsThatWaitForPolicies": brain.held().map(|interface| interface.pod.to_string()).collect::<Vec<_>>(),
        "networkInfo": {"transportInterface": own.transport_device, "podMTU": own.mtu},
        "peers": peers.collect::<Vec<_>>(),
        "problems": problems,
    })
}

fn pod_interfaces(brain: &Brain) -> Value {
    let interface = |interface: &node::Interface| {
        json!({
            "podName": interface.pod.name,
            "podNamespace": interface.pod.namespace,
            "interfaceName": interface.name,
            "ips": interface.addresses,
            "mac": interface.mac.to_string(),
            "ofPort": interface.port.0,
        })
    };
    brain.interfaces().map(interface).collect::<Vec<_>>().into()
}

fn network_policies(brain: &Brain) -> Value {
    let policy = |policy: types::control::Report| {
        json!({
            "namespace": policy.policy.object.namespace,
            "name": policy.policy.object.name,
            "kind": policy.policy.kind.name(),
            "uid": policy.uid,
            "generation": policy.generation,
            "problem": policy.problem,
        })
    };
    brain.reports().into_iter().map(policy).collect::<Vec<_>>().into()
}

fn flows(brain: &Brain) -> Value {
    brain.desired_flows().map(|flow| flow.to_string()).collect::<Vec<_>>().into()
}
