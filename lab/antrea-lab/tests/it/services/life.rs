//! Services in use: load balancing, session affinity, removed endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::json;
use testkit::wait::until;

use super::world::{World, answered_by, ask, ask_with, connect, connect_within, times, udp_socket, udp_socket_at};
use super::{place, service, set_ingress};
use crate::lab::TIMEOUT;

/// Whether counts are as even as chance would have it: no more than `sigmas` from the mean.
fn assert_even(counts: &BTreeMap<u16, usize>, of: usize, sigmas: f64) {
    let (total, share) = (counts.values().sum::<usize>() as f64, 1.0 / of as f64);
    let (mean, sigma) = (total * share, (total * share * (1.0 - share)).sqrt());
    println!("{total} connections, {mean:.0} +- {sigma:.1} each: {:?}", counts.values().collect::<Vec<_>>());
    assert_eq!(counts.len(), of, "{counts:?}");
    let worst = counts.values().map(|count| (*count as f64 - mean).abs() / sigma).fold(0.0, f64::max);
    assert!(worst <= sigmas, "{worst:.1} sigma from the mean: {counts:?}");
}

#[test]
fn connections_are_balanced_and_session_affinity_keeps_the_endpoint() {
    let world = World::start("spread", 10);
    let connections = times("CONNECTIONS", 2000);
    let tcp = world.service("tcp", "TCP", json!({}), 10);
    let udp = world.service("udp", "UDP", json!({}), 10);
    let mut counts = BTreeMap::new();
    for _ in 0..connections {
        *counts.entry(connect(&world.client, tcp).unwrap().0).or_insert(0) += 1;
    }
    assert_even(&counts, 10, 4.5);
    let mut counts = BTreeMap::new();
    // A port that comes again would be no new connection.
    for port in (20_000..).take(connections) {
        *counts.entry(answered_by(&udp_socket_at(&world.client, port, udp))).or_insert(0) += 1;
    }
    assert_even(&counts, 10, 4.5);

    // The endpoint that this client got, while others go and come and the agent is killed.
    let affinity = |seconds: u32| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
    let sticky = world.service("sticky", "TCP", affinity(600), 10);
    let by = || connect(&world.client, sticky).unwrap().0;
    // Until the switch has revalidated its datapath flows, a second connection may be balanced like the first: see docs/services.md.
    let is_kept = || Some(by()).filter(|now| (0..20).all(|_| by() == *now));
    let kept = until("an endpoint that is kept", TIMEOUT, is_kept).unwrap();
    let stays = |what: &str| {
        for _ in 0..20 {
            assert_eq!(connect(&world.client, sticky).unwrap().0, kept, "{what}");
        }
    };
    stays("at once");
    let others: Vec<u16> = world.servers.ports.iter().copied().filter(|port| *port != kept).collect();
    others[..5].iter().for_each(|port| world.remove("sticky", *port));
    stays("while others go");
    world.set("sticky", "TCP", &others[..5]);
    stays("while others come");
    world.kill_agent("node-1");
    stays("while the agent is dead");
    world.until_agent_is_back("node-1");
    stays("after a restart of the agent");
    // Another Service still has it, which is no reason to keep it.
    world.remove("sticky", kept);
    // The switch learns with a delay, when it updates statistics: a packet to the old endpoint may be learned last.
    let moved = || Some(by()).filter(|now| *now != kept && (0..20).all(|_| by() == *now));
    let now = until("another endpoint, for good", TIMEOUT, moved).unwrap();
    world.set("sticky", "TCP", &[kept]);
    for _ in 0..20 {
        assert_eq!(by(), now, "it keeps its new one");
    }
    // It is forgotten after its time, though it comes again and again.
    let brief = world.service("brief", "TCP", affinity(1), 10);
    let first = connect(&world.client, brief).unwrap().0;
    until("another endpoint", TIMEOUT, || (connect(&world.client, brief).unwrap().0 != first).then_some(())).unwrap();
}

