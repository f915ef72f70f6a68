//! Creates the EndpointSlices of Services from the selected Pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::json;

use super::notice::Notice;
use crate::core::{Core, DeleteOptions, ListOptions, Write};
use crate::failure::Failure;
use crate::objects::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Hints, IntOrString, Metadata, Node, ObjectReference,
    Pod, Service, ServicePort, Strings, Target,
};
use crate::resources::Resource;
use crate::selector::{Labels, Selector};
use crate::store::Stored;
use crate::value::{remove, set};

const MANAGER: &str = "endpointslice-controller.k8s.io";
pub(super) const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Maximum number of endpoints in a slice.
const MAX_ENDPOINTS: usize = 100;

fn selector(service: &Service) -> Option<Labels> {
    let labels = &service.spec.selector;
    (!labels.is_empty()).then(|| Labels::of_map(labels))
}

/// Selectors of Services, by namespace and name, so that a Pod is not matched with every Service's object; and the
/// slices of each Service, so that a Service does not list those of all others.
#[derive(Default)]
pub(super) struct Index {
    selectors: HashMap<String, BTreeMap<String, Labels>>,
    /// Keys of the slices of this controller, by namespace and name of their Service.
    slices: HashMap<(String, String), BTreeSet<String>>,
    /// Namespace and name of the Service of each slice.
    owners: HashMap<String, (String, String)>,
}

impl Index {
    pub(super) fn note(&mut self, notice: &Notice) {
        match notice.group_resource {
            "/services" => self.note_service(notice),
            "discovery.k8s.io/endpointslices" => self.note_slice(notice),
            _ => {}
        }
    }

    fn note_service(&mut self, notice: &Notice) {
        let Metadata { namespace, name, .. } = &notice.metadata;
        let service: Service = notice.read();
        match selector(&service).filter(|_| !notice.deleted) {
            Some(selector) => {
                self.selectors.entry(namespace.clone()).or_default().insert(name.clone(), selector);
            }
            None => {
                if let Some(services) = self.selectors.get_mut(namespace) {
                    services.remove(name);
                }
            }
        }
    }

    fn note_slice(&mut self, notice: &Notice) {
        let key = notice.key;
        if let Some(before) = self.owners.remove(key)
            && let Some(slices) = self.slices.get_mut(&before)
        {
            slices.remove(key);
            if slices.is_empty() {
                self.slices.remove(&before);
            }
        }
        if let Some(service) = made_for(&notice.metadata).filter(|_| !notice.deleted) {
            let service = (notice.metadata.namespace.clone(), service.to_owned());
            self.slices.entry(service.clone()).or_default().insert(key.to_owned());
            self.owners.insert(key.to_owned(), service);
        }
    }

    /// The Services in a namespace that select Pods with these labels.
    pub(super) fn selecting<'a>(&'a self, namespace: &str, labels: &'a Strings) -> impl Iterator<Item = &'a str> {
        let services = self.selectors.get(namespace).into_iter().flatten();
        services.filter(|(_, selector)| selector.matches_map(labels)).map(|(name, _)| name.as_str())
    }

    /// The current slices of this controller for a Service.
    fn slices_of(&self, core: &Core, resource: &Resource, namespace: &str, service: &str) -> Vec<EndpointSlice> {
        let keys = self.slices.get(&(namespace.to_owned(), service.to_owned())).into_iter().flatten();
        let stored = keys.filter_map(|key| core.store.get(&resource.group_resource, key));
        let slices = stored.filter_map(|stored| stored.read::<EndpointSlice>());
        slices.filter(|slice| made_for(&slice.metadata) == Some(service)).collect()
    }
}

/// The Service of a slice, if this controller created it.
fn made_for(slice: &Metadata) -> Option<&str> {
    slice.label(SERVICE).filter(|_| slice.label(MANAGED_BY) == Some(MANAGER))
}

/// The desired content of a slice.
struct DesiredSlice {
    family: String,
    ports: Option<Vec<EndpointPort>>,
    endpoints: Option<Vec<Endpoint>>,
}

pub(super) fn reconcile(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let resource = core.builtin("discovery.k8s.io", "endpointslices")?;
    let mut existing = index.slices_of(core, &resource, namespace, name);
    let service = core.read::<Service>(namespace, name).filter(|service| {
        service.spec.kind != "ExternalName" && !service.metadata.is_terminating() && selector(service).is_some()
    });
    if let Some(service) = &service {
        let labels = labels(service);
        // A slice keeps its ports if possible; an unneeded slice is reused for other ports.
        let (mut pairs, mut rest) = (Vec::new(), Vec::new());
        for wanted in slices(core, service)? {
            let same = |slice: &EndpointSlice| slice.address_type == wanted.family && slice.ports == wanted.ports;
            match existing.iter().position(same) {
                Some(index) => pairs.push((wanted, Some(existing.swap_remove(index)))),
                None => rest.push(wanted),
            }
        }
        for wanted in rest {
            let free = existing.iter().position(|slice| slice.address_type == wanted.family);
            pairs.push((wanted, free.map(|index| existing.swap_remove(index))));
        }
        for (wanted, old) in &pairs {
            match old {
                Some(old) => change(core, &resource, old, wanted, &labels)?,
                None => make(core, &resource, service, wanted, &labels)?,
            }
        }
    }
    for surplus in existing {
        core.delete(&resource, namespace, &surplus.metadata.name, &DeleteOptions::default())?;
    }
    Ok(())
}

fn labels(service: &Service) -> Strings {
    let mut labels = service.metadata.labels.clone();
    labels.insert(SERVICE.into(), service.metadata.name.clone());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    if service.spec.is_headless() {
        labels.insert("service.kubernetes.io/headless".into(), String::new());
    }
    labels
}

