//! Packets up to the MTU of a Pod arrive with every MTU of the underlay; larger ones are rejected at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use testkit::Netns;
use testkit::wait::until;

use crate::agent::network;
use crate::lab::{Lab, TIMEOUT, pause};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Sets the MTU of the underlay on all interfaces, and restarts the agents.
fn set_underlay(lab: &Lab, mtu: u32) {
    let all = |filter: &str| {
        format!(
            "for link in $(ip -br link {filter} | cut -d' ' -f1 | cut -d@ -f1); do ip link set $link mtu {mtu} || exit 1; done"
        )
    };
    // Bridges take the smallest of their ports, so those are first.
    let fabric = format!("{} && {}", all("show type veth"), all("show type bridge"));
    lab.node("fabric", &["sh", "-c", &fabric]).unwrap();
    for place in ["router", "control", "outside"] {
        lab.node(place, &["sh", "-c", &all("show type veth")]).unwrap();
    }
    for node in NODES {
        lab.node(node, &["ip", "link", "set", "eth0", "mtu", &mtu.to_string()]).unwrap();
        let agent = lab.pid(node, "antrea-agent").unwrap();
        lab.node(node, &["kill", "-KILL", &agent.to_string()]).unwrap();
        until("another agent", TIMEOUT, || lab.pid(node, "antrea-agent").filter(|pid| *pid != agent)).unwrap();
    }
}

/// A megabyte to a server, and back.
fn megabyte(from: &Netns, to: &Netns, address: &str) {
    let address: SocketAddr = format!("{address}:7").parse().unwrap();
    let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut client = from.run(|| TcpStream::connect_timeout(&address, TIMEOUT)).unwrap().unwrap();
    let data = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut peer, _) = listener.accept().unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut taken = vec![0; 1 << 20];
            peer.read_exact(&mut taken).unwrap();
            peer.write_all(&taken).unwrap();
        });
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(&data).unwrap();
        let mut back = vec![0; 1 << 20];
        client.read_exact(&mut back).unwrap();
        assert!(back == data);
    });
}

/// Tests all packet sizes with several MTUs of the underlay; `overhead` is the size of the tunnel headers.
fn no_black_hole(name: &'static str, mode: &str, overhead: u32) {
    let (lab, api) = network(name, 3, &["--mode", mode]);
    for underlay in [1500, 9000, 1400] {
        if underlay != 1500 {
            set_underlay(&lab, underlay);
        }
        let mtu = underlay - overhead;
        let pods = NODES.map(|node| {
            let pod = format!("on-{node}-{underlay}");
            api.pod(&pod, pause(node));
            let addresses = api.until_ready(&pod);
            (lab.netns(node, &pod), addresses, pod)
        });
        let [(client, _, name), others @ ..] = &pods;
        let link = client.ip(["-o", "link", "show", "eth0"]).unwrap();
        assert!(link.contains(&format!("mtu {mtu} ")), "{underlay}: {link}");
        for (server, addresses, other) in others {
            for address in addresses {
                let header = if address.contains(':') { 48 } else { 28 };
                let ping = |size: u32| {
                    let size = (size - header).to_string();
                    lab.exec(name, &["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", &size, address])
                };
                until(format_args!("{mtu} bytes to {other} at {address}"), TIMEOUT, || ping(mtu).ok()).unwrap();
                let refused = ping(mtu + 1).unwrap_err();
                assert!(refused.contains("too long") || refused.contains("too large"), "{address}: {refused}");
            }
            megabyte(client, server, &addresses[0]);
            megabyte(server, client, &pods[0].1[0]);
        }
        println!("{mode}: packets of {mtu} bytes and megabytes of TCP arrive over wires of {underlay}");
    }
}

#[test]
fn tunnels_have_no_mtu_black_hole() {
    no_black_hole("mtu-encap", "encap", 50);
}

#[test]
fn routes_have_no_mtu_black_hole() {
    no_black_hole("mtu-noencap", "noencap", 0);
}
