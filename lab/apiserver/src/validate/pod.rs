//! Pods and Pod templates.

use serde_json::{Value, json};

use super::{Errors, address_of, labels, one_of, port};
use crate::failure::FieldError;
use crate::names;
use crate::value::{at, items, text};

pub(crate) fn pod(object: &Value, errors: &mut Errors) {
    spec(at(object, "spec"), "spec", errors);
    let node = text(object, "spec.nodeName");
    if !node.is_empty() {
        for why in names::subdomain(node) {
            errors.push(FieldError::invalid("spec.nodeName", &json!(node), &why));
        }
    }
    for list in ["podIPs", "hostIPs"] {
        let addresses = items(object, &format!("status.{list}"));
        let mut families = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let ip = address_of(at(address, "ip"), format!("status.{list}[{index}]"), errors);
            families.extend(ip.map(|ip| ip.is_ipv4()));
        }
        if [true, false].iter().any(|family| families.iter().filter(|own| *own == family).count() > 1) {
            let rendered: Vec<_> =
                addresses.iter().map(|address| format!("{{\"IP\":{}}}", at(address, "ip"))).collect();
            let why = "may specify no more than one IP for each IP family";
            errors.push(FieldError::invalid_rendered(
                format!("status.{list}"),
                &format!("[{}]", rendered.join(",")),
                why,
            ));
        }
    }
}

/// The Pod template of a workload.
pub(crate) fn template(template: &Value, field: &str, errors: &mut Errors) {
    labels(at(template, "metadata.labels"), &format!("{field}.metadata.labels"), errors);
    spec(at(template, "spec"), &format!("{field}.spec"), errors);
}

fn spec(spec: &Value, field: &str, errors: &mut Errors) {
    let mut volumes = Vec::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let (field, name) = (format!("{field}.volumes[{index}].name"), text(volume, "name"));
        label(name, &field, errors);
        if volumes.contains(&name) {
            errors.push(FieldError::duplicate(field, &json!(name)));
        }
        volumes.push(name);
    }
    let list = format!("{field}.containers");
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(list.as_str(), ""));
    }
    let mut seen = Vec::new();
    for (kind, list) in [("containers", list), ("initContainers", format!("{field}.initContainers"))] {
        for (index, container) in items(spec, kind).iter().enumerate() {
            let field = format!("{list}[{index}]");
            let name = text(container, "name");
            label(name, &format!("{field}.name"), errors);
            if !name.is_empty() && seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
            seen.push(name);
            container_rules(container, &field, &volumes, errors);
        }
    }
    one_of(at(spec, "restartPolicy"), format!("{field}.restartPolicy"), &["Always", "OnFailure", "Never"], errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(at(spec, "dnsPolicy"), format!("{field}.dnsPolicy"), &policies, errors);
    labels(at(spec, "nodeSelector"), &format!("{field}.nodeSelector"), errors);
    if at(spec, "terminationGracePeriodSeconds").as_i64().is_some_and(|seconds| seconds < 0) {
        let value = at(spec, "terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(
            format!("{field}.terminationGracePeriodSeconds"),
            value,
            "must be greater than or equal to 0",
        ));
    }
    for key in ["serviceAccountName", "hostname", "subdomain"] {
        let name = text(spec, key);
        let wrong = if key == "serviceAccountName" { names::subdomain(name) } else { names::label(name) };
        if !name.is_empty() {
            for why in wrong {
                errors.push(FieldError::invalid(format!("{field}.{key}"), &json!(name), &why));
            }
        }
    }
}

fn label(name: &str, field: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    for why in names::label(name) {
        errors.push(FieldError::invalid(field, &json!(name), &why));
    }
}

fn container_rules(container: &Value, field: &str, volumes: &[&str], errors: &mut Errors) {
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{field}.image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            format!("{field}.image"),
            &json!(image),
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(
        at(container, "imagePullPolicy"),
        format!("{field}.imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    one_of(
        at(container, "terminationMessagePolicy"),
        format!("{field}.terminationMessagePolicy"),
        &["FallbackToLogsOnError", "File"],
        errors,
    );
    let amount = |value: &Value| crate::quantity::nano(value.as_str().unwrap_or_default());
    for (name, limit) in at(container, "resources.limits").as_object().into_iter().flatten() {
        // Not a dotted path: the names of resources have dots.
        let Some(request) = at(container, "resources.requests").get(name) else { continue };
        if let (Some(least), Some(most)) = (amount(request), amount(limit))
            && least > most
        {
            let why = format!("must be less than or equal to {name} limit of {}", limit.as_str().unwrap_or_default());
            errors.push(FieldError::invalid(format!("{field}.resources.requests"), request, &why));
        }
    }
    let mut names_seen = Vec::new();
    for (index, value) in items(container, "ports").iter().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let name = text(value, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            for why in &wrong {
                errors.push(FieldError::invalid(format!("{field}.name"), &json!(name), why));
            }
            if wrong.is_empty() && names_seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
            names_seen.push(name);
        }
        match at(value, "containerPort").as_i64().unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{field}.containerPort"), "")),
            _ => port(at(value, "containerPort"), format!("{field}.containerPort"), errors),
        }
        if at(value, "hostPort").as_i64().unwrap_or(0) != 0 {
            port(at(value, "hostPort"), format!("{field}.hostPort"), errors);
        }
        one_of(at(value, "protocol"), format!("{field}.protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
    for (index, env) in items(container, "env").iter().enumerate() {
        if text(env, "name").is_empty() {
            errors.push(FieldError::required(format!("{field}.env[{index}].name"), ""));
        }
    }
    let mut paths = Vec::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let field = format!("{field}.volumeMounts[{index}]");
        let (name, path) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if !volumes.contains(&name) {
            errors.push(FieldError::not_found(format!("{field}.name"), &json!(name)));
        }
        if path.is_empty() {
            errors.push(FieldError::required(format!("{field}.mountPath"), ""));
        }
        if paths.contains(&path) {
            errors.push(FieldError::invalid(format!("{field}.mountPath"), &json!(path), "must be unique"));
        }
        paths.push(path);
    }
}

/// Only few fields of a Pod's spec may change.
pub(crate) fn pod_update(new: &Value, old: &Value, errors: &mut Errors) {
    let essence = |object: &Value| {
        let mut spec = at(object, "spec").clone();
        for list in ["containers", "initContainers"] {
            for container in crate::value::items_mut(&mut spec, list) {
                crate::value::remove(container, "image");
            }
        }
        for key in
            ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates", "nodeSelector"]
        {
            crate::value::remove(&mut spec, key);
        }
        spec
    };
    if essence(new) != essence(old) {
        let what = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
            `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
            `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", what));
    }
}
