//! The conformance tests of Kubernetes for Services that need no cloud and are not part of the matrix.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::process::run;
use testkit::wait::until;

use super::world::{World, connect, connect_within};
use super::{place, service, set_ingress};
use crate::lab::TIMEOUT;

impl World {
    fn patch(&self, name: &str, patch: &Value) {
        let services: Api<Service> = Api::namespaced(self.api.client.clone(), "default");
        self.api.wait(services.patch(name, &PatchParams::default(), &Patch::Merge(patch))).unwrap();
    }

    fn cluster_ip(&self, name: &str, port: u16) -> SocketAddr {
        let address = service(&self.api, name)["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        SocketAddr::new(address, port)
    }

    /// Waits until new connections get to one of these servers only, and to all of them.
    fn until_leads(&self, from: &Netns, to: SocketAddr, servers: &[u16]) {
        let expected: BTreeSet<u16> = servers.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let leads = || {
            seen = (0..20 * expected.len()).filter_map(|_| connect(from, to).ok()).map(|(port, _)| port).collect();
            (seen == expected).then_some(())
        };
        let found = until(format_args!("connections to {to}"), TIMEOUT, leads);
        found.unwrap_or_else(|error| panic!("{error:#}: not {expected:?} but {seen:?}"));
    }

    /// Waits until connections are refused or time out.
    fn until_unserved(&self, from: &Netns, to: SocketAddr) {
        let unserved = || connect_within(from, to, Duration::from_millis(700)).is_err().then_some(());
        until(format_args!("the end of {to}"), TIMEOUT, unserved).unwrap();
    }
}

#[test]
fn services_can_change_type_ports_affinity_and_proxy() {
    let world = World::start("conformance", 3);
    let outside = place(&world.lab, "outside");
    // A name of somewhere else becomes a Service, and a NodePort, and a name again.
    let spec = json!({"type": "ExternalName", "externalName": "example.com"});
    world.api.apply("v1", "Service", "web", json!({"spec": spec}));
    world.set("web", "TCP", &[7000]);
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    world.patch("web", &json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": ports}}));
    let web = world.cluster_ip("web", 80);
    world.until_leads(&world.client, web, &[7000]);
    world.patch("web", &json!({"spec": {"type": "NodePort"}}));
    let node_port = service(&world.api, "web")["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let at_node = SocketAddr::new("192.168.1.11".parse().unwrap(), node_port.try_into().unwrap());
    world.until_leads(&outside, at_node, &[7000]);
    world.patch("web", &json!({"spec": {"type": "ClusterIP", "ports": ports}}));
    world.until_unserved(&outside, at_node);
    world.until_leads(&world.client, web, &[7000]);

    // Each port has its own endpoints.
    world.api.apply(
        "v1",
        "Service",
        "two",
        json!({"spec": {"ports": [
            {"name": "a", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 81, "protocol": "TCP"},
        ]}}),
    );
    for (name, port) in [("a", 7001), ("b", 7002)] {
        let mut slice = world.servers.slices("two", "TCP", &[port]).remove(0);
        slice["ports"][0]["name"] = json!(name);
        world.put(&slice);
    }
    world.until_leads(&world.client, world.cluster_ip("two", 80), &[7001]);
    world.until_leads(&world.client, world.cluster_ip("two", 81), &[7002]);

    // Affinity can be switched on and off.
    world.set("web", "TCP", &[7000, 7001, 7002]);
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);
    world.patch("web", &json!({"spec": {"sessionAffinity": "ClientIP"}}));
    let sticks = || {
        let seen: BTreeSet<u16> = (0..20).map(|_| connect(&world.client, web).unwrap().0).collect();
        (seen.len() == 1).then_some(())
    };
    until("affinity", TIMEOUT, sticks).unwrap();
    world.patch("web", &json!({"spec": {"sessionAffinity": "None"}}));
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);

    // Another proxy's Service is not ours, until it is again.
    let label = |name: Value| json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": name}}});
    world.patch("web", &label(json!("another")));
    world.until_unserved(&world.client, web);
    world.patch("web", &label(Value::Null));
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);

    // One that is about to end is used while there is no other.
    let condition = |port: u16, ready: bool| {
        let mut slice = world.servers.slices("web", "TCP", &[port]).remove(0);
        slice["endpoints"][0]["conditions"] = json!({"ready": ready, "serving": true, "terminating": !ready});
        world.put(&slice);
    };
    condition(7000, false);
    world.until_leads(&world.client, web, &[7001, 7002]);
    condition(7001, false);
    condition(7002, false);
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);
    condition(7001, true);
    world.until_leads(&world.client, web, &[7001]);

    // Clients use endpoints of their zone if all endpoints have hints; clients without a zone use any.
    let zone = |node: &str, zone: Value| {
        let nodes: Api<Node> = Api::all(world.api.client.clone());
        let label = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        world.api.wait(nodes.patch(node, &PatchParams::default(), &Patch::Merge(&label))).unwrap();
    };
    let hint = |port: u16, zone: &str| {
        let mut slice = world.servers.slices("web", "TCP", &[port]).remove(0);
        slice["endpoints"][0]["hints"] = json!({"forZones": [{"name": zone}]});
        world.put(&slice);
    };
    zone("node-1", json!("a"));
    for (port, zone) in [(7000, "a"), (7001, "b"), (7002, "a")] {
        hint(port, zone);
    }
    world.until_leads(&world.client, web, &[7000, 7002]);
    zone("node-1", json!("b"));
    world.until_leads(&world.client, web, &[7001]);
    zone("node-1", Value::Null);
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);
    zone("node-1", json!("b"));
    world.until_leads(&world.client, web, &[7001]);
    world.set("web", "TCP", &[7000]);
    world.until_leads(&world.client, web, &[7000, 7001, 7002]);
}

#[test]
fn source_ranges_restrict_the_clients_of_a_load_balancer() {
    let world = World::start("ranges", 1);
    let (outside, router) = (place(&world.lab, "outside"), place(&world.lab, "router"));
    run(router.command("ip").args(["route", "add", "192.0.2.0/24", "via", "192.168.1.11"]), None).unwrap();
    let ranges = |ranges: &[&str]| json!({"spec": {"loadBalancerSourceRanges": ranges}});
    world.service("web", "TCP", json!({"type": "LoadBalancer"}), 1);
    set_ingress(&world.api, "web", &["192.0.2.1".parse().unwrap()]);
    let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
    world.until_leads(&outside, to, &[7000]);
    world.patch("web", &ranges(&["10.10.0.0/16"]));
    world.until_unserved(&outside, to);
    world.until_leads(&world.client, to, &[7000]);
    world.patch("web", &ranges(&["203.0.113.0/24"]));
    world.until_leads(&outside, to, &[7000]);
    world.until_unserved(&world.client, to);
}
