//! What the agent tells on loopback: health, metrics, and what `antctl` asks for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use node::Brain;
use ovs::database::Status;
use pipeline::tables::Table;
use serde_json::{Value, json};
use telemetry::metrics::{Kind, Page};
use telemetry::server::{Answer, Answers};
use tokio::sync::watch;

use crate::engine::{Counters, Engine};
use crate::upkeep::Upkeep;

/// Where the answers come from.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) engine: Engine,
    /// Whether there is a page of metrics.
    pub(crate) has_metrics: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) upkeep: watch::Receiver<Upkeep>,
    pub(crate) bridge_repairs: Arc<AtomicU64>,
    pub(crate) database: watch::Receiver<Status>,
    /// The controller that is followed.
    pub(crate) controller: watch::Receiver<Option<SocketAddr>>,
}

impl Answers for Rest {
    async fn get(&self, path: &str, _query: &str) -> Option<Answer> {
        let answer = match path {
            // An engine that answers is alive.
            "/healthz" | "/livez" => Answer::health(self.engine.look(|_| ()).await.map_err(|error| error.to_string())),
            "/readyz" => Answer::health(self.readiness().await),
            "/metrics" if self.has_metrics => Answer::metrics(self.metrics().await),
            "/v1/agentinfo" => {
                let controller = *self.controller.borrow();
                self.tell(move |brain| agent_info(brain, controller)).await?
            }
            "/v1/networkpolicies" => self.tell(network_policies).await?,
            "/v1/podinterfaces" => self.tell(pod_interfaces).await?,
            "/v1/ovsflows" => self.tell(flows).await?,
            _ => return None,
        };
        Some(answer)
    }
}

impl Rest {
    async fn tell(&self, look: impl FnOnce(&Brain) -> Value + Send + 'static) -> Option<Answer> {
        let told = self.engine.look(look).await.ok()?;
        Some(Answer::json(format!("{told:#}\n")))
    }

    async fn readiness(&self) -> Result<(), String> {
        if let Status::Waiting { reason, .. } = &*self.database.borrow() {
            return Err(format!("not connected to ovsdb-server: {reason}"));
        }
        if self.engine.progress().borrow().ready {
            return Ok(());
        }
        let missing =
            self.engine.look(|brain| brain.unsynced().map(|source| format!("{source:?}")).collect::<Vec<_>>()).await;
        match missing.map_err(|error| error.to_string())?.as_slice() {
            [] => Err("waiting for ovs-vswitchd".to_owned()),
            missing => Err(format!("waiting to be told all {}", missing.join(", "))),
        }
    }

    async fn metrics(&self) -> String {
        let looked = self.engine.look(|brain| {
            let mut tables: BTreeMap<u8, u64> = BTreeMap::new();
            for flow in brain.desired_flows() {
                *tables.entry(flow.table).or_default() += 1;
            }
            let policies = (brain.replica().policies().len(), brain.rule_counts());
            (brain.interfaces().count(), tables, brain.service_counts(), policies)
        });
        let (pods, tables, (services, endpoints), (policies, (ingress, egress))) = looked.await.unwrap_or_default();
        let mut page = Page::default();
        page.number(Kind::Gauge, ("antrea_agent_local_pod_count", "Pods of this Node that are attached."), pods);
        let of = "Policies that apply to Pods of this Node.";
        page.number(Kind::Gauge, ("antrea_agent_networkpolicy_count", of), policies);
        let of = "Rules of what comes in that this Node enforces.";
        page.number(Kind::Gauge, ("antrea_agent_ingress_networkpolicy_rule_count", of), ingress);
        let of = "Rules of what goes out that this Node enforces.";
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
        let repaired = self.upkeep.borrow().repaired;
        let repairs = "Routes, addresses, neighbours, settings and rules that somebody changed and the agent repaired.";
        page.number(Kind::Counter, ("antrea_agent_host_repair_count", repairs), repaired);
        let repaired = self.bridge_repairs.load(Ordering::Relaxed);
        let repairs = "Ports and settings of the bridge that somebody changed and the agent repaired.";
        page.number(Kind::Counter, ("antrea_agent_bridge_repair_count", repairs), repaired);
        for (ip_family, services, endpoints) in [("v4", services.0, endpoints.0), ("v6", services.1, endpoints.1)] {
            let labels: &[(&str, &str)] = &[("ip_family", ip_family)];
            let of = "Ports of Services that are balanced here.";
            page.family(Kind::Gauge, ("antrea_proxy_total_services_installed", of), [(labels, services)]);
            let of = "Endpoints of Services that are balanced here.";
            page.family(Kind::Gauge, ("antrea_proxy_total_endpoints_installed", of), [(labels, endpoints)]);
        }
        page.finish()
    }
}

impl Counters {
    fn write(&self, page: &mut Page) {
        let (add, delete): (&[_], &[_]) = (&[("operation", "add")], &[("operation", "delete")]);
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counts = [(add, read(&self.added)), (delete, read(&self.deleted))];
        page.family(
            Kind::Counter,
            ("antrea_agent_ovs_flow_ops_count", "Flows and groups that the switch was told of."),
            counts,
        );
        let errors = [(add, read(&self.refused)), (delete, 0)];
        page.family(
            Kind::Counter,
            ("antrea_agent_ovs_flow_ops_error_count", "Flows and groups that the switch refused."),
            errors,
        );
        let took = ("antrea_agent_ovs_flow_ops_latency_milliseconds", "How long the switch took for a bundle.");
        page.histogram(took, [(add, &self.took)]);
    }
}

fn agent_info(brain: &Brain, controller: Option<SocketAddr>) -> Value {
    let own = brain.own();
    let subnets: Vec<String> = own.families().map(|address| address.pod_cidr.to_string()).collect();
    let problems: Vec<String> = brain.problems().iter().map(ToString::to_string).collect();
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
        "controller": controller.map(|address| address.to_string()),
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
            "namespace": policy.policy.namespace,
            "name": policy.policy.name,
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
