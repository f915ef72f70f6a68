//! Nodes, and the Leases of their heartbeats.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{CIDR, Errors};
use crate::failure::FieldError;
use crate::names;
use crate::value::{at, items, text};

pub(crate) fn node(object: &Value, errors: &mut Errors) {
    taints(object, errors);
    let ranges = items(object, "spec.podCIDRs");
    let mut families = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        match range.as_str().unwrap_or_default().parse::<IpNet>() {
            Ok(net) => families.push(net.addr().is_ipv4()),
            Err(_) => errors.push(FieldError::invalid(format!("spec.podCIDRs[{index}]"), range, CIDR)),
        }
    }
    let [v4, v6] = [true, false].map(|v4| families.iter().filter(|family| **family == v4).count());
    if v4 > 1 || v6 > 1 {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", &json!(ranges), why));
    }
}

fn taints(object: &Value, errors: &mut Errors) {
    let mut seen = Vec::new();
    for (index, taint) in items(object, "spec.taints").iter().enumerate() {
        let field = format!("metadata.taints[{index}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        for why in names::qualified_name(key) {
            errors.push(FieldError::invalid(format!("{field}.key"), &json!(key), &why));
        }
        for why in names::label_value(text(taint, "value")) {
            errors.push(FieldError::invalid(format!("{field}.value"), at(taint, "value"), &why));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !effects.contains(&effect) {
            errors.push(FieldError::not_supported(format!("{field}.effect"), &json!(effect), &effects));
        }
        if seen.contains(&(key, effect)) {
            let rendered = format!("{{\"key\":{key:?},\"effect\":{effect:?}}}");
            errors.push(FieldError::duplicate_rendered(format!("metadata.taints[{index}]"), &rendered));
        }
        seen.push((key, effect));
    }
}

pub(crate) fn node_update(new: &Value, old: &Value, errors: &mut Errors) {
    // The real server validates twice, and reports the causes twice.
    taints(new, errors);
    let (before, after) = (items(old, "spec.podCIDRs"), items(new, "spec.podCIDRs"));
    if !before.is_empty() && before != after {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
}

pub(crate) fn lease(object: &Value, errors: &mut Errors) {
    let seconds = at(object, "spec.leaseDurationSeconds");
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    let transitions = at(object, "spec.leaseTransitions");
    if transitions.as_i64().is_some_and(|transitions| transitions < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", transitions, why));
    }
}
