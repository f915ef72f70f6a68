//! Validation of Services and their changes.

use serde_json::{Value, json};

use super::{CIDR, Errors, address_of, immutable, labels, one_of, ordinary, port, port_or_name};
use crate::failure::FieldError;
use crate::names;
use crate::value::{at, items, text};

const FAMILIES: &[&str] = &["IPv4", "IPv6"];

pub(crate) fn service(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" => {
            for (index, value) in items(spec, "ports").iter().enumerate() {
                if at(value, "port") == 10250 {
                    let why = "may not expose port 10250 externally since it is used by kubelet";
                    errors.push(FieldError::invalid(format!("spec.ports[{index}].port"), at(value, "port"), why));
                }
            }
            if headless {
                errors.push(FieldError::invalid(
                    "spec.clusterIPs[0]",
                    &json!("None"),
                    "may not be set to 'None' for LoadBalancer services",
                ));
            }
        }
        "NodePort" if headless => {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                &json!("None"),
                "may not be set to 'None' for NodePort services",
            ));
        }
        "ExternalName" => {
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                for why in names::subdomain(name) {
                    errors.push(FieldError::invalid("spec.externalName", &json!(name), &why));
                }
            }
        }
        _ => {}
    }
    ports(spec, errors);
    labels(at(spec, "selector"), "spec.selector", errors);
    one_of(at(spec, "sessionAffinity"), "spec.sessionAffinity", &["ClientIP", "None"], errors);
    affinity(spec, errors);
    addresses(spec, errors);
    one_of(at(spec, "type"), "spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    policies(spec, kind, errors);
    for (index, family) in items(spec, "ipFamilies").iter().enumerate() {
        if !FAMILIES.contains(&family.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(format!("spec.ipFamilies[{index}]"), family, FAMILIES));
        }
        if items(spec, "ipFamilies").iter().take(index).any(|other| other == family) {
            errors.push(FieldError::duplicate(format!("spec.ipFamilies[{index}]"), family));
        }
    }
    let policy = text(spec, "ipFamilyPolicy");
    let all = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policy.is_empty() && !all.contains(&policy) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", at(spec, "ipFamilyPolicy"), &all));
    }
    status(object, errors);
}

fn status(object: &Value, errors: &mut Errors) {
    let ingress = items(object, "status.loadBalancer.ingress");
    if !ingress.is_empty() && text(object, "spec.type") != "LoadBalancer" {
        let why = "may only be used when `spec.type` is \"LoadBalancer\"";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", why));
        return;
    }
    for (index, entry) in ingress.iter().enumerate() {
        let field = format!("status.loadBalancer.ingress[{index}]");
        if !text(entry, "ip").is_empty() {
            address_of(at(entry, "ip"), format!("{field}.ip"), errors);
        }
        let host = text(entry, "hostname");
        if !host.is_empty() {
            for why in names::subdomain(host) {
                errors.push(FieldError::invalid(format!("{field}.hostname"), &json!(host), &why));
            }
        }
    }
}

/// Warnings about a valid Service.
pub(crate) fn service_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if !items(object, "spec.externalIPs").is_empty() {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if text(object, "spec.trafficDistribution") == "PreferClose" {
        let why = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(why.to_owned());
    }
    warnings
}

fn ports(spec: &Value, errors: &mut Errors) {
    let (list, mut seen_names, mut seen) = (items(spec, "ports"), Vec::new(), Vec::new());
    let mut seen_nodes = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        let name = text(value, "name");
        if name.is_empty() {
            if list.len() > 1 {
                errors.push(FieldError::required(format!("{field}.name"), ""));
            }
        } else {
            for why in names::label(name) {
                errors.push(FieldError::invalid(format!("{field}.name"), &json!(name), &why));
            }
            if seen_names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
            seen_names.push(name);
        }
        port(at(value, "port"), format!("{field}.port"), errors);
        one_of(at(value, "protocol"), format!("{field}.protocol"), &["SCTP", "TCP", "UDP"], errors);
        port_or_name(at(value, "targetPort"), &format!("{field}.targetPort"), errors);
        let app = text(value, "appProtocol");
        if !app.is_empty() {
            for why in names::qualified_name(app) {
                errors.push(FieldError::invalid(format!("{field}.appProtocol"), &json!(app), &why));
            }
        }
        let node = at(value, "nodePort").as_i64().unwrap_or(0);
        if node != 0 && matches!(text(spec, "type"), "ClusterIP" | "ExternalName") {
            let why = "may not be used when `type` is 'ClusterIP'".replace("ClusterIP", text(spec, "type"));
            errors.push(FieldError::forbidden(format!("{field}.nodePort"), &why));
        }
        let both = (text(value, "protocol"), node);
        if node != 0 && seen_nodes.contains(&both) {
            errors.push(FieldError::duplicate(format!("{field}.nodePort"), &json!(node)));
        }
        seen_nodes.push(both);
    }
    for (index, value) in list.iter().enumerate() {
        let both = (text(value, "protocol"), at(value, "port").as_i64());
        if seen.contains(&both) {
            // The key of a port in the format of Go.
            let rendered = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{}\",\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                both.0,
                both.1.unwrap_or(0)
            );
            errors.push(FieldError::duplicate_rendered(format!("spec.ports[{index}]"), &rendered));
        }
        seen.push(both);
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    let seconds = at(spec, "sessionAffinityConfig.clientIP.timeoutSeconds");
    if text(spec, "sessionAffinity") == "ClientIP"
        && !seconds.as_i64().is_some_and(|seconds| (1..=86400).contains(&seconds))
    {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(field, seconds, "must be greater than 0 and less than 86400"));
    }
}

