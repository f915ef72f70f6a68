//! Services: their flows, groups, connections and health checks on this Node.

mod connections;
mod refused;
mod render;

pub use connections::Connections;
pub(crate) use render::Services;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use delta::State;
use pipeline::Pipeline;
use pipeline::model::ServiceGroup;
use proxy::{Frontend, HealthCheck, ServicePort, Viewpoint};
use types::ObjectName;
use types::meta::Metadata;
use types::service::{EndpointSlice, PROXY_NAME_LABEL, SERVICE_NAME_LABEL, Service};

use crate::addressing::Own;
use crate::brain::Problem;
use crate::event::Change;
use crate::owner::{Owner, ServiceKey};
use crate::underlay::Underlay;
use refused::Refused;

/// All Services of the cluster, and the rendered ports of those served on this Node.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    services: BTreeMap<ObjectName, Box<Service>>,
    /// By Service, ordered by slice name. Lists, here and below, because a map allocates room for eleven and most Services have one.
    slices: BTreeMap<ObjectName, Vec<EndpointSlice>>,
    /// The Service that each slice belongs to.
    slice_owners: BTreeMap<ObjectName, ObjectName>,
    /// Services by claimed external address, which is not served if it is the cluster IP of another Service.
    claims: BTreeMap<IpAddr, BTreeSet<ObjectName>>,
    renderer: Services,
    rendered: BTreeMap<ObjectName, Box<[Served]>>,
    health_checks: BTreeMap<ObjectName, HealthCheck>,
    problems: BTreeMap<ObjectName, Vec<Problem>>,
    versions: Versions,
}

/// A Service port that this Node serves.
#[derive(PartialEq, Debug)]
struct Served {
    key: Arc<ServiceKey>,
    port: ServicePort,
}

/// Change counters for the consumers of each result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Versions {
    /// For frontends, which the host routes to the bridge.
    pub frontends: u64,
    /// For frontends and endpoints whose change can make connections stale.
    pub connections: u64,
    /// For health checks of load balancers.
    pub health_checks: u64,
}

/// Input and output of rendering a Service.
pub(crate) struct RenderContext<'a> {
    pub(crate) own: &'a Own,
    pub(crate) zone: Option<&'a str>,
    pub(crate) underlay: &'a Underlay,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) switch: &'a mut State<Owner>,
}

impl Catalogue {
    /// The names of all Services.
    pub(crate) fn names(&self) -> Vec<ObjectName> {
        self.services.keys().cloned().collect()
    }

    pub(crate) fn all_services(&self) -> impl Iterator<Item = &Box<Service>> {
        self.services.values()
    }

    /// All slices, with the label that names their Service, which is not kept with each.
    pub(crate) fn all_slices(&self) -> impl Iterator<Item = EndpointSlice> {
        self.slices.iter().flat_map(|(service, slices)| {
            slices.iter().cloned().map(|mut slice| {
                slice.metadata.labels.insert(SERVICE_NAME_LABEL.to_owned(), service.name.clone());
                slice
            })
        })
    }

    /// Names of Services with an external address or cluster IP that matches.
    pub(crate) fn reached_at(&self, is_meant: impl Fn(IpAddr) -> bool) -> Vec<ObjectName> {
        let reached = |service: &Service| {
            external_addresses(service).next().is_some() || cluster_addresses(service).any(&is_meant)
        };
        self.services.iter().filter(|(_, service)| reached(service)).map(|(name, _)| name.clone()).collect()
    }

    /// The addresses of a Service's endpoints in matching slices, ready or not.
    pub(crate) fn addresses_of(&self, service: &ObjectName, of: impl Fn(&EndpointSlice) -> bool) -> BTreeSet<IpAddr> {
        let slices = self.slices.get(service).into_iter().flatten().filter(|slice| of(slice));
        let written = slices.flat_map(|slice| &slice.endpoints).flat_map(|endpoint| &endpoint.addresses);
        written.filter_map(|address| address.parse().ok()).collect()
    }

