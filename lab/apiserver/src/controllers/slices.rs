//! Creates the EndpointSlices of Services from the selected Pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::core::{Core, DeleteOptions, ListOptions, Write};
use crate::failure::Failure;
use crate::resources::Resource;
use crate::selector::{Labels, Selector};
use crate::store::Stored;
use crate::value::{at, items, set, text};

const GROUP: &str = "discovery.k8s.io";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Maximum number of endpoints in a slice.
const MAX_ENDPOINTS: usize = 100;

fn selector(service: &Value) -> Option<Labels> {
    let labels = at(service, "spec.selector").as_object().filter(|labels| !labels.is_empty())?;
    Some(Labels::of_object(&json!({"matchLabels": labels})))
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
    pub(super) fn note(&mut self, group_resource: &str, key: &str, object: &Value, gone: bool) {
        match group_resource {
            "/services" => self.note_service(object, gone),
            "discovery.k8s.io/endpointslices" => self.note_slice(key, object, gone),
            _ => {}
        }
    }

    fn note_service(&mut self, service: &Value, gone: bool) {
        let (namespace, name) = (text(service, "metadata.namespace"), text(service, "metadata.name"));
        match selector(service).filter(|_| !gone) {
            Some(selector) => {
                self.selectors.entry(namespace.to_owned()).or_default().insert(name.to_owned(), selector);
            }
            None => {
                if let Some(services) = self.selectors.get_mut(namespace) {
                    services.remove(name);
                }
            }
        }
    }

    fn note_slice(&mut self, key: &str, slice: &Value, gone: bool) {
        if let Some(before) = self.owners.remove(key)
            && let Some(slices) = self.slices.get_mut(&before)
        {
            slices.remove(key);
            if slices.is_empty() {
                self.slices.remove(&before);
            }
        }
        if let Some(service) = made_for(slice).filter(|_| !gone) {
            let service = (text(slice, "metadata.namespace").to_owned(), service.to_owned());
            self.slices.entry(service.clone()).or_default().insert(key.to_owned());
            self.owners.insert(key.to_owned(), service);
        }
    }

    /// The Services in a namespace that select Pods with these labels.
    pub(super) fn selecting<'a>(&'a self, namespace: &str, labels: &'a Value) -> impl Iterator<Item = &'a str> {
        let services = self.selectors.get(namespace).into_iter().flatten();
        services.filter(|(_, selector)| selector.matches_labels(labels)).map(|(name, _)| name.as_str())
    }

    /// The current slices of this controller for a Service.
    fn slices_of(&self, core: &Core, resource: &Resource, namespace: &str, service: &str) -> Vec<Value> {
        let keys = self.slices.get(&(namespace.to_owned(), service.to_owned())).into_iter().flatten();
        let mut slices: Vec<Value> =
            keys.filter_map(|key| core.store.get(&resource.group_resource, key)).map(|stored| stored.value()).collect();
        slices.retain(|slice| made_for(slice) == Some(service));
        slices
    }
}

/// The Service of a slice, if this controller created it.
fn made_for(slice: &Value) -> Option<&str> {
    let label = |key: &str| at(slice, "metadata.labels").get(key).and_then(Value::as_str);
    label(SERVICE).filter(|_| label(MANAGED_BY) == Some(MANAGER))
}

/// The desired content of a slice.
struct DesiredSlice {
    family: String,
    ports: Value,
    endpoints: Value,
}

pub(super) fn reconcile(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let resource = core.builtin(GROUP, "endpointslices")?;
    let mut existing = index.slices_of(core, &resource, namespace, name);
    let service = core.find("", "services", namespace, name).filter(|service| {
        text(service, "spec.type") != "ExternalName"
            && at(service, "metadata.deletionTimestamp").is_null()
            && selector(service).is_some()
    });
    if let Some(service) = &service {
        let labels = labels(service, name);
        // A slice keeps its ports if possible; an unneeded slice is reused for other ports.
        let (mut pairs, mut rest) = (Vec::new(), Vec::new());
        for wanted in slices(core, namespace, service)? {
            let same =
                |slice: &Value| text(slice, "addressType") == wanted.family && at(slice, "ports") == &wanted.ports;
            match existing.iter().position(same) {
                Some(index) => pairs.push((wanted, Some(existing.swap_remove(index)))),
                None => rest.push(wanted),
            }
        }
        for wanted in rest {
            let free = existing.iter().position(|slice| text(slice, "addressType") == wanted.family);
            pairs.push((wanted, free.map(|index| existing.swap_remove(index))));
        }
        for (wanted, old) in &pairs {
            match old {
                Some(old) => change(core, &resource, namespace, old, wanted, &labels)?,
                None => make(core, &resource, namespace, service, wanted, &labels)?,
            }
        }
    }
    for surplus in existing {
        core.delete(&resource, namespace, text(&surplus, "metadata.name"), &DeleteOptions::default())?;
    }
    Ok(())
}

