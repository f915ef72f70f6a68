//! Addresses and ports that a Service has and needs.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Claim, family};
use crate::core::Core;
use crate::failure::{Failure, FieldError};
use crate::objects::{Service, ServiceSpec, read};
use crate::resources::Resource;
use crate::value::{at, items_mut, remove, set};

/// The addresses and ports of a Service.
pub(super) fn held(service: &Value) -> (Vec<IpAddr>, Vec<u16>) {
    let Service { spec, .. } = read(service);
    let addresses = spec.cluster_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let ports = spec.ports.iter().map(|port| port.node_port).chain([spec.health_check_node_port]);
    (addresses, ports.filter_map(|port| u16::try_from(port).ok().filter(|port| *port != 0)).collect())
}

impl Core {
    /// Allocates what a Service needs and does not have.
    pub(crate) fn allocate(
        &self,
        resource: &Resource,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Claim<'_>, Failure> {
        if resource.kind != "Service" || !resource.group.is_empty() {
            return Ok(Claim::default());
        }
        let (old_addresses, old_ports) = old.map(held).unwrap_or_default();
        let mut claim = Claim::default();
        claim.from = Some(&self.allocator);
        let mut errors = Vec::new();
        self.addresses(object, &old_addresses, &mut claim, &mut errors);
        if errors.is_empty() {
            self.ports(object, &old_ports, &mut claim, &mut errors);
        }
        if !errors.is_empty() {
            let Service { metadata, .. } = read(object);
            return Err(Failure::invalid(&resource.group, &resource.kind, &metadata.name, &errors));
        }
        let (addresses, ports) = held(object);
        claim.surplus.0 = old_addresses.into_iter().filter(|address| !addresses.contains(address)).collect();
        claim.surplus.1 = old_ports.into_iter().filter(|port| !ports.contains(port)).collect();
        if dry_run {
            claim.surplus = Default::default();
        }
        Ok(claim)
    }

    /// Releases the addresses and ports of a Service.
    pub(crate) fn release(&self, resource: &Resource, object: &Value) {
        if resource.kind == "Service" && resource.group.is_empty() {
            let (addresses, ports) = held(object);
            self.allocator.release(&addresses, &ports);
        }
    }

    fn addresses(&self, object: &mut Value, old: &[IpAddr], claim: &mut Claim<'_>, errors: &mut Vec<FieldError>) {
        let Service { spec, .. } = read(object);
        if spec.kind == "ExternalName" {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                remove(object, &format!("spec.{key}"));
            }
            return;
        }
        let available = self.allocator.families();
        let ServiceSpec { cluster_ip, cluster_ips: mut given, mut ip_family_policy, ip_families: mut families, .. } =
            spec;
        if given.is_empty() && !cluster_ip.is_empty() {
            given.push(cluster_ip);
        }
        let headless = given.first().is_some_and(|first| first == "None");
        let selects = !spec.selector.is_empty();
        let policy = &mut ip_family_policy;
        if policy.is_empty() {
            let any = headless && !selects && families.is_empty();
            *policy = if any { "RequireDualStack" } else { "SingleStack" }.to_owned();
        }
        for (count, what) in [(given.len(), "cluster IPs"), (families.len(), "IP families")] {
            if policy == "SingleStack" && count > 1 {
                let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!(policy), &why));
                return;
            }
        }
        if !headless || selects {
            for (index, wanted) in families.iter().enumerate() {
                if !available.contains(&wanted.as_str()) {
                    errors.push(FieldError::invalid(
                        format!("spec.ipFamilies[{index}]"),
                        &json!(wanted),
                        "not configured on this cluster",
                    ));
                    return;
                }
            }
            if policy == "RequireDualStack" && available.len() < 2 {
                let why = "this cluster is not configured for dual-stack services";
                errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!(policy), why));
                return;
            }
        }
        if families.is_empty() {
            let from_addresses = given.iter().filter_map(|ip| ip.parse().ok()).map(|ip| family(&ip).to_owned());
            families = from_addresses.collect();
        }
        if families.is_empty() {
            families.extend(available.first().map(|family| (*family).to_owned()));
        }
        if policy != "SingleStack" && families.len() == 1 {
            let all: Vec<&str> = if headless && !selects { vec!["IPv4", "IPv6"] } else { available };
            let second = all.into_iter().find(|family| !families.iter().any(|have| have == family));
            families.extend(second.map(str::to_owned));
        }
        set(object, "spec.ipFamilyPolicy", policy.as_str());
        set(object, "spec.ipFamilies", families.clone());
        if headless {
            set(object, "spec.clusterIP", "None");
            set(object, "spec.clusterIPs", json!(["None"]));
            return;
        }
        let mut addresses = Vec::new();
        for (index, of) in families.iter().enumerate() {
            let wanted = given.get(index).and_then(|ip| ip.parse::<IpAddr>().ok());
            if let Some(kept) = wanted.filter(|wanted| old.contains(wanted)) {
                addresses.push(kept);
                continue;
            }
            match self.allocator.address(of, wanted) {
                Ok(address) => {
                    claim.addresses.push(address);
                    addresses.push(address);
                }
                Err(why) => {
                    let what = wanted.map_or_else(|| "a serviceIP".to_owned(), |ip| format!("IP {ip}"));
                    errors.push(FieldError::invalid(
                        "spec.clusterIPs",
                        &json!(given),
                        &format!("failed to allocate {what}: {why}"),
                    ));
                    return;
                }
            }
        }
        let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
        set(object, "spec.clusterIP", addresses.first().cloned().unwrap_or_default());
        set(object, "spec.clusterIPs", addresses);
    }

    fn ports(&self, object: &mut Value, old: &[u16], claim: &mut Claim<'_>, errors: &mut Vec<FieldError>) {
        let Service { spec, .. } = read(object);
        let balanced = spec.kind == "LoadBalancer";
        let needs = spec.kind == "NodePort" || (balanced && spec.allocate_load_balancer_node_ports != Some(false));
        let local = balanced && spec.external_traffic_policy == "Local";
        let mut mine = old.to_vec();
        let mut take = |wanted: &Value, field: String, mine: &mut Vec<u16>, errors: &mut Vec<FieldError>| {
            let number = wanted.as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
            match self.allocator.port(number, mine) {
                Ok(port) => {
                    if !mine.contains(&port) {
                        claim.ports.push(port);
                        mine.push(port);
                    }
                    Some(port)
                }
                Err(why) => {
                    errors.push(FieldError::invalid(field, wanted, &why));
                    None
                }
            }
        };
        for (index, port) in items_mut(object, "spec.ports").iter_mut().enumerate() {
            let wanted = at(port, "nodePort").clone();
            let given = wanted.as_u64().unwrap_or(0) != 0;
            if needs || (given && balanced) {
                if let Some(number) = take(&wanted, format!("spec.ports[{index}].nodePort"), &mut mine, errors) {
                    set(port, "nodePort", number);
                }
            } else {
                remove(port, "nodePort");
            }
        }
        if local {
            let wanted = at(object, "spec.healthCheckNodePort").clone();
            if let Some(number) = take(&wanted, "spec.healthCheckNodePort".to_owned(), &mut mine, errors) {
                set(object, "spec.healthCheckNodePort", number);
            }
        } else {
            remove(object, "spec.healthCheckNodePort");
        }
    }
}
