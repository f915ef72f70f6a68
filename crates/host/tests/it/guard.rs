//! Packets forged by Pods or neighbours that our nftables rules drop, for the host and for tunnels.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket as raw_socket,
};
use testkit::Netns;
use testkit::process::run;
use testkit::wait::TIMEOUT;
use types::host::{Firewall, Guard};
use types::network::TunnelPackets;

use crate::firewall::{World, firewall, replace, switch_tunnel};

/// Time to try a connection that should be dropped.
const MOMENT: Duration = Duration::from_millis(500);

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn bind(netns: &Netns, address: &str) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(at(address))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Whether a packet of `client` to `to` arrives at `server`. The allowed packet of `honest` (client, address, server) is sent
/// after it on the same path, so its arrival ends the wait.
fn forged(client: &UdpSocket, to: &str, server: &UdpSocket, honest: (&UdpSocket, &str, &UdpSocket)) -> bool {
    sends(client, to, server, honest, 1)
}

fn sends(
    client: &UdpSocket,
    to: &str,
    server: &UdpSocket,
    (honest, allowed, control): (&UdpSocket, &str, &UdpSocket),
    bytes: usize,
) -> bool {
    let (payload, mut buffer) = (vec![b'x'; bytes], vec![0; 10_000]);
    client.send_to(&payload, at(to)).unwrap();
    honest.send_to(&payload, at(allowed)).unwrap();
    control.recv(&mut buffer).expect("the allowed packet arrives");
    server.set_nonblocking(true).unwrap();
    server.recv(&mut buffer).is_ok()
}

/// Whether a packet of `client` to one server arrives, with another server as control.
fn arrives(client: &UdpSocket, server: &UdpSocket, control: &UdpSocket, bytes: usize) -> bool {
    let [to, allowed] = [server, control].map(|socket| socket.local_addr().unwrap().to_string());
    sends(client, &to, server, (client, &allowed, control), bytes)
}

/// Makes `netns` send packets for 127.0.0.1 to `via`, as an attacker would.
fn aim_at_loopback(netns: &Netns, via: &str) {
    netns.run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1")).unwrap().unwrap();
    netns.ip(["route", "del", "local", "127.0.0.1", "dev", "lo", "table", "local"]).unwrap();
    netns.ip(["route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local"]).unwrap();
    netns.ip(["route", "add", "127.0.0.0/8", "via", via, "dev", "eth0"]).unwrap();
}

