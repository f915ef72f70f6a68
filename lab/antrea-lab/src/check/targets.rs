//! Sources and targets of the connectivity check, from the objects of the cluster. Pure.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Pod, Service};

use super::matrix::Party;
use super::trial::Probe;
use crate::plan::{OUTSIDE, Plan};

/// The network namespace of a source or target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Namespace and name of the Pod, and its Node.
    Pod(String, String, String),
    Node(String),
    Outside,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) party: Party,
    pub(crate) place: Place,
}

/// A target and its probes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) party: Party,
    /// Its own location, if it is a source too.
    pub(crate) place: Option<Place>,
    pub(crate) probes: Vec<Probe>,
}

/// All sources and all targets of a lab.
pub(crate) fn all(plan: &Plan, pods: &[Pod], services: &[Service]) -> (Vec<Source>, Vec<Target>) {
    let pods: Vec<_> = pods.iter().filter_map(pod).collect();
    let mut sources: Vec<_> =
        pods.iter().map(|(party, place, _)| Source { party: party.clone(), place: place.clone() }).collect();
    let party = |group: &str, name: &str, detail: String| Party { group: group.into(), name: name.into(), detail };
    if let Some(node) = plan.nodes.first() {
        let party = party("node", &node.name, node.ipv4.to_string());
        sources.push(Source { party, place: Place::Node(node.name.clone()) });
    }
    sources.push(Source { party: party("outside", "client", String::new()), place: Place::Outside });

    let mut targets: Vec<_> =
        pods.into_iter().map(|(party, place, probes)| Target { party, place: Some(place), probes }).collect();
    targets.extend(services.iter().flat_map(|one| service(plan, one)));
    let outside = [IpAddr::from(OUTSIDE.0), IpAddr::from(OUTSIDE.1)];
    targets.push(Target {
        party: party("outside", "server", format!("tcp {}:80", OUTSIDE.0)),
        place: Some(Place::Outside),
        probes: outside.map(|address| Probe::Tcp(SocketAddr::new(address, 80))).to_vec(),
    });
    (sources, targets)
}

fn pod(pod: &Pod) -> Option<(Party, Place, Vec<Probe>)> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    if status.phase.as_deref() != Some("Running") || spec.host_network == Some(true) {
        return None;
    }
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, node) = (word(&pod.metadata.namespace), word(&pod.metadata.name), word(&spec.node_name));
    let addresses = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse::<IpAddr>().ok());
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port = ports.clone().find(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let port = port.and_then(|port| u16::try_from(port.container_port).ok());
    let probe = |address| match port {
        Some(port) => Probe::Tcp(SocketAddr::new(address, port)),
        None => Probe::Ping(address),
    };
    let how = port.map_or_else(|| "ping".to_owned(), |port| format!("tcp {port}"));
    let detail = format!("{how} on {node}");
    let party = Party { group: namespace.clone(), name: name.clone(), detail };
    Some((party, Place::Pod(namespace, name, node), addresses.map(probe).collect()))
}

/// A Service at its ClusterIPs, and at its node port if it has one.
fn service(plan: &Plan, service: &Service) -> Vec<Target> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = format!("{}.{}", word(&service.metadata.name), word(&service.metadata.namespace));
    let Some(port) = spec.ports.iter().flatten().find(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP") else {
        return Vec::new();
    };
    let target = |kind: &str, detail: String, probes: Vec<Probe>| {
        let party = Party { group: kind.to_owned(), name: name.clone(), detail };
        (!probes.is_empty()).then_some(Target { party, place: None, probes })
    };
    let at = |addresses: Vec<IpAddr>, port: i32| -> Vec<Probe> {
        let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else { return Vec::new() };
        addresses.into_iter().map(|address| Probe::Tcp(SocketAddr::new(address, port))).collect()
    };
    let own = spec.cluster_ips.iter().flatten().filter_map(|address| address.parse().ok()).collect();
    let node: Vec<IpAddr> = plan.nodes.first().map(|node| node.ipv4.into()).into_iter().collect();
    let node_port = port.node_port.unwrap_or_default();
    let detail = format!("tcp {}:{}", word(&spec.cluster_ip), port.port);
    let node_detail = format!("tcp {}:{node_port}", node.first().map(ToString::to_string).unwrap_or_default());
    let cluster = target("service", detail, at(own, port.port));
    cluster.into_iter().chain(target("nodeport", node_detail, at(node, node_port))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use types::network::{Mode, Tunnel};

    use crate::plan::{Kubernetes, Network};

    #[test]
    fn all_addresses_of_pods_services_node_ports_and_the_outside_are_targets() {
        let plan = Plan::new("t", 1, Mode::Encap, Tunnel::Geneve, Kubernetes::Embedded, Network::Antrea);
        let pod = |name: &str, phase: &str, ports: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"nodeName": "node-1", "containers": [{"name": "c", "ports": ports}]},
                "status": {"phase": phase, "podIPs": [{"ip": "10.10.1.2"}, {"ip": "fd00::2"}]},
            }))
            .unwrap()
        };
        let pods = [
            pod("web", "Running", json!([{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80}])),
            pod("idle", "Running", json!([])),
            pod("over", "Succeeded", json!([])),
        ];
        let service = |value| serde_json::from_value::<Service>(value).unwrap();
        let services = [
            service(json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1"], "ports": [{"port": 8080, "nodePort": 30000}]}})),
            service(json!({"metadata": {"name": "headless", "namespace": "n"}, "spec": {"clusterIP": "None",
                "clusterIPs": ["None"], "ports": [{"port": 80}]}})),
        ];
        let (sources, targets) = all(&plan, &pods, &services);
        let names: Vec<_> = sources.iter().map(|source| source.party.name.as_str()).collect();
        assert_eq!(names, ["web", "idle", "node-1", "client"]);
        let shown: Vec<_> = targets
            .iter()
            .map(|target| (target.party.group.as_str(), target.party.name.as_str(), target.probes.len()))
            .collect();
        assert_eq!(
            shown,
            [
                ("n", "web", 2),
                ("n", "idle", 2),
                ("service", "web.n", 1),
                ("nodeport", "web.n", 1),
                ("outside", "server", 2)
            ]
        );
        assert_eq!(targets[0].probes[0], Probe::Tcp("10.10.1.2:80".parse().unwrap()));
        assert_eq!(targets[1].probes[1], Probe::Ping("fd00::2".parse().unwrap()));
    }
}
