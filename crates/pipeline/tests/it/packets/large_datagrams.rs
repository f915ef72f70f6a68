//! Large UDP datagrams between real TCP/IP stacks, which send them as fragments.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use pipeline::model::FrontendKind;
use testkit::ovs::in_kernel;
use testkit::wait::TIMEOUT;
use testkit::{Host, Netns, Ovs};

use super::kernel::{SHORT, attach, install, mark_host};
use super::objects::{TARGET, local, local6};
use super::services::{BY_CLUSTER_IP, BY_EXTERNAL_IP, BY_NODE_PORT, CLUSTER_IP, EXTERNAL_IP, NODE_PORT};
use super::switch::BRIDGE;
use super::world::{A, B, C, HOST, VIRTUAL, at, usual};
use crate::client::Client;
use crate::cluster::Service;

/// The largest is one of 32 fragments.
const SIZES: [usize; 4] = [1_400, 4_000, 8_000, 46_000];

/// A server with one address and port of an endpoint, for IPv4 and IPv6.
struct Server(UdpSocket);

impl Server {
    fn on(host: &Host) -> Self {
        Self(host.udp_bind(("::", TARGET)).unwrap())
    }

    /// Whether a datagram of this size and its echo pass, from a new port of the client.
    fn echoes(&self, client: &Host, to: SocketAddr, size: usize) -> bool {
        let own = client.udp_bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap();
        own.connect(to).unwrap();
        let datagram: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[0]).collect();
        own.send(&datagram).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let Ok((length, from)) = self.0.recv_from(&mut buffer) else { return false };
        assert_eq!(buffer[..length], datagram);
        self.0.send_to(&datagram, from).unwrap();
        let length = own.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], datagram);
        true
    }
}

#[test]
fn large_datagrams_reach_services_and_the_answers_return() {
    let netns = Netns::new().unwrap();
    let ovs = Ovs::start_in(&netns).unwrap();
    ovs.add_bridge(BRIDGE).unwrap();
    let mut switch = Client::connect(&ovs, BRIDGE);
    let gateways = [&HOST.ip.to_string()[..], &HOST.ip6.to_string()];
    let [a, b, c] = [(A, 3), (B, 4), (C, 5)].map(|(end, port)| attach(&ovs, end, port, &gateways));
    let host = attach(&ovs, HOST, 2, &[]);
    if in_kernel() {
        mark_host(&netns);
    }
    host.netns().ip(["route", "add", &VIRTUAL.to_string(), "dev", "eth0"]).unwrap();
    for net in ["10.96.0.0/16", "198.51.100.0/24"] {
        host.netns().ip(["route", "add", net, "via", &VIRTUAL.to_string(), "dev", "eth0"]).unwrap();
    }

    let service6: IpAddr = "fd00:96::10".parse().unwrap();
    let by_service6 = FrontendKind::ClusterIp(service6);
    let services = [
        (BY_CLUSTER_IP, 53, local(B)),
        (BY_CLUSTER_IP, 54, local(C)),
        (BY_NODE_PORT, NODE_PORT, local(B)),
        (BY_NODE_PORT, NODE_PORT + 1, local(C)),
        (BY_EXTERNAL_IP, 53, local(B)),
        (by_service6, 53, local6(B)),
        (by_service6, 54, local6(C)),
    ];
    let mut cluster = usual();
    for (id, (kind, port, endpoint)) in (1..).zip(services) {
        let mut service = Service::of(kind, port, &[endpoint]).udp();
        (service.groups[0].id, service.frontends[0].group) = (id, Some(id));
        cluster.services.push(service);
    }
    install(&mut switch, &cluster);
    for pod in [B.ip, C.ip, B.ip6, C.ip6] {
        a.ping(pod).unwrap();
    }

    let (by_b, by_c) = (Server::on(&b), Server::on(&c));
    for size in SIZES {
        let calls = [
            (&a, &by_b, at(CLUSTER_IP, 53)),
            (&a, &by_c, at(CLUSTER_IP, 54)),
            (&a, &by_c, at(service6, 54)),
            (&a, &by_b, at(service6, 53)),
            (&a, &by_b, at(HOST.ip, NODE_PORT)),
            (&a, &by_b, at(EXTERNAL_IP, 53)),
            (&host, &by_b, at(CLUSTER_IP, 53)),
            (&host, &by_c, at(VIRTUAL, NODE_PORT + 1)),
            (&host, &by_b, at(EXTERNAL_IP, 53)),
        ];
        for (client, server, to) in calls {
            assert!(server.echoes(client, to, size), "{size} bytes to {to}");
        }
    }

    // With more than 32 fragments, the userspace datapath loses the rest, whether or not a Service is involved.
    let direct = B.at(TARGET);
    by_b.0.set_read_timeout(Some(if in_kernel() { TIMEOUT } else { SHORT })).unwrap();
    assert_eq!(by_b.echoes(&a, direct, 60_000), in_kernel(), "60,000 bytes to {direct}");
    assert_eq!(by_b.echoes(&a, at(CLUSTER_IP, 53), 60_000), in_kernel(), "60,000 bytes to a Service");
}
