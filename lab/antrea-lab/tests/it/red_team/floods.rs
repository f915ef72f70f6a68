//! Floods: large amounts of allowed traffic, or of packets that cost the Node more than the attacker.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::dice::Dice;
use testkit::frames::{self, BROADCAST};
use testkit::wait::until;

use super::attack::Attacker::{Neighbour, Pod, RawPod};
use super::attack::{Attack, Effect, Shot};
use super::field::Field;
use super::frames::SYN;
use crate::lab::TIMEOUT;

/// Maximum number of MACs that the bridge learns from a Pod.
const LEARNED_MACS: usize = 64;
/// Maximum number of learned flows of a Service with session affinity.
const LEARNED_FLOWS: usize = 2048;
/// Connections that the Node has room for during the flood of them.
const ROOM: usize = 16_000;
/// By then an agent has noticed the flood.
const NOTICED: Duration = Duration::from_secs(4);
const NODE_PORT: u16 = 30_777;
/// A refusal that takes longer is as good as none.
const LATE: Duration = Duration::from_millis(500);

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("ARP in frames of the gateway", RawPod, poisoned),
    Attack::steps("ARP in frames of random MACs", RawPod, learned_macs),
    Attack::steps("SYN flood to a sticky NodePort", Neighbour, sticky),
    Attack::steps("connection flood", RawPod, connections),
    Attack::steps("flood of refused connections", RawPod, refusals),
    Attack::steps("ICMP errors about others' connections", RawPod, related),
    Attack::steps("connections to a closed Pod, by sockets", Pod, closed),
];

/// Sends frames at a rate that a Node can handle: the test is about their effect, not about overload.
fn flood(f: &Field, count: usize, mut frame: impl FnMut(usize) -> Shot) {
    let begun = Instant::now();
    for n in 0..count {
        f.shoot(&frame(n));
        if n % 50 == 49 {
            // Five thousand a second.
            let due = begun + Duration::from_micros(200) * u32::try_from(n).unwrap();
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                drop(f.pod("evil").tap.wait(early, |_| false));
            }
        }
    }
}

fn poisoned(f: &Field, _: usize) -> Effect {
    let (evil, open) = (f.pod("evil").host, f.pod("open-1"));
    let from_node = || f.node("node-1", &format!("ping -n -c 1 -W 1 {}", open.host.v4)).is_ok();
    // Known neighbors are not resolved again.
    let forget = || f.node("node-1", "ip neigh flush dev antrea-gw0; ovs-appctl fdb/flush br-int");
    forget().unwrap();
    until("the Node reaches its Pod", TIMEOUT, || from_node().then_some(())).unwrap();
    let (mut sent, mut failed) = (0, 0);
    for _ in 0..4 {
        let _ = f.node("node-1", "ip neigh flush dev antrea-gw0");
        let arp = frames::arp(f.gateway.mac, BROADCAST, 1, (evil.mac, evil.v4), ([0; 6], open.host.v4));
        for _ in 0..20 {
            f.shoot(&Shot::Pod("evil", arp.clone()));
            sent += 1;
        }
        failed += usize::from(!from_node());
    }
    forget().unwrap();
    Effect::new(sent, failed, if failed > 0 { format!("Node to Pod failed {failed} of 4") } else { String::new() })
}

fn learned_macs(f: &Field, size: usize) -> Effect {
    let (evil, mut dice) = (f.pod("evil").host, Dice::new(5));
    let count = 1000 * size;
    flood(f, count, |_| {
        let from = [0x0a, dice.byte(), dice.byte(), dice.byte(), dice.byte(), dice.byte()];
        Shot::Pod("evil", frames::arp(from, BROADCAST, 1, (evil.mac, evil.v4), ([0; 6], evil.v4)))
    });
    let learned = f.node("node-1", "ovs-appctl fdb/show br-int").unwrap().lines().count();
    let _ = f.node("node-1", "ovs-appctl fdb/flush br-int");
    Effect::new(count, learned.saturating_sub(LEARNED_MACS), format!("{learned} MACs learned"))
}

