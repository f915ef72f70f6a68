//! EndpointSlices of Services from the Pods that they select.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::selector::Labels;
use crate::value::{at, items, set, text};

const GROUP: &str = "discovery.k8s.io";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Endpoints in a slice, at most.
const MOST: usize = 100;

fn selector(service: &Value) -> Option<Labels> {
    let labels = at(service, "spec.selector").as_object().filter(|labels| !labels.is_empty())?;
    Some(Labels::of_object(&json!({"matchLabels": labels})))
}

/// The Services in a namespace that select Pods with these labels.
pub(super) fn selecting(core: &Core, namespace: &str, labels: &Value) -> Vec<String> {
    let services = core.all("", "services", namespace);
    let selecting =
        services.iter().filter(|service| selector(service).is_some_and(|selector| selector.matches_labels(labels)));
    selecting.map(|service| text(service, "metadata.name").to_owned()).collect()
}

pub(super) fn reconcile(core: &Core, namespace: &str, name: &str) -> Result<(), Failure> {
    let resource = core.builtin(GROUP, "endpointslices")?;
    let mut existing = core.all(GROUP, "endpointslices", namespace);
    existing.retain(|slice| {
        let label = |key: &str| at(slice, "metadata.labels").get(key).and_then(Value::as_str);
        label("kubernetes.io/service-name") == Some(name)
            && label("endpointslice.kubernetes.io/managed-by") == Some(MANAGER)
    });
    let service =
        core.find("", "services", namespace, name).filter(|service| text(service, "spec.type") != "ExternalName");
    let wanted = match &service {
        Some(service) if at(service, "metadata.deletionTimestamp").is_null() && selector(service).is_some() => {
            slices(core, namespace, service)
        }
        _ => Vec::new(),
    };
    let write = Write::by("kube-controller-manager");
    for (family, ports, endpoints) in wanted {
        let same = |slice: &Value| text(slice, "addressType") == family && at(slice, "ports") == &ports;
        match existing.iter().position(same) {
            Some(index) => {
                let old = existing.swap_remove(index);
                if at(&old, "endpoints") != &endpoints {
                    core.modify(&resource, namespace, text(&old, "metadata.name"), &write, true, |old| {
                        let mut new = old.clone();
                        set(&mut new, "endpoints", endpoints.clone());
                        Ok(new)
                    })?;
                }
            }
            None => {
                let Some(service) = &service else { continue };
                let mut labels = at(service, "metadata.labels").clone();
                let own = crate::value::object(&mut labels);
                own.insert("kubernetes.io/service-name".into(), name.into());
                own.insert("endpointslice.kubernetes.io/managed-by".into(), MANAGER.into());
                if text(service, "spec.clusterIP") == "None" {
                    own.insert("service.kubernetes.io/headless".into(), "".into());
                }
                let owner = json!({
                    "apiVersion": "v1", "kind": "Service", "name": name, "uid": at(service, "metadata.uid"),
                    "controller": true, "blockOwnerDeletion": true,
                });
                let slice = json!({
                    "metadata": {"generateName": format!("{name}-"), "labels": labels, "ownerReferences": [owner]},
                    "addressType": family, "ports": ports, "endpoints": endpoints,
                });
                core.create(&resource, namespace, slice, &write)?;
            }
        }
    }
    for surplus in existing {
        core.delete(&resource, namespace, text(&surplus, "metadata.name"), &DeleteOptions::default())?;
    }
    Ok(())
}

/// The slices a Service should have: family, ports, endpoints.
fn slices(core: &Core, namespace: &str, service: &Value) -> Vec<(String, Value, Value)> {
    let Some(selector) = selector(service) else { return Vec::new() };
    let mut pods = core.all("", "pods", namespace);
    pods.retain(|pod| {
        selector.matches_labels(at(pod, "metadata.labels"))
            && !matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
    });
    let mut slices = Vec::new();
    for family in items(service, "spec.ipFamilies").iter().filter_map(Value::as_str) {
        let mut groups: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
        for pod in &pods {
            let addresses =
                items(pod, "status.podIPs").iter().map(|ip| text(ip, "ip")).chain([text(pod, "status.podIP")]);
            let mut fitting = addresses.filter(|ip| !ip.is_empty() && ip.contains(':') == (family == "IPv6"));
            let Some(address) = fitting.next() else { continue };
            let ports = ports(service, pod);
            let group = groups.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new()));
            group.1.push(endpoint(service, pod, address));
        }
        if groups.is_empty() {
            slices.push((family.to_owned(), Value::Null, Value::Null));
        }
        for (ports, endpoints) in groups.into_values() {
            slices.extend(endpoints.chunks(MOST).map(|chunk| (family.to_owned(), ports.clone(), json!(chunk))));
        }
    }
    slices
}

/// The ports of a Service on a Pod; those with a name that the Pod does not have are left out.
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
        "conditions": {"ready": published || (serving && !terminating), "serving": serving || published, "terminating": terminating},
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
