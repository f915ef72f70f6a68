//! No Pod exhausts the connection table.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::IpTransparent;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, OUTSIDE_IP};

const DATAPATH: &str = "netdev@ovs-netdev";
/// Size of the switch's connection table.
const LIMIT: u64 = 2000;

fn tracked(node: &Node) -> u64 {
    node.ovs.appctl(["dpctl/ct-get-nconns", DATAPATH]).unwrap().trim().parse().unwrap()
}

/// Sends back every byte.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut stream, mut byte) = (stream, [0]);
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

#[test]
fn a_pod_that_fills_the_connection_table_does_not_keep_its_neighbours_from_new_connections() {
    let node = Node::start("");
    let (hog, neighbour, server) = (node.add("hog"), node.add("neighbour"), node.add("server"));
    let listener = server.netns.run(|| TcpListener::bind("0.0.0.0:80")).unwrap().unwrap();
    serve(listener);
    let at = (server.v4, 80).into();
    let connect = || neighbour.netns.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(500))).unwrap().ok();
    let mut earlier = until("a connection", TIMEOUT, connect).unwrap();
    node.ovs.appctl(["dpctl/ct-set-maxconns", DATAPATH, &LIMIT.to_string()]).unwrap();

    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let sockets: Vec<UdpSocket> =
        (0..16).map(|_| hog.netns.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each packet opens another connection without a reply.
            for port in (1024..=u16::MAX).cycle() {
                for socket in &sockets {
                    sent.fetch_add(u64::from(socket.send_to(b"flood", (server.v4, port)).is_ok()), Ordering::Relaxed);
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                testkit::wait::rest(Duration::from_millis(4));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the flood", TIMEOUT, || (sent.load(Ordering::Relaxed) >= LIMIT * 4).then_some(())).unwrap();
            for _ in 0..5 {
                let began = Instant::now();
                until("a new connection", TIMEOUT, connect).unwrap();
                println!("the neighbour is connected after {:.1?}, {} are tracked", began.elapsed(), tracked(&node));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    earlier.write_all(b"x").unwrap();
    earlier.read_exact(&mut [0]).unwrap();
    node.wait_log("flushing connections of an address that holds more than its share");
    assert!(node.log().contains("pod=\"default/hog\""), "{}", node.log());
    let metric = |name: &str| node.metric(&format!("antrea_agent_conntrack_{name}_connection_count{{table=\"ovs\"}}"));
    until("the agent counts", TIMEOUT, || (metric("max") == LIMIT && metric("flushed") > 0).then_some(())).unwrap();
    // The default of Open vSwitch after a restart is too large to list.
    node.ovs.appctl(["dpctl/ct-set-maxconns", DATAPATH, "3000000"]).unwrap();
    let limit = || node.ovs.appctl(["dpctl/ct-get-maxconns", DATAPATH]).ok().filter(|max| max.trim() == "262144");
    until("the agent has set a limit", TIMEOUT, limit).unwrap();
}

/// A UDP socket of a Node with the address of one of its Pods.
fn socket_of(address: IpAddr) -> UdpSocket {
    let IpAddr::V4(address) = address else { panic!("{address} is not an IPv4 address") };
    let bound = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), None).unwrap();
    setsockopt(&bound, IpTransparent, &true).unwrap();
    let [a, b, c, d] = address.octets();
    bind(std::os::fd::AsRawFd::as_raw_fd(&bound), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
    bound.into()
}

/// Every namespace has its own count, and the limit of the first one, which no other may change: so the whole table is filled. The
/// packets go through the loopback interface of the Node, which takes seconds; through the switch, it would take minutes.
#[test]
fn a_pod_that_fills_the_kernels_connection_table_does_not_keep_its_neighbours_from_new_connections() {
    let node = Node::start("");
    let (hog, neighbour) = (node.add("hog"), node.add("neighbour"));
    let at = (OUTSIDE_IP.parse::<IpAddr>().unwrap(), 80).into();
    serve(node.outside.run(|| TcpListener::bind(at)).unwrap().unwrap());
    let connect = || neighbour.netns.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(500))).unwrap().ok();
    let mut earlier = until("a connection", TIMEOUT, connect).unwrap();
    let load = || node.netns.run(host::conntrack::load).unwrap().unwrap();
    let (began, limit) = (Instant::now(), load().1);
    let fill = || {
        let mut fullest = 0;
        // More than there is room for; a full table refuses packets.
        for _ in 0..limit / 60_000 + 2 {
            let socket = socket_of(hog.v4);
            for port in 1..64_000u16 {
                let _ = socket.send_to(b"x", ("127.0.0.1", port));
            }
            fullest = fullest.max(host::conntrack::load().unwrap().0);
        }
        fullest
    };
    let fullest = node.netns.run(fill).unwrap();
    println!("{fullest} of {limit} connections after {:.1?}", began.elapsed());
    assert!(fullest > limit / 100 * 85, "{fullest} of {limit}");
    let began = Instant::now();
    until("a new connection", TIMEOUT, connect).unwrap();
    println!("the neighbour is connected after {:.1?}", began.elapsed());
    until("the kernel's table is not nearly full", TIMEOUT, || (load().0 < limit / 100 * 80).then_some(())).unwrap();
    println!("{} of {limit} connections after {:.1?}", load().0, began.elapsed());
    earlier.write_all(b"x").unwrap();
    earlier.read_exact(&mut [0]).unwrap();
    let metric = "antrea_agent_conntrack_flushed_connection_count{table=\"kernel\"}";
    until("the agent counts", TIMEOUT, || (node.metric(metric) > 0).then_some(())).unwrap();
    let log = node.log();
    let flushed: Vec<&str> = log.lines().filter(|line| line.contains("holds more than its share")).collect();
    let by_hog = |line: &&str| line.contains("table=\"kernel\"") && line.contains("pod=\"default/hog\"");
    assert!(!flushed.is_empty() && flushed.iter().all(by_hog), "{log}");
}