#[test]
fn services_on_the_nodes_loopback_are_unreachable_from_other_devices() {
    let World { node, pods, outside } = World::new();
    // Set for all devices, as kube-proxy does, it opens the uplink too.
    node.run(|| fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1")).unwrap().unwrap();
    aim_at_loopback(&pods, "10.10.0.1");
    aim_at_loopback(&outside, "192.0.2.1");
    let (loopback, control) = (bind(&node, "127.0.0.1:7777"), bind(&node, "0.0.0.0:9001"));
    let (pod, neighbour) = (bind(&pods, "10.10.0.2:0"), bind(&outside, "192.0.2.2:0"));
    for (client, honest) in [(&pod, "10.10.0.1:9001"), (&neighbour, "192.0.2.1:9001")] {
        assert!(!forged(client, "127.0.0.1:7777", &loopback, (client, honest, &control)), "to loopback, via {honest}");
    }
    outside.add_address("lo", "127.9.9.9/32").unwrap();
    let (from_loopback, server) = (bind(&outside, "127.9.9.9:0"), bind(&node, "192.0.2.1:9000"));
    let honest = (&neighbour, "192.0.2.1:9001", &control);
    assert!(!forged(&from_loopback, "192.0.2.1:9000", &server, honest), "from loopback");

    bind(&node, "127.0.0.1:0").send_to(b"x", "127.0.0.1:7777").unwrap();
    loopback.set_nonblocking(false).unwrap();
    loopback.recv(&mut [0; 9]).expect("the Node's own packets");
}

#[test]
fn pod_packets_are_accepted_only_from_the_gateway_or_the_uplink() {
    let World { node, pods, outside } = World::new();
    let other = Netns::new().unwrap();
    testkit::veth_pair(&node, "other", &other, "eth0").unwrap();
    for (netns, device, address) in [(&node, "other", "198.51.100.1/24"), (&other, "eth0", "198.51.100.2/24")] {
        netns.add_address(device, address).unwrap();
        netns.link_up(device).unwrap();
    }
    other.ip(["route", "add", "default", "via", "198.51.100.1"]).unwrap();
    let (server, server6) = (bind(&node, "192.0.2.1:9000"), bind(&node, "[2001:db8::1]:9000"));
    let (control, control6) = (bind(&node, "192.0.2.1:9001"), bind(&node, "[2001:db8::1]:9001"));
    let forge = |netns: &Netns, address: &str, server: &UdpSocket, control: &UdpSocket, honest: &str| {
        let prefix = if address.contains(':') { 128 } else { 32 };
        netns.add_address("eth0", &format!("{address}/{prefix}")).unwrap();
        let bracketed = |ip: &str| if ip.contains(':') { format!("[{ip}]:0") } else { format!("{ip}:0") };
        let [to, allowed] = [server, control].map(|socket| socket.local_addr().unwrap().to_string());
        let (client, honest) = (bind(netns, &bracketed(address)), bind(netns, &bracketed(honest)));
        forged(&client, &to, server, (&honest, &allowed, control))
    };
    assert!(!forge(&outside, "10.10.0.77", &server, &control, "192.0.2.2"), "a neighbour as this Node's Pod");
    assert!(!forge(&outside, "fd00:10::77", &server6, &control6, "2001:db8::2"), "the same by IPv6");
    assert!(forge(&pods, "10.10.0.78", &server, &control, "10.10.0.2"), "a Pod, by the gateway");
    assert!(forge(&pods, "fd00:10::78", &server6, &control6, "fd00:10::2"), "the same by IPv6");
    assert!(forge(&outside, "10.10.1.77", &server, &control, "192.0.2.2"), "a routed peer's Pod, by the uplink");
    assert!(!forge(&other, "10.10.1.78", &server, &control, "198.51.100.2"), "the same by another device");

    // With a tunnel to that peer, its Pods' packets arrive by the gateway.
    let mut tunnelled = firewall();
    tunnelled.guard.bridged.append(&mut tunnelled.guard.routed);
    replace(&node, &tunnelled);
    assert!(!forge(&outside, "10.10.1.79", &server, &control, "192.0.2.2"), "a neighbour as a peer's Pod");
}

/// Sends a raw IPv4 packet of this protocol.
fn send_raw(netns: &Netns, protocol: u8, to: Ipv4Addr, payload: &[u8]) {
    // Version and header length; the kernel fills in the total length, the checksum and the source.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 0, 0, 0, 0];
    packet.extend(to.octets());
    packet.extend(payload);
    netns
        .run(|| {
            let socket = raw_socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Raw).unwrap();
            sendto(socket.as_raw_fd(), &packet, &SockaddrIn::from(SocketAddrV4::new(to, 0)), MsgFlags::empty()).unwrap()
        })
        .unwrap();
}