#[test]
fn datagrams_of_one_client_move_to_another_endpoint_when_theirs_is_removed() {
    let world = World::start("datagrams", 3);
    let outside = place(&world.lab, "outside");
    let at = world.service("dns", "UDP", json!({"type": "NodePort"}), 2);
    let node_port =
        u16::try_from(service(&world.api, "dns")["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).unwrap();
    let node = place(&world.lab, "node-1");
    let at_node = format!("192.168.1.11:{node_port}").parse().unwrap();
    let clients = [("a Pod", &world.client, at), ("its Node", &node, at), ("outside", &outside, at_node)];
    // Connections that begin with fragments.
    for (who, from, to) in clients {
        for size in [2_000, 8_000] {
            let large = || ask_with(&udp_socket(from, to), size).ok();
            until(format_args!("an answer to {size} bytes from {who}"), TIMEOUT, large).unwrap();
        }
    }
    let clients = clients.map(|(who, from, to)| (who, udp_socket(from, to)));
    for (who, socket) in &clients {
        let gone = answered_by(socket);
        assert_eq!(answered_by(socket), gone, "{who}: a connection has one endpoint");
        world.remove("dns", gone);
        let moved = || ask(socket).ok().filter(|port| *port != gone);
        until(format_args!("another endpoint for {who}"), TIMEOUT, moved).unwrap();
        world.set("dns", "UDP", &[gone]);
    }
    // The endpoint is removed while the client is idle.
    let (_, socket) = &clients[0];
    let gone = answered_by(socket);
    let old = world.lab.pid("node-1", "antrea-agent");
    world.kill_agent("node-1");
    world.remove("dns", gone);
    until("another agent", TIMEOUT, || world.lab.pid("node-1", "antrea-agent").filter(|pid| Some(*pid) != old))
        .unwrap();
    until("another endpoint", TIMEOUT, || ask(socket).ok().filter(|port| *port != gone)).unwrap();
    // A client that sends before there is an endpoint is served when there is one.
    for port in world.servers.ports.iter().filter(|port| **port != gone).take(1) {
        world.remove("dns", *port);
    }
    let refused =
        || ask(&udp_socket(&world.client, at)).err().filter(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    until("a refusal", TIMEOUT, refused).unwrap();
    let early = udp_socket(&world.client, at);
    assert!(ask(&early).is_err());
    world.set("dns", "UDP", &[7002]);
    assert_eq!(answered_by(&early), 7002);
}

#[test]
fn a_client_that_connects_before_the_service_exists_is_served_afterwards() {
    let world = World::start("early", 1);
    // The route to Services covers all addresses between the first and the last. Without it the Node would reply with an ICMP error.
    world.service("far", "TCP", json!({"clusterIP": "10.96.255.1"}), 1);
    let route =
        || world.lab.node("node-1", &["ip", "route", "get", "10.96.77.1"]).ok().filter(|to| to.contains("antrea-gw0"));
    until("a route to Services that do not exist yet", TIMEOUT, route).unwrap();
    let tracked = || world.lab.node("node-1", &["ovs-appctl", "dpctl/dump-conntrack"]).unwrap();
    let is_served = |number: u8| {
        let (name, at) = (format!("web-{number}"), SocketAddr::from(([10, 96, 77, number], 80)));
        world.set(&name, "TCP", &[7000]);
        let got = std::thread::scope(|scope| {
            // One packet is sent again after a second, and then ever more seldom: it is not a new connection that gets there.
            let early = scope.spawn(|| connect_within(&world.client, at, TIMEOUT).map(|(port, _)| port));
            let begun = || tracked().contains(&format!("dst={},", at.ip())).then_some(());
            until("a connection that began", TIMEOUT, begun).unwrap();
            world.api.apply("v1", "Service", &name, json!({"spec": {"clusterIP": at.ip(), "ports": [{"port": 80}]}}));
            early.join().unwrap().unwrap()
        });
        assert_eq!(got, 7000);
        // The Node may also forward it, with the address of the Node as the source.
        !tracked().contains(&format!("reply=(src={},", at.ip()))
    };
    // A packet that is sent again just before the first is forgotten takes the detour.
    assert!((1..=5).any(is_served), "{}", tracked());
}

#[test]
fn health_check_node_ports_report_which_nodes_have_endpoints() {
    let world = World::start("health", 2);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    world.service("web", "TCP", spec, 2);
    set_ingress(&world.api, "web", &["192.0.2.1".parse().unwrap()]);
    let port = service(&world.api, "web")["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let status = |node: &str, url: &str| {
        world
            .lab
            .node("outside", &["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5", url])
            .unwrap_or_else(|error| format!("{node}: {error}"))
    };
    let asked = |address: &str, port: u64| status(address, &format!("http://{address}:{port}/healthz"));
    let is = |address: &str, port: u64, code: &str| {
        until(format_args!("{code} of {address}:{port}"), TIMEOUT, || (asked(address, port) == code).then_some(()))
            .unwrap();
    };
    is("192.168.1.12", port, "200");
    is("192.168.1.11", port, "503");
    is("192.168.1.11", 10256, "200");
    world.servers.ports.iter().for_each(|port| world.remove("web", *port));
    is("192.168.1.12", port, "503");
}
