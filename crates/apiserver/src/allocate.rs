//! ClusterIPs and node ports of Services.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::core::Core;
use crate::failure::{Failure, FieldError};
use crate::resources::Resource;
use crate::value::{at, copy, items, items_mut, remove, set, text};

#[derive(Default)]
struct Used {
    addresses: HashSet<IpAddr>,
    ports: HashSet<u16>,
    /// Where to look first, so that addresses come back late.
    next: usize,
}

/// What there is to give, and what is given.
pub(crate) struct Allocator {
    ranges: Vec<IpNet>,
    ports: RangeInclusive<u16>,
    used: Mutex<Used>,
}

/// What was taken for a Service; given back unless it is kept.
#[derive(Default)]
pub(crate) struct Claim<'a> {
    from: Option<&'a Allocator>,
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
    /// What the Service no longer needs once it is stored.
    surplus: (Vec<IpAddr>, Vec<u16>),
}

impl Claim<'_> {
    pub(crate) fn keep(mut self) {
        if let Some(from) = self.from.take() {
            from.release(&self.surplus.0, &self.surplus.1);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(from) = self.from {
            from.release(&self.addresses, &self.ports);
        }
    }
}

fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

impl Allocator {
    pub(crate) fn new(ranges: Vec<IpNet>, ports: RangeInclusive<u16>) -> Self {
        Self { ranges, ports, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, addresses: &[IpAddr], ports: &[u16]) {
        let mut used = self.used();
        used.addresses.retain(|address| !addresses.contains(address));
        used.ports.retain(|port| !ports.contains(port));
    }

    /// Marks what a stored Service has, at start.
    pub(crate) fn mark(&self, service: &Value) {
        let (addresses, ports) = held(service);
        let mut used = self.used();
        used.addresses.extend(addresses);
        used.ports.extend(ports);
    }

    fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| family(&range.addr())).collect()
    }

    fn address(&self, of: &str, wanted: Option<IpAddr>) -> Result<IpAddr, String> {
        let range = self.ranges.iter().find(|range| family(&range.addr()) == of).ok_or("no range for the family")?;
        let mut used = self.used();
        if let Some(wanted) = wanted {
            if !range.contains(&wanted) {
                return Err("the provided network does not match the current range".to_owned());
            }
            return if used.addresses.insert(wanted) {
                Ok(wanted)
            } else {
                Err("provided IP is already allocated".to_owned())
            };
        }
        let size = 1usize << (u32::from(range.max_prefix_len() - range.prefix_len())).min(16);
        for step in 0..size {
            // Neither the first address nor, for IPv4, the last.
            let offset = 1 + (used.next + step) % size.saturating_sub(2).max(1);
            let address = nth(range, offset);
            if used.addresses.insert(address) {
                used.next = offset;
                return Ok(address);
            }
        }
        Err("range is full".to_owned())
    }

    fn port(&self, wanted: u16, mine: &[u16]) -> Result<u16, String> {
        let mut used = self.used();
        if wanted != 0 {
            if !self.ports.contains(&wanted) {
                let (first, last) = (self.ports.start(), self.ports.end());
                return Err(format!(
                    "provided port is not in the valid range. The range of valid ports is {first}-{last}"
                ));
            }
            let free = mine.contains(&wanted) || used.ports.insert(wanted);
            return if free { Ok(wanted) } else { Err("provided port is already allocated".to_owned()) };
        }
        let count = usize::from(self.ports.end() - self.ports.start()) + 1;
        let start = usize::from(u16::from_be_bytes(crate::moment::random())) % count;
        let mut candidates = self.ports.clone().cycle_from(start);
        candidates.find(|port| used.ports.insert(*port)).ok_or_else(|| "range is full".to_owned())
    }
}

trait CycleFrom {
    fn cycle_from(self, start: usize) -> impl Iterator<Item = u16>;
}

impl CycleFrom for RangeInclusive<u16> {
    fn cycle_from(self, start: usize) -> impl Iterator<Item = u16> {
        self.clone().skip(start).chain(self.take(start))
    }
}

fn nth(range: &IpNet, offset: usize) -> IpAddr {
    match range {
        IpNet::V4(net) => {
            IpAddr::V4((u32::from(net.network()).wrapping_add(u32::try_from(offset).unwrap_or(1))).into())
        }
        IpNet::V6(net) => IpAddr::V6((u128::from(net.network()).wrapping_add(offset as u128)).into()),
    }
}

/// The addresses and ports that a Service has.
fn held(service: &Value) -> (Vec<IpAddr>, Vec<u16>) {
    let addresses = items(service, "spec.clusterIPs").iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    let port = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    let ports = items(service, "spec.ports").iter().filter_map(|value| port(at(value, "nodePort")));
    let health = port(at(service, "spec.healthCheckNodePort"));
    (addresses, ports.chain(health).collect())
}