fn addresses(spec: &Value, errors: &mut Errors) {
    let (one, all) = (text(spec, "clusterIP"), items(spec, "clusterIPs"));
    if text(spec, "type") == "ExternalName" {
        for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if !at(spec, key).is_null() {
                let why = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden(format!("spec.{key}"), why));
            }
        }
    } else if !all.is_empty() && one.is_empty() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            &json!(all),
            "must be empty when `clusterIP` is not specified",
        ));
    } else if all.first().is_some_and(|first| *first != one) {
        errors.push(FieldError::invalid("spec.clusterIPs", &json!(all), "first value must match `clusterIP`"));
    }
    let mut families = Vec::new();
    for (index, address) in all.iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        let field = format!("spec.clusterIPs[{index}]");
        let Some(ip) =
            Some(text).filter(|text| *text != "None").and_then(|_| address_of(address, field.as_str(), errors))
        else {
            continue;
        };
        families.push(ip.is_ipv4());
        let own = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let wanted = items(spec, "ipFamilies").get(index).and_then(Value::as_str).unwrap_or(own);
        if FAMILIES.contains(&wanted) && wanted != own {
            let why = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(field, address, &why));
        }
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid("spec.clusterIPs", &json!(all), "may only hold up to 2 values"));
    } else if matches!(families.as_slice(), [one, other] if one == other) {
        let why = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", &json!(all), why));
    }
    for (index, address) in items(spec, "externalIPs").iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        if let Some(ip) = address_of(address, field.as_str(), errors) {
            ordinary(ip, address, &field, errors);
        }
    }
    for (index, range) in items(spec, "loadBalancerSourceRanges").iter().enumerate() {
        // The real server spells this one with a capital.
        let field = format!("spec.LoadBalancerSourceRanges[{index}]");
        if text(spec, "type") != "LoadBalancer" {
            errors.push(FieldError::forbidden(
                "spec.LoadBalancerSourceRanges",
                "may only be used when `type` is 'LoadBalancer'",
            ));
            break;
        }
        if range.as_str().unwrap_or_default().trim().parse::<ipnet::IpNet>().is_err() {
            errors.push(FieldError::invalid(field, range, CIDR));
        }
    }
}

fn policies(spec: &Value, kind: &str, errors: &mut Errors) {
    let external = text(spec, "externalTrafficPolicy");
    let exposed = matches!(kind, "NodePort" | "LoadBalancer") || !items(spec, "externalIPs").is_empty();
    if !external.is_empty() {
        if !exposed {
            let why = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid("spec.externalTrafficPolicy", &json!(external), why));
        } else if !["Cluster", "Local"].contains(&external) {
            errors.push(FieldError::not_supported(
                "spec.externalTrafficPolicy",
                &json!(external),
                &["Cluster", "Local"],
            ));
        }
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() && !["Cluster", "Local"].contains(&internal) {
        errors.push(FieldError::not_supported("spec.internalTrafficPolicy", &json!(internal), &["Cluster", "Local"]));
    }
    let near = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let distribution = at(spec, "trafficDistribution");
    if !distribution.is_null() && !near.contains(&distribution.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported("spec.trafficDistribution", distribution, &near));
    }
    if kind != "LoadBalancer" {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if !at(spec, key).is_null() {
                errors.push(FieldError::forbidden(
                    format!("spec.{key}"),
                    "may only be used when `type` is 'LoadBalancer'",
                ));
            }
        }
    }
    let health = at(spec, "healthCheckNodePort").as_i64().unwrap_or(0);
    if health != 0 && !(kind == "LoadBalancer" && external == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", &json!(health), why));
    }
}

pub(crate) fn service_update(new: &Value, old: &Value, errors: &mut Errors) {
    let external = |object: &Value| text(object, "spec.type") == "ExternalName";
    let (was, is) = (items(old, "spec.clusterIPs"), items(new, "spec.clusterIPs"));
    if !external(old) && !external(new) {
        for index in (0..was.len().min(is.len())).filter(|index| was.get(*index) != is.get(*index)) {
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                &json!(is),
                "may not change once set",
            ));
        }
    }
    if text(old, "spec.type") == "LoadBalancer"
        && text(new, "spec.type") == "LoadBalancer"
        && at(old, "spec.loadBalancerClass") != at(new, "spec.loadBalancerClass")
    {
        errors.push(FieldError::invalid(
            "spec.loadBalancerClass",
            at(new, "spec.loadBalancerClass"),
            "may not change once set",
        ));
    }
    // For other changes, the errors of the addresses are enough.
    let (families, before) = (items(new, "spec.ipFamilies"), items(old, "spec.ipFamilies"));
    if let (Some(new), Some(old), "None") = (families.first(), before.first(), text(new, "spec.clusterIP"))
        && new != old
    {
        errors.push(immutable("spec.ipFamilies[0]", new));
    }
}
