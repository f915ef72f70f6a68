//! Our nftables rules: drift, address translation, marks.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};

use host::{Kernel, diff, nft};
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, veth_pair};
use types::host::{Desired, Firewall, Guard, NodePort, Op, PolicyOnly, SwitchTunnel, Virtual};
use types::meta::Protocol;
use types::network::TunnelPackets;

fn node_port(ip: &str, port: u16) -> NodePort {
    NodePort { ip: ip.parse().unwrap(), protocol: Protocol::Tcp, port }
}

pub(crate) fn firewall() -> Firewall {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<_>>();
    Firewall {
        gateway: "antrea-gw0".into(),
        masquerade: nets(&["10.10.0.0/24", "fd00:10::/64"]),
        cluster: nets(&["10.10.0.0/24", "10.10.1.0/24", "10.10.0.0/16", "fd00:10::/64"]),
        random_ports: true,
        node_ports: ["192.0.2.1", "127.0.0.1", "2001:db8::1"].map(|ip| node_port(ip, 30001)).into(),
        virtual_service: Virtual { v4: "169.254.0.253".parse().ok(), v6: "fc01::aabb:ccdd".parse().ok() },
        tunnel_ports: [6081, 4789].into(),
        switch_tunnel: None,
        host_mark: Some(1),
        policy_only: None,
        guard: Guard {
            bridged: nets(&["10.10.0.0/24", "fd00:10::/64"]),
            routed: nets(&["10.10.1.0/24"]),
            transport: "uplink".into(),
            nodes: ["192.0.2.1", "192.0.2.2", "2001:db8::2"].map(|ip| ip.parse().unwrap()).into(),
        },
    }
}

/// A tunnel of the userspace datapath, on `uplink`.
pub(crate) fn switch_tunnel(packets: TunnelPackets) -> Option<SwitchTunnel> {
    Some(SwitchTunnel { device: "uplink".into(), packets })
}

pub(crate) fn replace(node: &Netns, firewall: &Firewall) {
    node.run(|| nft::replace(firewall)).unwrap().unwrap();
}

fn list(node: &Netns) -> String {
    run(node.command("nft").args(["list", "ruleset"]), None).unwrap()
}

