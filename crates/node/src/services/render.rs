//! Ports of Services, as flows and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use delta::{Exhausted, Ids, StableHasher, StableKey};
use openflow::flow::Flow;
use openflow::group::Group;
use pipeline::Pipeline;
use pipeline::model::{Affinity, Endpoint, Frontend, FrontendKind, ServiceGroup};

use crate::owner::ServiceKey;

/// The endpoints that a group chooses among.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct GroupKey {
    service: Arc<ServiceKey>,
    /// Whether those of this Node only.
    nearby: bool,
}

impl StableKey for GroupKey {
    fn feed(&self, hash: &mut StableHasher) {
        self.service.feed(hash);
        u8::from(self.nearby).feed(hash);
    }
}

/// What a port of a Service becomes.
#[derive(Debug, Default)]
pub struct Rendered {
    /// Its flows.
    pub flows: Vec<Flow>,
    /// Its groups.
    pub groups: Vec<Group>,
    /// How many endpoints get no connections from this Node, as there are more than a group can have.
    pub left_out: usize,
}

/// Turns ports of Services into flows and groups, and remembers the numbers of their groups.
#[derive(Debug)]
pub struct Services {
    ids: Ids<GroupKey>,
}

impl Default for Services {
    fn default() -> Self {
        // Groups and the flows that point at them change in one bundle, so a number may change hands without harm: there is
        // nothing to adopt from the switch, and a fingerprint is never looked at.
        Self { ids: Ids::new(1..=0xffff_ff00, 64) }
    }
}

impl Services {
    /// What a port becomes on a Node that has these addresses of its own.
    pub fn render(
        &mut self,
        pipeline: &Pipeline,
        key: &Arc<ServiceKey>,
        port: &proxy::ServicePort,
        own: &BTreeSet<IpAddr>,
    ) -> Result<Rendered, Exhausted> {
        let mut rendered = Rendered::default();
        let protocol = port.protocol;
        // A local endpoint with the Node's own address is on the host's network: it is no Pod behind a port.
        let endpoint = |e: &proxy::Endpoint| Endpoint {
            address: e.address,
            port: e.port,
            is_local_pod: e.is_local && !own.contains(&e.address),
        };
        let is_external = |f: &&proxy::Frontend| !matches!(f.kind, proxy::FrontendKind::ClusterIp(_));
        let (mut groups, mut used) = (BTreeMap::new(), BTreeSet::new());
        for (nearby, all) in [(false, &port.endpoints), (true, &port.local_endpoints)] {
            let key = GroupKey { service: Arc::clone(key), nearby };
            let chosen = fitting(all, own);
            rendered.left_out = rendered.left_out.max(all.len() - chosen.len());
            let endpoints: BTreeSet<Endpoint> = chosen.into_iter().map(endpoint).collect();
            if endpoints.is_empty() {
                if let Some(id) = self.ids.release(&key) {
                    self.ids.retired(id);
                }
                continue;
            }
            used.extend(endpoints.iter().copied());
            let group = ServiceGroup { id: self.ids.assign(&key)?, endpoints, affinity: port.affinity.is_some() };
            groups.insert(nearby, group.id);
            rendered.groups.push(pipeline.group(&group));
        }
        rendered.flows.extend(used.iter().flat_map(|endpoint| pipeline.endpoint(protocol, endpoint)));
        for written in &port.frontends {
            let external = is_external(&written);
            let frontend = Frontend {
                kind: match written.kind {
                    proxy::FrontendKind::ClusterIp(ip) => FrontendKind::ClusterIp(ip),
                    proxy::FrontendKind::NodePort { ipv6 } => FrontendKind::NodePort { ipv6 },
                    proxy::FrontendKind::External(ip) => FrontendKind::External(ip),
                },
                protocol,
                port: written.port,
                group: groups.get(&written.local_only).copied(),
                drops: port.is_served(),
                in_cluster_group: groups.get(&false).copied().filter(|_| external && written.local_only),
                snat: external && !written.local_only,
                affinity: port.affinity.map(|seconds| Affinity { seconds }),
                clients: written.clients.clone(),
            };
            let cookie = cookie(key, written);
            rendered.flows.extend(pipeline.frontend(&frontend, cookie));
            if port.affinity.is_some() && !used.is_empty() {
                rendered.flows.extend(pipeline.remembered(&frontend, &used, cookie));
            }
        }
        Ok(rendered)
    }

    /// A port is gone.
    pub fn forget(&mut self, service: &Arc<ServiceKey>) {
        for nearby in [false, true] {
            if let Some(id) = self.ids.release(&GroupKey { service: Arc::clone(service), nearby }) {
                self.ids.retired(id);
            }
        }
    }
}

/// As many endpoints as a group can have. Where there are more, each Node takes others, the same ones every time, and one that
/// goes makes room for one: so together all are used, and hardly any client that is remembered loses its endpoint.
fn fitting<'a>(all: &'a [proxy::Endpoint], own: &BTreeSet<IpAddr>) -> Vec<&'a proxy::Endpoint> {
    if all.len() <= ServiceGroup::MAX_ENDPOINTS {
        return all.iter().collect();
    }
    let rank = |endpoint: &proxy::Endpoint| {
        let mut hash = StableHasher::default();
        for address in own.iter().chain([&endpoint.address]) {
            hash.write(address.to_string().as_bytes());
        }
        endpoint.port.feed(&mut hash);
        hash.finish()
    };
    let mut ranked: Vec<(u64, &proxy::Endpoint)> = all.iter().map(|endpoint| (rank(endpoint), endpoint)).collect();
    ranked.sort();
    ranked.into_iter().take(ServiceGroup::MAX_ENDPOINTS).map(|(_, endpoint)| endpoint).collect()
}

/// A number that no other frontend has, and that is the same after a restart: what clients' choices were learned under.
fn cookie(key: &ServiceKey, frontend: &proxy::Frontend) -> u64 {
    let mut hash = StableHasher::default();
    key.feed(&mut hash);
    match frontend.kind {
        proxy::FrontendKind::ClusterIp(ip) => hash.write(format!("cluster {ip}").as_bytes()),
        proxy::FrontendKind::NodePort { ipv6 } => hash.write(if ipv6 { b"node 6" } else { b"node 4" }),
        proxy::FrontendKind::External(ip) => hash.write(format!("external {ip}").as_bytes()),
    }
    frontend.port.feed(&mut hash);
    hash.finish()
}
