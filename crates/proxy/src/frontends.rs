//! The frontends of a Service: addresses and ports that clients connect to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use types::InvalidField;
use types::service::{Service, ServicePort, ServiceSpec};

use crate::viewpoint::Serving;
use crate::{Frontend, FrontendKind};

/// The addresses of a Service, of both families.
pub(crate) struct Addresses {
    cluster: Vec<IpAddr>,
    external: Vec<IpAddr>,
    load_balancer: Vec<IpAddr>,
    /// `loadBalancerSourceRanges`: the clients that may use the load balancer's addresses.
    ranges: Vec<IpNet>,
    /// Whether a range was invalid: then only the valid ones are allowed, even if there are none.
    unread_range: bool,
}

impl Addresses {
    pub(crate) fn of(service: &Service, serving: &Serving, errors: &mut Vec<InvalidField>) -> Self {
        let spec = &service.spec;
        let mut read = Reader { service, errors };
        let written = spec.cluster_ips.iter().chain(spec.cluster_ips.is_empty().then_some(&spec.cluster_ip));
        let cluster = read.all("spec.clusterIPs", "an address", written.map(String::as_str));
        let external = read.all("spec.externalIPs", "an address", spec.external_ips.iter().map(String::as_str));
        let mut addresses = Self { cluster, external, load_balancer: vec![], ranges: vec![], unread_range: false };
        if spec.kind == "LoadBalancer" && serving.load_balancers {
            // `ipMode: Proxy`: the load balancer terminates connections and opens new ones to NodePorts.
            let ingress = service.status.load_balancer.ingress.iter();
            let passed_on = ingress.map(|i| if i.ip_mode.as_deref() == Some("Proxy") { "" } else { i.ip.as_str() });
            addresses.load_balancer = read.all("status.loadBalancer.ingress", "an address", passed_on);
            let ranges = spec.load_balancer_source_ranges.iter().map(|text| text.trim());
            let before = read.errors.len();
            addresses.ranges =
                read.all("spec.loadBalancerSourceRanges", "a range of addresses such as 10.0.0.0/8", ranges);
            addresses.unread_range = read.errors.len() > before;
        }
        addresses
    }

    /// The clients that may use the load balancer's addresses of a family; ranges of the other family have no effect on
    /// it.
    fn clients(&self, ipv6: bool) -> Option<BTreeSet<IpNet>> {
        let ranges: BTreeSet<IpNet> =
            self.ranges.iter().filter(|range| range.addr().is_ipv6() == ipv6).map(IpNet::trunc).collect();
        (!ranges.is_empty() || self.unread_range).then_some(ranges)
    }
}

struct Reader<'a> {
    service: &'a Service,
    errors: &'a mut Vec<InvalidField>,
}

impl Reader<'_> {
    /// All values that can be parsed, and an error for each other one. Empty texts are skipped.
    fn all<'t, T: FromStr>(&mut self, field: &str, what: &str, texts: impl Iterator<Item = &'t str>) -> Vec<T> {
        let mut read = Vec::new();
        for (n, text) in texts.enumerate().filter(|(_, text)| !text.is_empty()) {
            match text.parse() {
                Ok(value) => read.push(value),
                Err(_) => self.errors.push(InvalidField {
                    kind: "Service",
                    name: self.service.metadata.object_name(),
                    field: format!("{field}[{n}]"),
                    problem: format!("`{text}` is not {what}"),
                }),
            }
        }
        read
    }
}

/// The frontends of a port in one family; none if the Service has no cluster IP of that family.
pub(crate) fn frontends(spec: &ServiceSpec, port: &ServicePort, addresses: &Addresses, ipv6: bool) -> Box<[Frontend]> {
    let of_family = |ip: &&IpAddr| ip.is_ipv6() == ipv6;
    let (internal, external) = (spec.internal_traffic_policy == "Local", spec.external_traffic_policy == "Local");
    // Keyed by what a client sees: an address that is both an external IP and the load balancer's is one frontend, with
    // the ranges.
    let mut frontends = BTreeMap::new();
    let mut add = |kind, number, local_only, clients| _ = frontends.insert((kind, number), (local_only, clients));
    for ip in addresses.cluster.iter().filter(of_family) {
        add(FrontendKind::ClusterIp(*ip), port.port, internal, None);
    }
    if !addresses.cluster.iter().any(|ip| of_family(&ip)) {
        return Box::default();
    }
    for ip in addresses.external.iter().filter(of_family) {
        add(FrontendKind::External(*ip), port.port, external, None);
    }
    for ip in addresses.load_balancer.iter().filter(of_family) {
        add(FrontendKind::External(*ip), port.port, external, addresses.clients(ipv6));
    }
    if port.node_port != 0 {
        add(FrontendKind::NodePort { ipv6 }, port.node_port, external, None);
    }
    let frontend = |((kind, port), (local_only, clients))| Frontend { kind, port, local_only, clients };
    frontends.into_iter().map(frontend).collect()
}