fn sticky(f: &Field, size: usize) -> Effect {
    let ports = json!([{"port": 80, "nodePort": NODE_PORT, "targetPort": 7}]);
    let spec = json!({"type": "NodePort", "selector": {"kind": "open"}, "ports": ports, "sessionAffinity": "ClientIP"});
    f.api.apply("v1", "Service", "sticky", json!({"spec": spec}));
    let to = SocketAddr::from(([192, 168, 1, 11], NODE_PORT));
    until("the sticky Service", TIMEOUT, || f.reaches(&f.neighbour, to).then_some(())).unwrap();
    let (count, mac, mut dice) = (5000 * size.min(4), f.mac_of_neighbour(), Dice::new(8));
    flood(f, count, |_| {
        let src = SocketAddr::from(([198, 18, dice.byte(), dice.byte()], 40_000));
        let syn = frames::ip(src.ip(), to.ip(), &frames::tcp(src, to, SYN, (1, 0), b""));
        Shot::Neighbour(frames::ethernet_ip(mac, f.node_mac(1), &syn))
    });
    let flows = f.node("node-1", "ovs-ofctl -O OpenFlow15 dump-flows br-int table=40").unwrap();
    let learned = flows.lines().filter(|line| line.contains("hard_timeout")).count();
    f.api.remove("default", "v1", "Service", "sticky");
    Effect::new(count, learned.saturating_sub(LEARNED_FLOWS), format!("{learned} flows learned"))
}

/// One Pod opens connections for seconds, many more than the Node's table has room for; others soon open theirs again.
fn connections(f: &Field, size: usize) -> Effect {
    let (evil, open) = (f.pod("evil").host, f.pod("open-1").host);
    let max = f.node("node-1", "ovs-appctl dpctl/ct-get-maxconns").unwrap();
    let max: usize = max.trim().parse().unwrap();
    // As full as a flood of minutes would make it, and by this Pod alone.
    f.node("node-1", &format!("ovs-appctl dpctl/flush-conntrack; ovs-appctl dpctl/ct-set-maxconns {ROOM}")).unwrap();
    let count = 35_000 * size.min(2);
    // The answers to an isolated Pod are let in because its connection is known.
    let to = SocketAddr::new(f.ip("open-2"), 9);
    let (begun, mut failed, mut tried) = (Instant::now(), 0, 0);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            flood(f, count, |n| {
                let (port, server) = (u16::try_from(n % 60_000).unwrap(), 2000 + u16::try_from(n / 60_000).unwrap());
                let src = SocketAddr::new(evil.v4.into(), 1024 + port);
                let dst = SocketAddr::new(open.v4.into(), server);
                let packet = frames::ip(src.ip(), dst.ip(), &frames::udp(src, dst, b"connection"));
                Shot::Pod("evil", frames::ethernet_ip(evil.mac, open.mac, &packet))
            });
        });
        while !flood.is_finished() {
            let reached = f.reaches(&f.pod("safe-1").netns, to);
            if begun.elapsed() > NOTICED {
                tried += 1;
                failed += usize::from(!reached);
            }
            drop(f.pod("evil").tap.wait(Duration::from_millis(50), |_| false));
        }
    });
    f.node("node-1", &format!("ovs-appctl dpctl/ct-set-maxconns {max}; ovs-appctl dpctl/flush-conntrack")).unwrap();
    // Some fail while the table is full, until that is noticed again: there are no limits a Pod in this datapath.
    // The short run makes few attempts, beside other tests.
    let limit = if size > 1 { 4 } else { 2 };
    let forbidden = if failed * limit > tried { failed } else { 0 };
    Effect::new(count, forbidden, format!("{failed} of {tried} new connections of others failed"))
}