    /// The Service ports served on this Node.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &ServicePort> {
        self.rendered.values().flatten().map(|served| &served.port)
    }

    pub(crate) fn health_checks(&self) -> &BTreeMap<ObjectName, HealthCheck> {
        &self.health_checks
    }

    pub(crate) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    pub(crate) fn versions(&self) -> Versions {
        self.versions
    }

    /// Handles a changed Service; returns the Services to render again.
    pub(crate) fn service(&mut self, change: Change<Box<Service>>) -> BTreeSet<ObjectName> {
        let (name, now) = match change {
            Change::Set(mut service) => {
                strip(&mut service.metadata, &[PROXY_NAME_LABEL]);
                (service.metadata.object_name(), Some(service))
            }
            Change::Gone(name) => (name, None),
        };
        let before = match now {
            Some(now) => self.services.insert(name.clone(), now),
            None => self.services.remove(&name),
        };
        let now = self.services.get(&name);
        for ip in before.iter().flat_map(|before| external_addresses(before)) {
            if let Entry::Occupied(mut claimants) = self.claims.entry(ip) {
                claimants.get_mut().remove(&name);
                if claimants.get().is_empty() {
                    claimants.remove();
                }
            }
        }
        for ip in now.into_iter().flat_map(|now| external_addresses(now)) {
            self.claims.entry(ip).or_default().insert(name.clone());
        }
        let owned = before.iter().chain(now).flat_map(|service| cluster_addresses(service));
        let claimants = owned.filter_map(|ip| self.claims.get(&ip)).flatten();
        claimants.chain([&name]).cloned().collect()
    }

    /// The external addresses of a Service that are cluster IPs of other Services, with those.
    fn owned_by_others(&self, name: &ObjectName) -> BTreeMap<IpAddr, &ObjectName> {
        let claimed: BTreeSet<IpAddr> =
            self.services.get(name).into_iter().flat_map(|it| external_addresses(it)).collect();
        if claimed.is_empty() {
            return BTreeMap::new();
        }
        let others = self.services.iter().filter(|(other, _)| *other != name);
        let owned = others.flat_map(|(other, service)| cluster_addresses(service).map(move |ip| (ip, other)));
        owned.filter(|(ip, _)| claimed.contains(ip)).collect()
    }

    /// Handles a changed EndpointSlice; returns the Services to render again.
    pub(crate) fn slice(&mut self, change: Change<EndpointSlice>) -> Vec<ObjectName> {
        let (slice, now) = match change {
            Change::Set(slice) => (slice.metadata.object_name(), Some(slice)),
            Change::Gone(slice) => (slice, None),
        };
        let service = now.as_ref().and_then(|now| {
            let name = now.service_name()?.to_owned();
            Some(ObjectName { namespace: slice.namespace.clone(), name })
        });
        let before = match &service {
            Some(service) => self.slice_owners.insert(slice.clone(), service.clone()),
            None => self.slice_owners.remove(&slice),
        };
        let mut touched = Vec::new();
        if let Some(before) = before.filter(|before| Some(before) != service.as_ref()) {
            self.drop_slice(&before, &slice);
            touched.push(before);
        }
        if let (Some(service), Some(now)) = (service, now) {
            self.keep_slice(service.clone(), now);
            touched.push(service);
        }
        touched
    }

    fn keep_slice(&mut self, service: ObjectName, mut slice: EndpointSlice) {
        strip(&mut slice.metadata, &[]);
        slice.endpoints.shrink_to_fit();
        slice.endpoints.iter_mut().for_each(|endpoint| endpoint.addresses.shrink_to_fit());
        let slices = self.slices.entry(service).or_default();
        slices.retain(|other| other.metadata.name != slice.metadata.name);
        slices.reserve_exact(1);
        slices.insert(slices.partition_point(|other| other.metadata.name < slice.metadata.name), slice);
    }

    fn drop_slice(&mut self, service: &ObjectName, slice: &ObjectName) {
        if let Some(slices) = self.slices.get_mut(service) {
            slices.retain(|other| other.metadata.name != slice.name);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }

    /// Updates the flows, groups and problems of a Service.
    pub(crate) fn render(&mut self, name: &ObjectName, context: &mut RenderContext<'_>) {
        let own = context.own.own_addresses();
        let viewpoint =
            Viewpoint { node: &context.own.name, addresses: &own, zone: context.zone, serving: &context.own.serving };
        let computed = match self.services.get(name) {
            Some(service) => {
                let slices = self.slices.get(name).into_iter().flatten();
                proxy::compute(service, slices, &viewpoint)
            }
            None => proxy::Computed::default(),
        };
        let mut problems: Vec<Problem> = computed.errors.into_iter().map(Problem::Field).collect();
        let owners = self.owned_by_others(name).into_iter().map(|(ip, owner)| (ip, owner.clone())).collect();
        let mut refused = Refused::new(owners);
        let mut before = self.rendered.remove(name).unwrap_or_default().into_vec();
        let mut now = Vec::new();
        for mut port in computed.ports {
            refused.remove_from(&mut port, context);
            let key = ServiceKey::of(&port);
            // If the API accepted two ports with the same name, the first one is used.
            if now.last().is_some_and(|last: &Served| last.key == key) {
                continue;
            }
            let old = before.iter().position(|old| old.key == key).map(|place| before.swap_remove(place));
            let (key, old) = old.map_or((key, None), |old| (old.key, Some(old.port)));
            // A port with too many endpoints is rendered again to report the problem; other unchanged ports are skipped.
            if old.as_ref() == Some(&port) && port.endpoints.len() <= ServiceGroup::MAX_ENDPOINTS {
                now.push(Served { key, port });
                continue;
            }
            let owner = Owner::Service(Arc::clone(&key));
            match self.renderer.render(context.pipeline, &key, &port, &own) {
                Ok(rendered) => {
                    if rendered.left_out > 0 {
                        problems.push(Problem::Endpoints(Arc::clone(&key), rendered.left_out));
                    }
                    context.switch.set_groups(&owner, rendered.groups);
                    context.switch.set_flows(&owner, rendered.flows);
                }
                Err(exhausted) => problems.push(Problem::Groups(Arc::clone(&key), exhausted)),
            }
            self.versions.count(old.as_ref(), Some(&port));
            now.push(Served { key, port });
        }
        for Served { key, port } in before {
            self.renderer.forget(&key);
            context.switch.remove(&Owner::Service(key));
            self.versions.count(Some(&port), None);
        }
        if let Some(service) = self.services.get(name) {
            problems.extend(refused.problems(service));
        }
        replace(&mut self.rendered, name, (!now.is_empty()).then_some(now.into()));
        replace(&mut self.problems, name, (!problems.is_empty()).then_some(problems));
        if replace(&mut self.health_checks, name, computed.health_check) {
            self.versions.health_checks += 1;
        }
    }
}