fn labels(service: &Value, name: &str) -> Value {
    let mut labels = at(service, "metadata.labels").clone();
    let own = crate::value::object(&mut labels);
    own.insert(SERVICE.into(), name.into());
    own.insert(MANAGED_BY.into(), MANAGER.into());
    if text(service, "spec.clusterIP") == "None" {
        own.insert("service.kubernetes.io/headless".into(), "".into());
    }
    labels
}

fn change(
    core: &Core,
    resource: &Resource,
    namespace: &str,
    old: &Value,
    wanted: &DesiredSlice,
    labels: &Value,
) -> Result<(), Failure> {
    let same = at(old, "endpoints") == &wanted.endpoints
        && at(old, "ports") == &wanted.ports
        && at(old, "metadata.labels") == labels;
    if same {
        return Ok(());
    }
    core.modify(resource, namespace, text(old, "metadata.name"), &Write::by("kube-controller-manager"), true, |old| {
        let mut new = old.clone();
        set(&mut new, "endpoints", wanted.endpoints.clone());
        set(&mut new, "ports", wanted.ports.clone());
        set(&mut new, "metadata.labels", labels.clone());
        // The trigger of the first version did not cause this one.
        crate::value::remove(&mut new, "metadata.annotations");
        Ok(new)
    })
    .map(drop)
}

fn make(
    core: &Core,
    resource: &Resource,
    namespace: &str,
    service: &Value,
    wanted: &DesiredSlice,
    labels: &Value,
) -> Result<(), Failure> {
    let name = text(service, "metadata.name");
    let owner = json!({
        "apiVersion": "v1", "kind": "Service", "name": name, "uid": at(service, "metadata.uid"),
        "controller": true, "blockOwnerDeletion": true,
    });
    let triggered = json!({TRIGGERED: at(service, "metadata.creationTimestamp")});
    let metadata = json!({
        "generateName": format!("{name}-"), "labels": labels, "ownerReferences": [owner], "annotations": triggered,
    });
    let slice = json!({
        "metadata": metadata, "addressType": wanted.family, "ports": wanted.ports, "endpoints": wanted.endpoints,
    });
    core.create(resource, namespace, slice, &Write::by("kube-controller-manager")).map(drop)
}

/// The desired slices of a Service.
fn slices(core: &Core, namespace: &str, service: &Value) -> Result<Vec<DesiredSlice>, Failure> {
    let pods = selected(core, namespace, service)?;
    let mut nodes = BTreeMap::new();
    for name in pods.iter().map(|pod| text(pod, "spec.nodeName")) {
        nodes.entry(name).or_insert_with(|| core.find("", "nodes", "", name));
    }
    let published = at(service, "spec.publishNotReadyAddresses") == true;
    let mut slices = Vec::new();
    for family in items(service, "spec.ipFamilies").iter().filter_map(Value::as_str) {
        let mut groups: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
        for pod in &pods {
            let addresses =
                items(pod, "status.podIPs").iter().map(|ip| text(ip, "ip")).chain([text(pod, "status.podIP")]);
            let mut fitting = addresses.filter(|ip| !ip.is_empty() && ip.contains(':') == (family == "IPv6"));
            let Some(address) = fitting.next() else { continue };
            let node = nodes.get(text(pod, "spec.nodeName")).and_then(Option::as_ref);
            if node.is_none() && !published {
                // A Pod whose Node does not exist is not an endpoint.
                continue;
            }
            let ports = ports(service, pod);
            let mut endpoint = endpoint(service, pod, address);
            if let Some(zone) = node.and_then(|node| at(node, "metadata.labels").get("topology.kubernetes.io/zone")) {
                set(&mut endpoint, "zone", zone.clone());
            }
            if let Some(hints) = hints(service, &endpoint) {
                set(&mut endpoint, "hints", hints);
            }
            let group = groups.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new()));
            group.1.push(endpoint);
        }
        if groups.is_empty() {
            slices.push(DesiredSlice { family: family.to_owned(), ports: Value::Null, endpoints: Value::Null });
        }
        for (ports, endpoints) in groups.into_values() {
            slices.extend(endpoints.chunks(MAX_ENDPOINTS).map(|chunk| DesiredSlice {
                family: family.to_owned(),
                ports: ports.clone(),
                endpoints: json!(chunk),
            }));
        }
    }
    Ok(slices)
}