fn change(
    core: &Core,
    resource: &Resource,
    old: &EndpointSlice,
    wanted: &DesiredSlice,
    labels: &Strings,
) -> Result<(), Failure> {
    if old.endpoints == wanted.endpoints && old.ports == wanted.ports && &old.metadata.labels == labels {
        return Ok(());
    }
    let Metadata { namespace, name, .. } = &old.metadata;
    core.modify(resource, namespace, name, &Write::by("kube-controller-manager"), true, |old| {
        let mut new = old.clone();
        set(&mut new, "endpoints", json!(wanted.endpoints));
        set(&mut new, "ports", json!(wanted.ports));
        set(&mut new, "metadata.labels", json!(labels));
        // The trigger of the first version did not cause this one.
        remove(&mut new, "metadata.annotations");
        Ok(new)
    })
    .map(drop)
}

fn make(
    core: &Core,
    resource: &Resource,
    service: &Service,
    wanted: &DesiredSlice,
    labels: &Strings,
) -> Result<(), Failure> {
    let metadata = json!({
        "generateName": format!("{}-", service.metadata.name), "labels": labels,
        "ownerReferences": [service.metadata.as_controller("v1", "Service")],
        "annotations": {TRIGGERED: service.metadata.creation_timestamp},
    });
    let slice = json!({
        "metadata": metadata, "addressType": wanted.family, "ports": wanted.ports, "endpoints": wanted.endpoints,
    });
    core.create(resource, &service.metadata.namespace, slice, &Write::by("kube-controller-manager")).map(drop)
}

/// The desired slices of a Service.
fn slices(core: &Core, service: &Service) -> Result<Vec<DesiredSlice>, Failure> {
    let pods = selected(core, service)?;
    let mut nodes = BTreeMap::new();
    for name in pods.iter().map(|pod| pod.spec.node_name.as_str()) {
        nodes.entry(name).or_insert_with(|| core.read::<Node>("", name));
    }
    let mut slices = Vec::new();
    for family in &service.spec.ip_families {
        let mut groups: BTreeMap<Vec<EndpointPort>, Vec<Endpoint>> = BTreeMap::new();
        for pod in &pods {
            let Some(address) = pod.ips().find(|ip| ip.contains(':') == (family == "IPv6")) else { continue };
            let node = nodes.get(pod.spec.node_name.as_str()).and_then(Option::as_ref);
            if node.is_none() && !service.spec.publish_not_ready_addresses {
                // A Pod whose Node does not exist is not an endpoint.
                continue;
            }
            let ports = service.spec.ports.iter().filter_map(|port| port_of(port, pod)).collect();
            groups.entry(ports).or_default().push(endpoint(service, pod, node, address));
        }
        if groups.is_empty() {
            slices.push(DesiredSlice { family: family.clone(), ports: None, endpoints: None });
        }
        for (ports, endpoints) in groups {
            slices.extend(endpoints.chunks(MAX_ENDPOINTS).map(|chunk| DesiredSlice {
                family: family.clone(),
                ports: Some(ports.clone()),
                endpoints: Some(chunk.to_vec()),
            }));
        }
    }
    Ok(slices)
}

/// The Pods that a Service selects and that have not terminated.
fn selected(core: &Core, service: &Service) -> Result<Vec<Pod>, Failure> {
    let Some(labels) = selector(service) else { return Ok(Vec::new()) };
    let list = ListOptions { selector: Selector { labels, ..Selector::default() }, ..ListOptions::default() };
    let listed = core.list(&*core.builtin("", "pods")?, &service.metadata.namespace, &list)?;
    Ok(listed.objects.iter().filter_map(Stored::read::<Pod>).filter(|pod| !pod.is_over()).collect())
}

/// A port of a Service on a Pod; `None` for a named port that the Pod does not have.
fn port_of(port: &ServicePort, pod: &Pod) -> Option<EndpointPort> {
    let number = match port.target_port.as_ref()? {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
            ports.find(|own| own.name == *name && own.protocol == port.protocol)?.container_port
        }
    };
    Some(EndpointPort {
        app_protocol: port.app_protocol.clone(),
        name: port.name.clone(),
        port: number,
        protocol: port.protocol.clone(),
    })
}

fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, address: &str) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_terminating());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let mut endpoint = Endpoint {
        addresses: vec![address.to_owned()],
        conditions: EndpointConditions { ready, serving, terminating },
        target_ref: ObjectReference {
            kind: "Pod".to_owned(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        },
        node_name: named(&pod.spec.node_name),
        hostname: named(&pod.spec.hostname).filter(|_| pod.spec.subdomain == service.metadata.name),
        zone: node.and_then(|node| node.metadata.labels.get(ZONE)).cloned(),
        hints: None,
    };
    endpoint.hints = hints(service, &endpoint);
    endpoint
}

/// Topology hints of an endpoint, if its Service has a traffic distribution.
fn hints(service: &Service, endpoint: &Endpoint) -> Option<Hints> {
    let (zone, node) = match service.spec.traffic_distribution.as_str() {
        "PreferClose" | "PreferSameZone" => (&endpoint.zone, &None),
        "PreferSameNode" => (&endpoint.zone, &endpoint.node_name),
        _ => return None,
    };
    let targets = |name: &Option<String>| name.iter().map(|name| Target { name: name.clone() }).collect();
    let hints = Hints { for_zones: targets(zone), for_nodes: targets(node) };
    (endpoint.conditions.ready && hints != Hints::default()).then_some(hints)
}
