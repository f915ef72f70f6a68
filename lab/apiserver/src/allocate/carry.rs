//! Addresses and ports that an updated Service keeps.

use serde_json::{Value, json};

use crate::value::{at, copy, items, items_mut, remove, set, text};

/// Copies addresses and ports that an update does not mention from the old Service.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    drop_unused(old, new);
    let external = |service: &Value| text(service, "spec.type") == "ExternalName";
    if external(new) || external(old) {
        return;
    }
    for key in ["ipFamilies", "ipFamilyPolicy"] {
        if at(new, "spec").get(key).is_none_or(Value::is_null) {
            copy(old, new, &format!("spec.{key}"));
        }
    }
    let (one, all) = (text(new, "spec.clusterIP").is_empty(), items(new, "spec.clusterIPs").is_empty());
    if one && all {
        copy(old, new, "spec.clusterIP");
        copy(old, new, "spec.clusterIPs");
    } else if all {
        let ip = text(new, "spec.clusterIP").to_owned();
        if ip == text(old, "spec.clusterIP") {
            copy(old, new, "spec.clusterIPs");
        } else {
            set(new, "spec.clusterIPs", json!([ip]));
        }
    } else if one {
        let first = items(new, "spec.clusterIPs").first().cloned().unwrap_or_default();
        set(new, "spec.clusterIP", first);
    }
    if text(new, "spec.ipFamilyPolicy") == "SingleStack" && text(old, "spec.ipFamilyPolicy") != "SingleStack" {
        // A Service that is no longer dual-stack releases its second address.
        for key in ["spec.clusterIPs", "spec.ipFamilies"] {
            if at(new, key) == at(old, key) {
                let first: Vec<_> = items(new, key).iter().take(1).cloned().collect();
                set(new, key, first);
            }
        }
    }
    let exposed = |service: &Value| matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer");
    if exposed(old) && exposed(new) {
        for port in items_mut(new, "spec.ports") {
            let same =
                |other: &&Value| at(other, "port") == at(port, "port") && text(other, "protocol") == protocol(port);
            let before = items(old, "spec.ports").iter().find(same).map(|other| at(other, "nodePort").clone());
            if let Some(number) =
                before.filter(|number| at(port, "nodePort").as_i64().unwrap_or(0) == 0 && !number.is_null())
            {
                set(port, "nodePort", number);
            }
        }
        if at(new, "spec.healthCheckNodePort").as_i64().unwrap_or(0) == 0
            && text(new, "spec.externalTrafficPolicy") == "Local"
        {
            copy(old, new, "spec.healthCheckNodePort");
        }
    }
}

/// Removes fields that the new type does not use, unless this update has set them.
fn drop_unused(old: &Value, new: &mut Value) {
    let kind = text(new, "spec.type").to_owned();
    if kind == text(old, "spec.type") {
        return;
    }
    let balanced = kind == "LoadBalancer";
    let exposed = balanced || kind == "NodePort";
    let mut unused = Vec::new();
    if !exposed {
        unused.push("externalTrafficPolicy");
        for (index, port) in items_mut(new, "spec.ports").iter_mut().enumerate() {
            let before = items(old, "spec.ports").get(index).map(|port| at(port, "nodePort"));
            if before == Some(at(port, "nodePort")) {
                remove(port, "nodePort");
            }
        }
    }
    if !balanced {
        unused.extend(["healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"]);
        // The load balancer no longer serves it.
        set(new, "status.loadBalancer", json!({}));
    }
    if kind == "ExternalName" {
        unused.extend(["internalTrafficPolicy", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    for key in unused {
        let path = format!("spec.{key}");
        if at(new, &path) == at(old, &path) {
            remove(new, &path);
        }
    }
}

fn protocol(port: &Value) -> &str {
    match text(port, "protocol") {
        "" => "TCP",
        protocol => protocol,
    }
}

/// `clusterIP` implies `clusterIPs` with one entry, which the client does not own.
pub(crate) fn list_of_one(service: &mut Value) {
    let one = at(service, "spec.clusterIP").clone();
    if !one.is_null() && one != "" && items(service, "spec.clusterIPs").is_empty() {
        set(service, "spec.clusterIPs", json!([one]));
    }
}