#[test]
fn pods_cannot_send_to_tunnels_of_nodes() {
    let World { node, pods, outside } = World::new();
    let stt = |address: &str| TcpStream::connect_timeout(&at(address), MOMENT);
    let pod = bind(&pods, "10.10.0.2:0");
    let pod6 = bind(&pods, "[fd00:10::2]:0");
    // A datagram in one packet, and one in fragments, of which only the first has the port.
    for bytes in [1, 4000] {
        for port in [6081, 4789] {
            for (to, address) in [(&outside, "192.0.2.2"), (&node, "192.0.2.1"), (&node, "10.10.0.1")] {
                let (tunnel, control) = (bind(to, &format!("{address}:{port}")), bind(to, &format!("{address}:6082")));
                assert!(!arrives(&pod, &tunnel, &control, bytes), "{bytes} bytes to {address}:{port}");
            }
            let (tunnel, control) =
                (bind(&outside, &format!("[2001:db8::2]:{port}")), bind(&outside, "[2001:db8::2]:6082"));
            assert!(!arrives(&pod6, &tunnel, &control, bytes), "{bytes} bytes to [2001:db8::2]:{port}");
        }
    }
    // Nodes may send to each other's tunnels, and Pods to tunnel ports of other hosts.
    let (tunnel, control) = (bind(&node, "192.0.2.1:6081"), bind(&node, "192.0.2.1:6082"));
    assert!(arrives(&bind(&outside, "192.0.2.2:0"), &tunnel, &control, 1));
    outside.add_address("eth0", "203.0.113.9/32").unwrap();
    node.ip(["route", "add", "203.0.113.9", "dev", "uplink"]).unwrap();
    let (tunnel, control) = (bind(&outside, "203.0.113.9:6081"), bind(&outside, "203.0.113.9:6082"));
    assert!(arrives(&pod, &tunnel, &control, 1));

    // STT.
    let listeners = [(&outside, "192.0.2.2:7471"), (&node, "192.0.2.1:7471"), (&outside, "192.0.2.2:7472")];
    let _listeners = listeners.map(|(netns, address)| netns.run(|| TcpListener::bind(at(address))).unwrap().unwrap());
    assert!(pods.run(|| stt("192.0.2.2:7471")).unwrap().is_err());
    assert!(pods.run(|| stt("192.0.2.1:7471")).unwrap().is_err());
    pods.run(|| stt("192.0.2.2:7472")).unwrap().unwrap();
    // A reply to a client on the Node with such a source port passes, unless it is the port of the Node's own tunnel.
    replace(&node, &Firewall { tunnel_ports: [6081].into(), ..firewall() });
    let server = bind(&pods, "10.10.0.2:53");
    let client = bind(&node, "10.10.0.1:4789");
    client.send_to(b"?", "10.10.0.2:53").unwrap();
    let (_, asker) = server.recv_from(&mut [0; 9]).unwrap();
    server.send_to(b"!", asker).unwrap();
    client.recv(&mut [0; 9]).unwrap();

    // GRE.
    let count = "table inet watch { counter gre { }; counter other { }; chain c { type filter hook prerouting priority -450; \
                 meta l4proto 47 counter name \"gre\"; meta l4proto 253 counter name \"other\"; }; }";
    run(outside.command("nft").args(["-f", "-"]), Some(count)).unwrap();
    for protocol in [47, 253] {
        send_raw(&pods, protocol, Ipv4Addr::new(192, 0, 2, 2), b"payload");
    }
    let counter =
        |name: &str| run(outside.command("nft").args(["list", "counter", "inet", "watch", name]), None).unwrap();
    testkit::wait::until("the other protocol", TIMEOUT, || counter("other").contains("packets 1 ").then_some(()))
        .unwrap();
    assert!(counter("gre").contains("packets 0 "), "{}", counter("gre"));
}

#[test]
fn foreign_dnat_cannot_lead_into_a_tunnel() {
    let World { node, pods, outside } = World::new();
    // As kube-proxy does for a NodePort with a Node's tunnel as endpoint.
    let theirs = "table ip theirs { chain c { type nat hook prerouting priority dstnat; \
                  udp dport 31000 dnat to 192.0.2.2:6081; udp dport 31001 dnat to 192.0.2.2:6082; }; \
                  chain p { type nat hook postrouting priority srcnat; ip daddr 192.0.2.2 masquerade; }; }";
    run(node.command("nft").args(["-f", "-"]), Some(theirs)).unwrap();
    let (tunnel, control) = (bind(&outside, "192.0.2.2:6081"), bind(&outside, "192.0.2.2:6082"));
    for client in [bind(&pods, "10.10.0.2:0"), bind(&outside, "192.0.2.2:0")] {
        let honest = (&client, "192.0.2.1:31001", &control);
        assert!(!forged(&client, "192.0.2.1:31000", &tunnel, honest), "from {}", client.local_addr().unwrap());
    }
}

#[test]
fn an_invalid_transport_device_cannot_inject_rules() {
    let node = Netns::new().unwrap();
    let guard = Guard { transport: "a\" } drop #".into(), ..firewall().guard };
    let error = node.run(|| host::nft::replace(&Firewall { guard, ..firewall() })).unwrap().unwrap_err().to_string();
    assert!(error.starts_with("device name `a\" } drop #`: "), "{error}");
}

#[test]
fn the_kernel_neither_delivers_nor_answers_tunnel_packets_of_the_switch() {
    let World { node, outside, .. } = World::new();
    let (tunnel, control) = (bind(&node, "192.0.2.1:6081"), bind(&node, "192.0.2.1:6082"));
    let peer = bind(&outside, "192.0.2.2:0");
    assert!(arrives(&peer, &tunnel, &control, 1), "without the rule");
    replace(&node, &Firewall { switch_tunnel: switch_tunnel(TunnelPackets::Udp(6081)), ..firewall() });
    assert!(!arrives(&peer, &tunnel, &control, 1));
    // A port without a socket would be reported as unreachable.
    drop((tunnel, control));
    for (port, is_answered) in [(6081, false), (6083, true)] {
        let peer = bind(&outside, "192.0.2.2:0");
        peer.connect(("192.0.2.1", port)).unwrap();
        peer.send(b"?").unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let refused = peer.recv(&mut [0; 9]).unwrap_err().kind() == std::io::ErrorKind::ConnectionRefused;
        assert_eq!(refused, is_answered, "port {port}");
    }
}
