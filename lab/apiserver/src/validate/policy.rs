//! Validation of NetworkPolicies and EndpointSlices.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{CIDR, Errors, address_of, immutable, label_selector, one_of, ordinary, port_or_name};
use crate::failure::FieldError;
use crate::names;
use crate::value::{at, items, text};

pub(crate) fn network_policy(object: &Value, errors: &mut Errors) {
    label_selector(at(object, "spec.podSelector"), "spec.podSelector", errors);
    for (kind, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(object, &format!("spec.{kind}")).iter().enumerate() {
            for (number, value) in items(rule, "ports").iter().enumerate() {
                let wrong = errors_of(|wrong| policy_port(value, wrong));
                errors.extend(wrong.map(|it| it.below(&format!("spec.{kind}[{index}].ports[{number}]"))));
            }
            for (number, value) in items(rule, peers).iter().enumerate() {
                let wrong = errors_of(|wrong| peer(value, wrong));
                errors.extend(wrong.map(|it| it.below(&format!("spec.{kind}[{index}].{peers}[{number}]"))));
            }
        }
    }
    let types = items(object, "spec.policyTypes");
    if types.len() > 2 {
        let types = at(object, "spec.policyTypes");
        errors.push(FieldError::invalid("spec.policyTypes", types, "may not specify more than two policyTypes"));
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        if !["Egress", "Ingress"].contains(&kind.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(format!("spec.policyTypes[{index}]"), kind, &["Ingress", "Egress"]));
        }
    }
}

/// The errors of a part of an object, relative to it. The caller prepends the path if there are any: some policies have
/// thousands of peers.
fn errors_of(check: impl FnOnce(&mut Errors)) -> impl Iterator<Item = FieldError> {
    let mut wrong = Vec::new();
    check(&mut wrong);
    wrong.into_iter()
}

fn policy_port(value: &Value, errors: &mut Errors) {
    let protocol = at(value, "protocol");
    if !protocol.is_null() && !["SCTP", "TCP", "UDP"].contains(&protocol.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported("protocol", protocol, &["TCP", "UDP", "SCTP"]));
    }
    let (from, until) = (at(value, "port"), at(value, "endPort"));
    if from.is_null() {
        if !until.is_null() {
            let why = "may not be specified when `port` is not specified";
            errors.push(FieldError::invalid("endPort", until, why));
        }
        return;
    }
    port_or_name(from, "port", errors);
    if let Some(end) = until.as_i64() {
        let field = "endPort";
        match from.as_i64() {
            None => errors.push(FieldError::invalid(field, until, "may not be specified when `port` is non-numeric")),
            // The real server names the port, not its end.
            Some(start) if end < start => {
                errors.push(FieldError::invalid(field, from, "must be greater than or equal to `port`"));
            }
            Some(_) if !(1..=65535).contains(&end) => {
                errors.push(FieldError::invalid(field, until, "must be between 1 and 65535, inclusive"));
            }
            Some(_) => {}
        }
    }
}

fn peer(value: &Value, errors: &mut Errors) {
    let mut kinds = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if !at(value, key).is_null() {
            kinds += 1;
            label_selector(at(value, key), key, errors);
        }
    }
    if !at(value, "ipBlock").is_null() {
        if kinds > 0 {
            errors.push(FieldError::forbidden("", "may not specify both ipBlock and another peer"));
        }
        kinds += 1;
        errors.extend(errors_of(|wrong| ip_block(at(value, "ipBlock"), wrong)).map(|it| it.below("ipBlock")));
    }
    if kinds == 0 {
        errors.push(FieldError::required("", "must specify a peer"));
    }
}

fn ip_block(block: &Value, errors: &mut Errors) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        errors.push(FieldError::required("cidr", ""));
        return;
    }
    let Ok(net) = cidr.parse::<IpNet>() else {
        errors.push(FieldError::invalid("cidr", &json!(cidr), CIDR));
        return;
    };
    if net.addr() != net.network() {
        errors.push(FieldError::invalid("cidr", &json!(cidr), HOST_BITS));
    }
    for (index, except) in items(block, "except").iter().enumerate() {
        let field = format!("except[{index}]");
        match except.as_str().unwrap_or_default().parse::<IpNet>() {
            Err(_) => errors.push(FieldError::invalid(field, except, CIDR)),
            Ok(inner) if inner == net || !net.contains(&inner.network()) || inner.prefix_len() <= net.prefix_len() => {
                errors.push(FieldError::invalid(field, except, "must be a strict subset of `cidr`"));
            }
            Ok(_) => {}
        }
    }
}

const HOST_BITS: &str = "must not have bits set beyond the prefix length";

pub(crate) fn endpoint_slice(object: &Value, errors: &mut Errors) {
    let kind = text(object, "addressType");
    one_of(at(object, "addressType"), "addressType", &["FQDN", "IPv4", "IPv6"], errors);
    let endpoints = items(object, "endpoints");
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many("endpoints", endpoints.len(), 1000));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let addresses = items(endpoint, "addresses");
        let field = format!("endpoints[{index}].addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(field.as_str(), "must contain at least 1 address"));
        }
        if addresses.len() > 100 {
            errors.push(FieldError::too_many(field.as_str(), addresses.len(), 100));
        }
        for (number, address) in addresses.iter().enumerate() {
            let one = format!("{field}[{number}]");
            match kind {
                "IPv4" | "IPv6" => {
                    let Some(ip) = address_of(address, one.as_str(), errors) else { continue };
                    if ip.is_ipv4() != (kind == "IPv4") {
                        let why = format!("must be an {kind} address");
                        errors.push(FieldError::invalid(field.as_str(), address, &why));
                    }
                    ordinary(ip, address, &one, errors);
                }
                "FQDN" => {
                    for why in names::subdomain(address.as_str().unwrap_or_default()) {
                        errors.push(FieldError::invalid(one.as_str(), address, &why));
                    }
                }
                _ => {}
            }
        }
    }
    let mut seen = Vec::new();
    for (index, value) in items(object, "ports").iter().enumerate() {
        let (field, name) = (format!("ports[{index}]"), text(value, "name"));
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
        }
        seen.push(name);
        if !name.is_empty() {
            for why in names::label(name) {
                errors.push(FieldError::invalid(format!("{field}.name"), &json!(name), &why));
            }
        }
        one_of(at(value, "protocol"), format!("{field}.protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}

pub(crate) fn endpoint_slice_update(new: &Value, old: &Value, errors: &mut Errors) {
    if at(new, "addressType") != at(old, "addressType") {
        // The other errors are consequences of this one.
        errors.clear();
        errors.push(immutable("addressType", at(new, "addressType")));
    }
}