/// A Service without endpoints rejects connections; while one Pod floods it, another must be rejected at once.
fn refusals(f: &Field, size: usize) -> Effect {
    f.api.apply("v1", "Service", "empty", json!({"spec": {"selector": {"kind": "empty"}, "ports": [{"port": 80}]}}));
    let service = f.api.object("default", "v1", "Service", "empty").unwrap();
    let address: Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    let (evil, to) = (f.pod("evil").host, SocketAddr::from((address, 80)));
    let refused = || {
        let begun = Instant::now();
        let connect = f.pod("open-1").netns.run(|| TcpStream::connect_timeout(&to, LATE)).unwrap();
        let refused = connect.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        refused.then(|| begun.elapsed())
    };
    until("a refusal", TIMEOUT, refused).unwrap();
    let (count, mut late, mut longest) = (10_000 * size.min(2), 0u32, Duration::ZERO);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            flood(f, count, |n| {
                let src = SocketAddr::new(evil.v4.into(), 1024 + u16::try_from(n % 60_000).unwrap());
                let syn = frames::ip(src.ip(), to.ip(), &frames::tcp(src, to, SYN, (1, 0), b""));
                Shot::Pod("evil", frames::ethernet_ip(evil.mac, f.gateway.mac, &syn))
            });
        });
        while !flood.is_finished() {
            match refused() {
                Some(took) => longest = longest.max(took),
                None => late += 1,
            }
        }
    });
    f.api.remove("default", "v1", "Service", "empty");
    // Some may be late for other reasons on a busy machine; but most of the time, a refusal comes at once.
    let forbidden = if LATE * late * 2 > begun.elapsed() { late } else { 0 };
    let note = format!("neighbour's refusals: longest {} ms, {late} late or lost", longest.as_millis());
    Effect::new(count, usize::try_from(forbidden).unwrap(), note)
}

/// Errors about a connection between two other Pods, which a Pod forges that is neither an end nor a router of it.
fn related(f: &Field, _: usize) -> Effect {
    let (evil, safe, friend) = (f.pod("evil").host, f.pod("safe-1"), f.pod("friend"));
    let server = safe.netns.run(|| std::net::UdpSocket::bind((safe.host.v4, 9000))).unwrap().unwrap();
    let client = friend.netns.run(|| std::net::UdpSocket::bind((friend.host.v4, 9001))).unwrap().unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.send_to(b"hello", (safe.host.v4, 9000)).unwrap();
    server.recv(&mut [0; 8]).unwrap();
    server.send_to(b"hello", (friend.host.v4, 9001)).unwrap();
    let (mark, own, to): (_, IpAddr, IpAddr) = (b"red-team-icmp", evil.v4.into(), safe.host.v4.into());
    let (near, far) = (SocketAddr::new(to, 9000), SocketAddr::new(friend.host.v4.into(), 9001));
    let quoted = frames::ip(near.ip(), far.ip(), &frames::udp(near, far, mark));
    let mut sent = 0;
    for source in [own, far.ip(), f.gateway.v4.into(), [192, 168, 1, 12].into()] {
        for (kind, code) in [(3, 0), (3, 1), (3, 4), (5, 1), (11, 0), (12, 0)] {
            let mut body = frames::icmp_error(source, to, kind, code, &quoted);
            if (kind, code) == (3, 4) {
                // The next hop would take 68 bytes.
                body = frames::icmp(source, to, 3, 4, &[&[0, 0, 0, 68], &quoted[..]].concat());
            }
            f.shoot(&Shot::Pod("evil", frames::ethernet_ip(evil.mac, safe.host.mac, &frames::ip(source, to, &body))));
            sent += 1;
        }
    }
    let found = f.marked([("safe-1", safe)].into_iter(), mark);
    Effect::new(sent, found.len(), if found.is_empty() { "" } else { "delivered to safe-1" })
}

pub(super) fn closed(f: &Field, _: usize) -> Effect {
    let evil = &f.pod("evil").netns;
    let safe: Vec<SocketAddr> = f
        .victims()
        .flat_map(|(_, pod)| [SocketAddr::new(pod.host.v4.into(), 7), SocketAddr::new(pod.host.v6.into(), 7)])
        .collect();
    let reached = std::thread::scope(|scope| {
        let tries: Vec<_> = safe.iter().map(|to| scope.spawn(move || f.reaches(evil, *to))).collect();
        tries.into_iter().filter_map(|tried| tried.join().ok()).filter(|reached| *reached).count()
    });
    Effect::new(safe.len(), reached, "")
}