impl Core {
    /// Gives a Service what it needs and does not have.
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
            return Err(Failure::invalid(&resource.group, &resource.kind, text(object, "metadata.name"), &errors));
        }
        let (addresses, ports) = held(object);
        claim.surplus.0 = old_addresses.into_iter().filter(|address| !addresses.contains(address)).collect();
        claim.surplus.1 = old_ports.into_iter().filter(|port| !ports.contains(port)).collect();
        if dry_run {
            claim.surplus = Default::default();
        }
        Ok(claim)
    }

    /// Takes back what a Service had.
    pub(crate) fn release(&self, resource: &Resource, object: &Value) {
        if resource.kind == "Service" && resource.group.is_empty() {
            let (addresses, ports) = held(object);
            self.allocator.release(&addresses, &ports);
        }
    }

    fn addresses(&self, object: &mut Value, old: &[IpAddr], claim: &mut Claim<'_>, errors: &mut Vec<FieldError>) {
        if text(object, "spec.type") == "ExternalName" {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                remove(object, &format!("spec.{key}"));
            }
            return;
        }
        let available = self.allocator.families();
        let one = text(object, "spec.clusterIP").to_owned();
        let mut given: Vec<String> =
            items(object, "spec.clusterIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if given.is_empty() && !one.is_empty() {
            given.push(one);
        }
        let headless = given.first().is_some_and(|first| first == "None");
        let selects = at(object, "spec.selector").as_object().is_some_and(|selector| !selector.is_empty());
        let mut policy = text(object, "spec.ipFamilyPolicy").to_owned();
        let mut families: Vec<String> =
            items(object, "spec.ipFamilies").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if policy.is_empty() {
            policy = match (headless && !selects, given.len().max(families.len())) {
                (true, _) if families.is_empty() => "RequireDualStack",
                (_, 2) => "RequireDualStack",
                _ => "SingleStack",
            }
            .to_owned();
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
        if policy == "SingleStack" {
            families.truncate(1);
            given.truncate(1);
        }
        set(object, "spec.ipFamilyPolicy", policy);
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
        let kind = text(object, "spec.type").to_owned();
        let needs =
            kind == "NodePort" || (kind == "LoadBalancer" && at(object, "spec.allocateLoadBalancerNodePorts") != false);
        let local = kind == "LoadBalancer" && text(object, "spec.externalTrafficPolicy") == "Local";
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
            if needs || (given && kind == "LoadBalancer") {
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

/// What a changed Service keeps when the change does not mention it.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
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
    if text(new, "spec.ipFamilyPolicy") == "SingleStack" {
        let shortened: Vec<_> = items(new, "spec.clusterIPs").iter().take(1).cloned().collect();
        set(new, "spec.clusterIPs", shortened);
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
    } else if exposed(old) && text(new, "spec.type") == "ClusterIP" {
        for port in items_mut(new, "spec.ports") {
            remove(port, "nodePort");
        }
        for key in ["externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"] {
            if at(new, &format!("spec.{key}")) == at(old, &format!("spec.{key}")) {
                remove(new, &format!("spec.{key}"));
            }
        }
    }
}

fn protocol(port: &Value) -> &str {
    match text(port, "protocol") {
        "" => "TCP",
        protocol => protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator() -> Allocator {
        Allocator::new(vec!["10.96.0.0/29".parse().unwrap(), "fd00::/112".parse().unwrap()], 30000..=30002)
    }

    #[test]
    fn addresses_are_given_once_and_come_back() {
        let allocator = allocator();
        let all: Vec<_> = (0..6).map(|_| allocator.address("IPv4", None).unwrap()).collect();
        assert_eq!(allocator.address("IPv4", None), Err("range is full".to_owned()));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 6);
        allocator.release(&all[2..3], &[]);
        assert_eq!(allocator.address("IPv4", None), Ok(all[2]));
        assert!(
            allocator
                .address("IPv4", Some("10.97.0.1".parse().unwrap()))
                .unwrap_err()
                .contains("does not match the current range")
        );
    }

    #[test]
    fn ports_are_given_once() {
        let allocator = allocator();
        assert_eq!(allocator.port(30001, &[]), Ok(30001));
        assert_eq!(allocator.port(30001, &[]), Err("provided port is already allocated".to_owned()));
        assert!(allocator.port(80, &[]).unwrap_err().ends_with("30000-30002"));
        allocator.port(0, &[]).unwrap();
        allocator.port(0, &[]).unwrap();
        assert_eq!(allocator.port(0, &[]), Err("range is full".to_owned()));
    }
}