#[test]
fn nft_accepts_every_kind_of_rule() {
    let node = Netns::new().unwrap();
    let policy_only =
        PolicyOnly { services: ["10.0.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()].into(), mark: 0x800 };
    for firewall in [
        firewall(),
        Firewall { policy_only: Some(policy_only), ..firewall() },
        Firewall { gateway: "antrea-gw0".into(), ..Firewall::default() },
        Firewall { switch_tunnel: switch_tunnel(TunnelPackets::Udp(6081)), ..firewall() },
        Firewall { switch_tunnel: switch_tunnel(TunnelPackets::Gre), ..firewall() },
    ] {
        replace(&node, &firewall);
        let installed = node.run(nft::Ruleset::installed).unwrap().unwrap();
        assert_eq!(installed, Some(nft::Ruleset::expected(&firewall).unwrap()));
    }
}

#[test]
fn drift_is_repaired_and_foreign_rules_are_kept() {
    let node = Netns::new().unwrap();
    let theirs = "table inet theirs { chain c { type filter hook forward priority 0; policy accept; counter; }; }";
    run(node.command("nft").args(["-f", "-"]), Some(theirs)).unwrap();
    let before = list(&node);
    let desired = Desired { firewall: Some(firewall()), ..Desired::default() };
    let replaced = vec![Op::ReplaceFirewall(Box::new(firewall()))];
    node.run(|| {
        let mut kernel = Kernel::open().unwrap();
        let mut settle = || {
            let ops = diff(&desired, &kernel.observe(&desired).unwrap(), true);
            assert!(kernel.apply(&ops).is_empty());
            ops
        };
        assert_eq!(settle(), replaced);
        assert_eq!(settle(), []);
        let nft = |command: &str| {
            run(std::process::Command::new("nft").args(command.split(' ')), None).unwrap();
        };
        // A foreign table: no change.
        nft("add table inet other");
        assert_eq!(settle(), []);
        nft("delete table inet other");
        for drift in [
            "delete table inet antrea",
            "flush chain inet antrea nat-postrouting",
            "add element inet antrea cluster-pods { 10.99.0.0/16 }",
            "delete element inet antrea node-ports { 192.0.2.1 . tcp . 30001 }",
            "insert rule inet antrea nat-output accept",
            "add chain inet antrea more",
        ] {
            nft(drift);
            assert_eq!(settle(), replaced, "after {drift}");
            assert_eq!(settle(), [], "after {drift}");
        }
        // A new instance finds the rules intact.
        let mut again = Kernel::open().unwrap();
        assert_eq!(diff(&desired, &again.observe(&desired).unwrap(), true), []);
    })
    .unwrap();
    assert!(list(&node).contains(before.trim()));
    node.run(nft::remove).unwrap().unwrap();
    node.run(nft::remove).unwrap().unwrap();
    assert_eq!(list(&node), before);
}

#[test]
fn thousands_of_node_ports_are_one_transaction() {
    let node = Netns::new().unwrap();
    let node_ports = (0..5000).map(|port| node_port("192.0.2.1", 20000 + port)).collect();
    let firewall = Firewall { node_ports, ..firewall() };
    replace(&node, &firewall);
    let installed = node.run(nft::Ruleset::installed).unwrap().unwrap();
    assert_eq!(installed, Some(nft::Ruleset::expected(&firewall).unwrap()));
}

/// A Node between a Pod behind its gateway and the outside; the Pod's namespace also acts as the switch.
pub(crate) struct World {
    pub(crate) node: Netns,
    pub(crate) pods: Netns,
    pub(crate) outside: Netns,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { node: Netns::new().unwrap(), pods: Netns::new().unwrap(), outside: Netns::new().unwrap() };
        let Self { node, pods, outside } = &world;
        veth_pair(node, "antrea-gw0", pods, "eth0").unwrap();
        veth_pair(node, "uplink", outside, "eth0").unwrap();
        for (netns, link, addresses) in [
            (node, "antrea-gw0", ["10.10.0.1/24", "fd00:10::1/64"]),
            (pods, "eth0", ["10.10.0.2/24", "fd00:10::2/64"]),
            (node, "uplink", ["192.0.2.1/24", "2001:db8::1/64"]),
            (outside, "eth0", ["192.0.2.2/24", "2001:db8::2/64"]),
        ] {
            addresses.iter().for_each(|address| netns.add_address(link, address).unwrap());
            netns.link_up(link).unwrap();
        }
        // The switch answers for the virtual addresses of Services.
        pods.add_address("eth0", "169.254.0.253/32").unwrap();
        pods.add_address("eth0", "fc01::aabb:ccdd/128").unwrap();
        for (netns, route) in [
            (pods, "default via 10.10.0.1"),
            (pods, "default via fd00:10::1"),
            (node, "169.254.0.253 dev antrea-gw0"),
            (node, "fc01::aabb:ccdd dev antrea-gw0"),
        ] {
            netns.ip(["route", "add"].into_iter().chain(route.split(' '))).unwrap();
        }
        let set = |key: &str| fs::write(format!("/proc/sys/net/{key}"), "1").unwrap();
        let keys = ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/antrea-gw0/route_localnet"];
        node.run(|| keys.into_iter().for_each(set)).unwrap();
        replace(node, &firewall());
        world
    }
}

/// The client address that a server at `listen` in `server` sees when `client` connects to `to`.
fn seen(server: &Netns, listen: &str, client: &Netns, to: &str) -> String {
    let [listen, to]: [SocketAddr; 2] = [listen, to].map(|address| address.parse().unwrap());
    // A process that another test is just starting may hold the last listener for a moment.
    let bind = || server.run(|| TcpListener::bind(listen)).unwrap().ok();
    let listener = until(format!("{listen} to be free"), TIMEOUT, bind).unwrap();
    let connect = || TcpStream::connect_timeout(&to, TIMEOUT);
    let _stream = client.run(connect).unwrap().unwrap_or_else(|error| panic!("{to}: {error}"));
    listener.accept().unwrap().1.ip().to_string()
}

#[test]
fn connections_are_translated_as_documented() {
    let World { node, pods, outside } = World::new();
    // A Pod's connections to the outside come from the Node.
    assert_eq!(seen(&outside, "192.0.2.2:80", &pods, "192.0.2.2:80"), "192.0.2.1");
    assert_eq!(seen(&outside, "[2001:db8::2]:80", &pods, "[2001:db8::2]:80"), "2001:db8::1");
    // To another Node's Pods they keep their own address; only those have a route back.
    outside.add_address("lo", "10.10.1.2/32").unwrap();
    outside.ip(["route", "add", "10.10.0.0/24", "via", "192.0.2.1"]).unwrap();
    node.ip(["route", "add", "10.10.1.0/24", "via", "192.0.2.2"]).unwrap();
    assert_eq!(seen(&outside, "10.10.1.2:80", &pods, "10.10.1.2:80"), "10.10.0.2");
    // NodePorts are DNATed to the virtual address; from outside, the client's address is kept.
    pods.ip(["route", "add", "192.0.2.2", "via", "10.10.0.1"]).unwrap();
    assert_eq!(seen(&pods, "169.254.0.253:30001", &outside, "192.0.2.1:30001"), "192.0.2.2");
    assert_eq!(seen(&pods, "[fc01::aabb:ccdd]:30001", &outside, "[2001:db8::1]:30001"), "2001:db8::2");
    // From the Node itself, the gateway's address is used, for any NodePort address.
    assert_eq!(seen(&pods, "169.254.0.253:30001", &node, "192.0.2.1:30001"), "10.10.0.1");
    assert_eq!(seen(&pods, "169.254.0.253:30001", &node, "127.0.0.1:30001"), "10.10.0.1");
    // Packets that the switch returns with the virtual address leave with the Node's.
    pods.ip(["route", "replace", "192.0.2.2", "via", "10.10.0.1", "src", "169.254.0.253"]).unwrap();
    assert_eq!(seen(&outside, "192.0.2.2:81", &pods, "192.0.2.2:81"), "192.0.2.1");
    // Other ports are not translated.
    assert_eq!(seen(&node, "192.0.2.1:30002", &outside, "192.0.2.1:30002"), "192.0.2.2");
}

#[test]
fn tunnels_are_not_tracked_and_the_hosts_packets_to_pods_are_marked() {
    let World { node, outside: _outside, pods: _pods } = World::new();
    let watch = "table inet watch { chain c { type filter hook output priority 300; \
                 udp dport 6081 ct state untracked counter name \"untracked\"; udp dport 9999 ct state new counter name \"tracked\"; \
                 oifname \"antrea-gw0\" meta mark & 0x1 == 0x1 counter name \"marked\"; }; \
                 counter untracked { }; counter tracked { }; counter marked { }; }";
    run(node.command("nft").args(["-f", "-"]), Some(watch)).unwrap();
    let send = |to: &str| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"x", to).unwrap();
    };
    node.run(|| ["192.0.2.2:6081", "192.0.2.2:9999", "10.10.0.2:1"].into_iter().for_each(send)).unwrap();
    let counters = run(node.command("nft").args(["list", "counters", "table", "inet", "watch"]), None).unwrap();
    assert_eq!(counters.matches("packets 1 ").count(), 3, "{counters}");
}

#[test]
fn an_invalid_gateway_name_cannot_inject_rules() {
    let node = Netns::new().unwrap();
    for gateway in ["", "a\" drop #", "sixteen-is-great"] {
        let firewall = Firewall { gateway: gateway.into(), ..firewall() };
        let error = node.run(|| nft::replace(&firewall)).unwrap().unwrap_err().to_string();
        assert!(error.starts_with(&format!("device name `{gateway}`: ")), "{error}");
    }
    assert_eq!(list(&node), "");
}