/// Topology hints of an endpoint, if its Service has a traffic distribution.
fn hints(service: &Value, endpoint: &Value) -> Option<Value> {
    let preferred: &[_] = match text(service, "spec.trafficDistribution") {
        "PreferClose" | "PreferSameZone" => &[("forZones", "zone")],
        "PreferSameNode" => &[("forZones", "zone"), ("forNodes", "nodeName")],
        _ => return None,
    };
    let named = |(field, of): &(&str, &str)| {
        Some(at(endpoint, of)).filter(|name| !name.is_null()).map(|name| ((*field).to_owned(), json!([{"name": name}])))
    };
    let hints: serde_json::Map<String, Value> = preferred.iter().filter_map(named).collect();
    (at(endpoint, "conditions.ready") == true && !hints.is_empty()).then(|| hints.into())
}

/// The Pods that a Service selects and that have not terminated.
fn selected(core: &Core, namespace: &str, service: &Value) -> Result<Vec<Value>, Failure> {
    let Some(labels) = selector(service) else { return Ok(Vec::new()) };
    let list = ListOptions { selector: Selector { labels, ..Selector::default() }, ..ListOptions::default() };
    let listed = core.list(&*core.builtin("", "pods")?, namespace, &list)?;
    let mut pods: Vec<_> = listed.objects.iter().map(Stored::value).collect();
    pods.retain(|pod| !matches!(text(pod, "status.phase"), "Succeeded" | "Failed"));
    Ok(pods)
}

/// The ports of a Service on a Pod; named ports that the Pod does not have are left out.
fn ports(service: &Value, pod: &Value) -> Value {
    let on_pod = |port: &Value| match at(port, "targetPort") {
        Value::String(name) => items(pod, "spec.containers")
            .iter()
            .flat_map(|container| items(container, "ports"))
            .find(|own| text(own, "name") == name && text(own, "protocol") == text(port, "protocol"))
            .map(|own| at(own, "containerPort").clone()),
        number => Some(number.clone()),
    };
    let one = |port: &Value| {
        let mut made = json!({"name": text(port, "name"), "port": on_pod(port)?, "protocol": at(port, "protocol")});
        crate::value::copy(port, &mut made, "appProtocol");
        Some(made)
    };
    json!(items(service, "spec.ports").iter().filter_map(one).collect::<Vec<_>>())
}

fn endpoint(service: &Value, pod: &Value, address: &str) -> Value {
    let terminating = !at(pod, "metadata.deletionTimestamp").is_null();
    let condition = |condition: &&Value| text(condition, "type") == "Ready" && text(condition, "status") == "True";
    let serving = items(pod, "status.conditions").iter().any(|found| condition(&found));
    let published = at(service, "spec.publishNotReadyAddresses") == true;
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": {"ready": published || (serving && !terminating), "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod", "namespace": at(pod, "metadata.namespace"), "name": at(pod, "metadata.name"), "uid": at(pod, "metadata.uid"),
        },
    });
    if !text(pod, "spec.nodeName").is_empty() {
        set(&mut endpoint, "nodeName", text(pod, "spec.nodeName"));
    }
    if !text(pod, "spec.hostname").is_empty() && text(pod, "spec.subdomain") == text(service, "metadata.name") {
        set(&mut endpoint, "hostname", text(pod, "spec.hostname"));
    }
    endpoint
}
