//! Real TCP/IP stacks behind the switch: namespaces as Pods and as the host.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use pipeline::model::{Direction, FrontendKind, Mac};
use testkit::ovs::in_kernel;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};
use testkit::{Host, Netns, Nic, Ovs};

use super::objects::{TARGET, isolate, local, local6};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::switch::BRIDGE;
use super::world::{A, B, End, HAIRPIN, HOST, SNAT, VIRTUAL, at, usual};
use crate::client::{Client, add, put_group};
use crate::cluster::{Cluster, Service};

pub(super) const SHORT: Duration = Duration::from_millis(300);

pub(super) fn attach(ovs: &Ovs, end: End, ofport: u16, gateways: &[&str]) -> Host {
    let Mac(mac) = end.mac;
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let addresses = [format!("{}/24", end.ip), format!("{}/64", end.ip6)];
    let addresses = [&addresses[0][..], &addresses[1][..]];
    Host::attach(ovs, BRIDGE, &Nic { port: end.port, ofport, mac: &mac, addresses: &addresses, gateways }).unwrap()
}

pub(super) fn install(client: &mut Client, cluster: &Cluster) {
    let groups: Vec<_> = cluster.groups().values().map(put_group).collect();
    let flows: Vec<_> = cluster.flows().values().map(add).collect();
    client.done(groups.iter().chain(&flows));
}

/// A connection, and the client's address as the server sees it.
pub(super) fn connect(client: &Host, server: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream, IpAddr) {
    let near = client.tcp_connect(to, TIMEOUT).unwrap();
    let (far, seen) = server.accept().unwrap();
    far.set_read_timeout(Some(TIMEOUT)).unwrap();
    (near, far, seen.ip())
}

/// Sends a megabyte in both directions.
pub(super) fn exchange(near: &TcpStream, far: &TcpStream) {
    let data = vec![0x5a; 1 << 20];
    for (mut from, mut to) in [(near, far), (far, near)] {
        thread::scope(|scope| {
            scope.spawn(|| from.write_all(&data).unwrap());
            let mut got = vec![0; data.len()];
            to.read_exact(&mut got).unwrap();
            assert_eq!(got, data);
        });
    }
}

/// Marks packets of the host, which identifies them on the kernel's datapath. A mark of the host itself, as a Node sets it, would
/// be lost on the way between the namespaces.
pub(super) fn mark_host(switch: &Netns) {
    let hook = format!("type filter hook ingress device \"{}\" priority 0;", HOST.port);
    let rules = format!("table netdev host {{ chain gw {{ {hook} meta mark set 1; }}; }}");
    run(switch.command("nft").args(["-f", "-"]), Some(&rules)).unwrap();
}

#[test]
fn real_tcp_stacks_resolve_addresses_use_services_and_obey_policies() {
    let netns = Netns::new().unwrap();
    let ovs = Ovs::start_in(&netns).unwrap();
    ovs.add_bridge(BRIDGE).unwrap();
    let mut client = Client::connect(&ovs, BRIDGE);
    let gateways = [&HOST.ip.to_string()[..], &HOST.ip6.to_string()];
    let (a, b) = (attach(&ovs, A, 3, &gateways), attach(&ovs, B, 4, &gateways));
    let host = attach(&ovs, HOST, 2, &[]);
    if in_kernel() {
        mark_host(&netns);
    }
    host.netns().ip(["route", "add", &VIRTUAL.to_string(), "dev", "eth0"]).unwrap();
    host.netns().ip(["route", "add", "10.96.0.0/16", "via", &VIRTUAL.to_string(), "dev", "eth0"]).unwrap();

    let mut cluster = usual();
    cluster.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]));
    cluster.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)]));
    let mut itself = Service::of(BY_CLUSTER_IP, 81, &[local(A)]);
    (itself.groups[0].id, itself.frontends[0].group) = (2, Some(2));
    cluster.services.push(itself);
    let service6 = "fd00:96::10".parse().unwrap();
    let mut over_ipv6 = Service::of(FrontendKind::ClusterIp(service6), 80, &[local6(B)]);
    (over_ipv6.groups[0].id, over_ipv6.frontends[0].group) = (3, Some(3));
    cluster.services.push(over_ipv6);
    let mut without_endpoints = Service::of(BY_CLUSTER_IP, 53, &[local(B)]).udp();
    (without_endpoints.groups[0].id, without_endpoints.frontends[0].group) = (4, Some(4));
    cluster.services.push(without_endpoints);
    install(&mut client, &cluster);

    for address in [B.ip, B.ip6, HOST.ip, HOST.ip6] {
        a.ping(address).unwrap();
    }
    host.ping(B.ip6).unwrap();

    let server = b.tcp_listen(("0.0.0.0", TARGET)).unwrap();
    let (near, far, seen) = connect(&a, &server, at(CLUSTER_IP, 80));
    assert_eq!(seen, A.ip);
    exchange(&near, &far);
    assert_eq!(connect(&host, &server, at(CLUSTER_IP, 80)).2, HOST.ip);
    assert_eq!(connect(&host, &server, at(VIRTUAL, NODE_PORT)).2, SNAT);
    let own = a.tcp_listen(("0.0.0.0", TARGET)).unwrap();
    assert_eq!(connect(&a, &own, at(CLUSTER_IP, 81)).2, HAIRPIN);
    drop(server);
    // A process that another test starts may have the closed socket until it executes its program.
    let server = until("the port is free", TIMEOUT, || b.tcp_listen(("::", TARGET)).ok()).unwrap();
    assert_eq!(connect(&a, &server, at(service6, 80)).2, A.ip6);

    // No listener: the ICMP error returns through NAT.
    let udp = a.udp_bind("0.0.0.0:0").unwrap();
    udp.connect(at(CLUSTER_IP, 53)).unwrap();
    let refused = || {
        let _ = udp.send(b"probe");
        udp.set_read_timeout(Some(SHORT)).unwrap();
        udp.recv(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then_some(())
    };
    until("the error", TIMEOUT, refused).unwrap();

    isolate(&mut cluster, Direction::Ingress, B);
    install(&mut client, &cluster);
    let late = || match a.tcp_connect(at(CLUSTER_IP, 80), SHORT) {
        Ok(_) => None,
        Err(error) => Some(error.kind()),
    };
    assert_eq!(until("isolation", TIMEOUT, late).unwrap(), ErrorKind::TimedOut);
    exchange(&near, &far);
    connect(&host, &server, at(B.ip, TARGET));
}
