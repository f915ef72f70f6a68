//! Service ports as flows and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use delta::{Exhausted, Ids, StableHasher, StableKey};
use openflow::flow::Flow;
use openflow::group::Group;
use pipeline::Pipeline;
use pipeline::model::{Affinity, ServiceFrontend, ServiceGroup};
use proxy::{Endpoint, Frontend, FrontendKind};

use crate::owner::ServiceKey;

/// The endpoints that a group selects from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct GroupKey {
    service: Arc<ServiceKey>,
    /// Whether only those on this Node.
    nearby: bool,
    /// Whether for fragmented packets.
    fragments: bool,
}

impl StableKey for GroupKey {
    fn feed(&self, hash: &mut StableHasher) {
        self.service.feed(hash);
        u8::from(self.nearby).feed(hash);
        if self.fragments {
            u8::from(self.fragments).feed(hash);
        }
    }
}

/// Flows and groups of a Service port.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    /// Flows of the port.
    pub(crate) flows: Vec<Flow>,
    /// Groups of the port.
    pub(crate) groups: Vec<Group>,
    /// Number of endpoints that exceed the limit of a group, and get no connections from this Node.
    pub(crate) left_out: usize,
}

/// Renders Service ports as flows and groups, and assigns group numbers.
#[derive(Debug)]
pub(crate) struct Services {
    ids: Ids<GroupKey>,
}

impl Default for Services {
    fn default() -> Self {
        // Groups and the flows that refer to them change in one bundle, so numbers can be reused freely: nothing is adopted from
        // the switch, and fingerprints are not used.
        Self { ids: Ids::new(1..=0xffff_ff00, 64) }
    }
}

impl Services {
    /// Renders a port, for a Node with these own addresses.
    pub(crate) fn render(
        &mut self,
        pipeline: &Pipeline,
        key: &Arc<ServiceKey>,
        port: &proxy::ServicePort,
        own: &BTreeSet<IpAddr>,
    ) -> Result<Rendered, Exhausted> {
        let mut rendered = Rendered::default();
        let protocol = port.protocol;
        let (mut groups, mut used) = (BTreeMap::new(), BTreeSet::new());
        let serves_fragments = pipeline.serves_fragments(protocol);
        for (nearby, all) in [(false, &port.endpoints), (true, &port.local_endpoints)] {
            let chosen = fitting(all, own);
            rendered.left_out = rendered.left_out.max(all.len() - chosen.len());
            let endpoints: BTreeSet<Endpoint> = chosen.into_iter().copied().collect();
            used.extend(endpoints.iter().copied());
            for fragments in [false, true] {
                let key = GroupKey { service: Arc::clone(key), nearby, fragments };
                if endpoints.is_empty() || fragments && !serves_fragments {
                    self.release(&key);
                    continue;
                }
                let (id, endpoints) = (self.ids.assign(&key)?, endpoints.clone());
                let group = ServiceGroup { id, endpoints, affinity: port.affinity.is_some() };
                groups.insert((fragments, nearby), id);
                rendered.groups.push(match fragments {
                    false => pipeline.group(&group),
                    true => pipeline.fragment_group(&group),
                });
            }
        }
        rendered.flows.extend(used.iter().flat_map(|endpoint| pipeline.endpoint(protocol, endpoint)));
        for frontend in &port.frontends {
            let has_in_cluster_group = frontend.kind.is_external() && frontend.local_only;
            let cookie = cookie(key, frontend);
            let served_by = |fragments: bool| ServiceFrontend {
                protocol,
                group: groups.get(&(fragments, frontend.local_only)).copied(),
                drops: port.is_served(),
                in_cluster_group: groups.get(&(fragments, false)).copied().filter(|_| has_in_cluster_group),
                affinity: port.affinity.map(|seconds| Affinity { seconds }),
                frontend: frontend.clone(),
            };
            if serves_fragments {
                rendered.flows.extend(pipeline.fragments(&served_by(true), cookie));
            }
            let frontend = served_by(false);
            rendered.flows.extend(pipeline.frontend(&frontend, cookie));
            if port.affinity.is_some() && !used.is_empty() {
                rendered.flows.extend(pipeline.remembered(&frontend, &used, cookie));
            }
        }
        Ok(rendered)
    }

    /// Releases the group numbers of a deleted port.
    pub(crate) fn forget(&mut self, service: &Arc<ServiceKey>) {
        for (nearby, fragments) in [(false, false), (false, true), (true, false), (true, true)] {
            self.release(&GroupKey { service: Arc::clone(service), nearby, fragments });
        }
    }

    fn release(&mut self, key: &GroupKey) {
        if let Some(id) = self.ids.release(key) {
            self.ids.retired(id);
        }
    }
}

/// The endpoints for a group, at most its limit. With more, each Node selects a different stable subset, and a removed endpoint
/// is replaced by one other: together the Nodes use all, and few clients with session affinity lose their endpoint.
fn fitting<'a>(all: &'a [Endpoint], own: &BTreeSet<IpAddr>) -> Vec<&'a Endpoint> {
    if all.len() <= ServiceGroup::MAX_ENDPOINTS {
        return all.iter().collect();
    }
    let mut node = StableHasher::default();
    for address in own {
        node.write(address.to_string().as_bytes());
    }
    let rank = |endpoint: &Endpoint| {
        let mut hash = node.clone();
        hash.write(endpoint.address.to_string().as_bytes());
        endpoint.port.feed(&mut hash);
        hash.finish()
    };
    let mut ranked: Vec<(u64, &Endpoint)> = all.iter().map(|endpoint| (rank(endpoint), endpoint)).collect();
    // There may be many times the limit: only those within it have to be in order.
    ranked.select_nth_unstable(ServiceGroup::MAX_ENDPOINTS);
    ranked.truncate(ServiceGroup::MAX_ENDPOINTS);
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, endpoint)| endpoint).collect()
}

/// A cookie unique to the frontend and stable across restarts: flows of session affinity are learned with it.
fn cookie(key: &ServiceKey, frontend: &Frontend) -> u64 {
    let mut hash = StableHasher::default();
    key.feed(&mut hash);
    match frontend.kind {
        FrontendKind::ClusterIp(ip) => hash.write(format!("cluster {ip}").as_bytes()),
        FrontendKind::NodePort { ipv6 } => hash.write(if ipv6 { b"node 6" } else { b"node 4" }),
        FrontendKind::External(ip) => hash.write(format!("external {ip}").as_bytes()),
    }
    frontend.port.feed(&mut hash);
    hash.finish()
}
