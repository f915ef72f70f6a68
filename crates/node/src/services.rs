//! Services: what is known of them, and what follows for the switch, the host and those who ask.

mod connections;
mod render;

pub use connections::Connections;
pub use render::{Rendered, Services};

use std::collections::BTreeMap;
use std::sync::Arc;

use delta::State;
use pipeline::Pipeline;
use pipeline::model::ServiceGroup;
use proxy::{Frontend, HealthCheck, ServicePort, Viewpoint};
use types::ObjectName;
use types::meta::Metadata;
use types::service::{EndpointSlice, PROXY_NAME_LABEL, Service};

use crate::addressing::Own;
use crate::brain::Problem;
use crate::event::Change;
use crate::owner::{Owner, ServiceKey};

/// All Services of the cluster, and what those that are served here have become.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    services: BTreeMap<ObjectName, Box<Service>>,
    /// By Service, in order of the slices' names. A list, as what follows: a map has room for eleven, and most Services have one.
    slices: BTreeMap<ObjectName, Vec<EndpointSlice>>,
    /// The Service that each slice is of.
    slice_owners: BTreeMap<ObjectName, ObjectName>,
    renderer: Services,
    rendered: BTreeMap<ObjectName, Box<[Served]>>,
    health_checks: BTreeMap<ObjectName, HealthCheck>,
    problems: BTreeMap<ObjectName, Vec<Problem>>,
    versions: Versions,
}

/// A port that is served here.
#[derive(PartialEq, Debug)]
struct Served {
    key: Arc<ServiceKey>,
    port: ServicePort,
}

/// Counts changes of what others look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Versions {
    /// Of frontends, which the host leads to the bridge.
    pub frontends: u64,
    /// Of where connections go, which they may remember otherwise.
    pub connections: u64,
    /// Of what load balancers are told.
    pub health_checks: u64,
}

/// What a Service is rendered for and into.
pub(crate) struct Surroundings<'a> {
    pub(crate) own: &'a Own,
    pub(crate) zone: Option<&'a str>,
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) switch: &'a mut State<Owner>,
}

impl Catalogue {
    /// The names of all Services.
    pub(crate) fn names(&self) -> Vec<ObjectName> {
        self.services.keys().cloned().collect()
    }

    /// The ports that are served here.
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

    /// Takes note of a Service; which has to be rendered again.
    pub(crate) fn service(&mut self, change: Change<Box<Service>>) -> ObjectName {
        match change {
            Change::Set(mut service) => {
                let name = service.metadata.object_name();
                strip(&mut service.metadata, &[PROXY_NAME_LABEL]);
                self.services.insert(name.clone(), service);
                name
            }
            Change::Gone(name) => {
                self.services.remove(&name);
                name
            }
        }
    }

    /// Takes note of some endpoints; which Services have to be rendered again.
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

    /// Makes the switch hold what a Service is now.
    pub(crate) fn render(&mut self, name: &ObjectName, around: &mut Surroundings<'_>) {
        let viewpoint = Viewpoint { node: &around.own.name, zone: around.zone, serving: &around.own.serving };
        let computed = match self.services.get(name) {
            Some(service) => {
                let slices = self.slices.get(name).into_iter().flatten();
                proxy::compute(service, slices, &viewpoint)
            }
            None => proxy::Computed::default(),
        };
        let mut problems: Vec<Problem> = computed.errors.into_iter().map(Problem::Field).collect();
        let own = around.own.own_addresses();
        let mut before = self.rendered.remove(name).unwrap_or_default().into_vec();
        let mut now = Vec::new();
        for port in computed.ports {
            let key = ServiceKey::of(&port);
            // An API that lets two ports have one name gets the first of them.
            if now.last().is_some_and(|last: &Served| last.key == key) {
                continue;
            }
            let old = before.iter().position(|old| old.key == key).map(|place| before.swap_remove(place));
            let (key, old) = old.map_or((key, None), |old| (old.key, Some(old.port)));
            // More endpoints than fit are a problem that stays; nothing else of a port that did not change is news.
            if old.as_ref() == Some(&port) && port.endpoints.len() <= ServiceGroup::MAX_ENDPOINTS {
                now.push(Served { key, port });
                continue;
            }
            let owner = Owner::Service(Arc::clone(&key));
            match self.renderer.render(around.pipeline, &key, &port, &own) {
                Ok(rendered) => {
                    if rendered.left_out > 0 {
                        problems.push(Problem::Endpoints(Arc::clone(&key), rendered.left_out));
                    }
                    around.switch.set_groups(&owner, rendered.groups);
                    around.switch.set_flows(&owner, rendered.flows);
                }
                Err(exhausted) => problems.push(Problem::Groups(Arc::clone(&key), exhausted)),
            }
            self.versions.count(old.as_ref(), Some(&port));
            now.push(Served { key, port });
        }
        for Served { key, port } in before {
            self.renderer.forget(&key);
            around.switch.remove(&Owner::Service(key));
            self.versions.count(Some(&port), None);
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

fn frontends(port: Option<&ServicePort>) -> Option<&[Frontend]> {
    port.map(|port| port.frontends.as_ref())
}

/// Forgets what is not looked at here: all but the name, the namespace and these labels.
fn strip(metadata: &mut Metadata, labels: &[&str]) {
    let Metadata { name, namespace, labels: all, .. } = std::mem::take(metadata);
    let labels = all.into_iter().filter(|(key, _)| labels.contains(&key.as_str())).collect();
    *metadata = Metadata { name, namespace, labels, ..Metadata::default() };
}

/// Whether that changed anything.
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
