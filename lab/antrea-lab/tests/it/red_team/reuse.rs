//! A new Pod with the address of a deleted one does not inherit its allowed connections.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::json;

use super::attack::Attacker::{Neighbour, Pod};
use super::attack::{Attack, Effect};
use super::field::Field;
use crate::lab::pause;
use testkit::frames;

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("connections that outlive a Pod", Pod, outlives),
    Attack::steps("connections that outlive a Pod, TCP raw", Neighbour, outlives_tcp).long(),
];

/// The search for a free address goes on behind the last one that was given. Here it starts again from the beginning.
const FORGET: &str = "find /var/lib/cni -name 'last_reserved_ip*' -delete";

/// Creates a Pod that is not isolated. Returns its address and its namespace.
fn open(f: &Field) -> (String, testkit::Netns) {
    f.node("node-1", FORGET).unwrap();
    f.api.apply("v1", "Pod", "old", json!({"metadata": {"labels": {"kind": "open"}}, "spec": pause("node-1")}));
    let address = f.api.until_ready("old")[0].clone();
    (address, f.lab.netns("node-1", "old"))
}

/// Creates an isolated Pod with the address of a deleted Pod that was not isolated. Returns its namespace.
fn replaced(f: &Field, address: &str) -> testkit::Netns {
    f.api.delete("old");
    for _ in 0..5 {
        f.node("node-1", FORGET).unwrap();
        f.api.apply("v1", "Pod", "new", json!({"metadata": {"labels": {"kind": "safe"}}, "spec": pause("node-1")}));
        if f.api.until_ready("new")[0] == address {
            return f.lab.netns("node-1", "new");
        }
        f.api.delete("new");
    }
    panic!("the address {address} is not used again");
}

fn outlives(f: &Field, _: usize) -> Effect {
    let (address, old) = open(f);
    let to: SocketAddr = format!("{address}:9100").parse().unwrap();
    let server = old.run(|| UdpSocket::bind(to)).unwrap().unwrap();
    let bind = || UdpSocket::bind("0.0.0.0:9101");
    let clients = ["evil", "open-2"].map(|name| f.pod(name).netns.run(bind).unwrap().unwrap());
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for client in &clients {
        client.send_to(b"hello", to).unwrap();
        let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
        server.send_to(b"hello", from).unwrap();
    }
    drop((server, old));
    let new = replaced(f, &address);
    let server = new.run(|| UdpSocket::bind(to)).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (mut sent, mut got) = (0, 0);
    for client in &clients {
        for _ in 0..5 {
            let _ = client.send_to(b"still me", to);
            sent += 1;
        }
    }
    while server.recv(&mut [0; 16]).is_ok() {
        got += 1;
    }
    f.api.delete("new");
    Effect::new(
        sent,
        got,
        if got > 0 { format!("{got} of {sent} datagrams reached the new Pod") } else { String::new() },
    )
}

/// A TCP connection that goes on sending segments after the Pod was replaced.
fn outlives_tcp(f: &Field, _: usize) -> Effect {
    let (address, old) = open(f);
    let to: SocketAddr = format!("{address}:9200").parse().unwrap();
    let listener = old.run(|| std::net::TcpListener::bind(to)).unwrap().unwrap();
    let evil = f.pod("evil");
    let stream = evil.netns.run(|| std::net::TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
    let from = stream.local_addr().unwrap();
    let accepted = listener.accept().unwrap();
    drop((listener, old));
    let new = replaced(f, &address);
    let tap = super::wire::Tap::open(&new, "eth0");
    // Any segment of the connection will do; the numbers need not fit to be seen by the Pod.
    let body = frames::tcp(from, to, 0x18, (100, 100), b"red-team-tcp");
    let mac = super::field::mac(&new.ip(["-j", "link", "show", "eth0"]).unwrap());
    for _ in 0..5 {
        let _ = evil.tap.send(&frames::ethernet_ip(evil.host.mac, mac, &frames::ip(from.ip(), to.ip(), &body)));
    }
    let got = tap.wait(Duration::from_millis(500), |frame| frame.windows(12).any(|window| window == b"red-team-tcp"));
    drop((stream, accepted));
    f.api.delete("new");
    Effect::new(5, usize::from(got.is_some()), if got.is_some() { "a segment reached the new Pod" } else { "" })
}