impl Versions {
    fn count(&mut self, before: Option<&ServicePort>, now: Option<&ServicePort>) {
        self.frontends += u64::from(frontends(before) != frontends(now));
        self.connections += u64::from(connections::is_news(before, now));
    }
}

/// The external addresses that a Service claims.
fn external_addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let balanced = service.status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
    service.spec.external_ips.iter().chain(balanced).filter_map(|ip| ip.parse().ok())
}

/// The cluster IPs that the API server assigned to a Service.
fn cluster_addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let spec = &service.spec;
    spec.cluster_ips.iter().chain([&spec.cluster_ip]).filter_map(|ip| ip.parse().ok())
}

fn frontends(port: Option<&ServicePort>) -> Option<&[Frontend]> {
    port.map(|port| port.frontends.as_ref())
}

/// Removes metadata that is not used here: everything except name, namespace and these labels.
fn strip(metadata: &mut Metadata, labels: &[&str]) {
    let Metadata { name, namespace, labels: all, .. } = std::mem::take(metadata);
    let labels = all.into_iter().filter(|(key, _)| labels.contains(&key.as_str())).collect();
    *metadata = Metadata { name, namespace, labels, ..Metadata::default() };
}

/// Sets or removes an entry; returns whether that changed the map.
fn replace<T: PartialEq>(map: &mut BTreeMap<ObjectName, T>, name: &ObjectName, now: Option<T>) -> bool {
    if map.get(name) == now.as_ref() {
        return false;
    }
    match now {
        Some(now) => drop(map.insert(name.clone(), now)),
        None => drop(map.remove(name)),
    }
    true
}
