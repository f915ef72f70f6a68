//! Services, as flows and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use delta::{Exhausted, Ids, StableHasher, StableKey};
use openflow::flow::Flow;
use openflow::group::Group;
use pipeline::Pipeline;
use pipeline::model::{Affinity, Endpoint, Frontend, FrontendKind, ServiceGroup};

use crate::owner::ServiceKey;

/// The endpoints that a group chooses among.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct GroupKey {
    service: ServiceKey,
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

/// The key of a port.
pub(crate) fn key(port: &proxy::ServicePort) -> ServiceKey {
    ServiceKey { service: port.service.clone(), port: port.name.clone(), protocol: port.protocol, ipv6: port.ipv6 }
}

impl Services {
    /// What a port becomes on a Node that has these addresses of its own.
    pub fn render(
        &mut self,
        pipeline: &Pipeline,
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
        let wants_all = port.frontends.iter().any(|f| !f.local_only || is_external(&f));
        let wants_nearby = port.frontends.iter().any(|f| f.local_only);
        let mut groups = BTreeMap::new();
        for (nearby, wanted) in [(false, wants_all), (true, wants_nearby)] {
            let key = GroupKey { service: key(port), nearby };
            let chosen = port.endpoints.iter().filter(|e| wanted && (e.is_local || !nearby));
            // Beyond the limit of the switch some endpoints get no connections from here; each Node takes the same ones.
            let endpoints: BTreeSet<Endpoint> = chosen.map(endpoint).take(ServiceGroup::MAX_ENDPOINTS).collect();
            if endpoints.is_empty() {
                if let Some(id) = self.ids.release(&key) {
                    self.ids.retired(id);
                }
                continue;
            }
            let group = ServiceGroup { id: self.ids.assign(&key)?, endpoints, affinity: port.affinity.is_some() };
            groups.insert(nearby, group.id);
            rendered.groups.push(pipeline.group(&group));
        }
        rendered.flows.extend(port.endpoints.iter().flat_map(|e| pipeline.endpoint(protocol, &endpoint(e))));
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
                in_cluster_group: groups.get(&false).copied().filter(|_| external && written.local_only),
                snat: external && !written.local_only,
                affinity: port.affinity.map(|seconds| Affinity { seconds }),
            };
            rendered.flows.extend(pipeline.frontend(&frontend, cookie(port, written)));
        }
        Ok(rendered)
    }

    /// A port is gone.
    pub fn forget(&mut self, service: &ServiceKey) {
        for nearby in [false, true] {
            if let Some(id) = self.ids.release(&GroupKey { service: service.clone(), nearby }) {
                self.ids.retired(id);
            }
        }
    }
}

/// A number that no other frontend has, and that is the same after a restart: what clients' choices were learned under.
fn cookie(port: &proxy::ServicePort, frontend: &proxy::Frontend) -> u64 {
    let mut hash = StableHasher::default();
    key(port).feed(&mut hash);
    match frontend.kind {
        proxy::FrontendKind::ClusterIp(ip) => hash.write(format!("cluster {ip}").as_bytes()),
        proxy::FrontendKind::NodePort { ipv6 } => hash.write(if ipv6 { b"node 6" } else { b"node 4" }),
        proxy::FrontendKind::External(ip) => hash.write(format!("external {ip}").as_bytes()),
    }
    frontend.port.feed(&mut hash);
    hash.finish()
}
