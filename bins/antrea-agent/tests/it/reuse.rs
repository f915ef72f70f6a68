//! A Pod with a reused address does not receive packets of connections that were accepted for the previous Pod.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use api::cni::request::Command;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use serde_json::json;
use testkit::Netns;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};

use crate::controller::{Controller, Served, allow, pod};
use crate::fixture::{Node, PodNet, call};

/// Pause between two packets of a client.
const PAUSE: Duration = Duration::from_millis(10);
const PROTOCOLS: [&str; 3] = ["udp", "tcp", "sctp"];

/// A Node with room for four Pods, of which `isolated` is isolated both ways.
fn node() -> (Node, Controller, Served) {
    let controller = Controller::new();
    let mut policy = allow("isolated", "isolated", &[]);
    policy["spec"]["policyTypes"] = json!(["Ingress", "Egress"]);
    controller.policy(&policy);
    for name in ["client", "old", "second", "third", "isolated"] {
        controller.pod(&pod(name, name));
    }
    let mut node = Node::without_agent("", &["10.10.1.0/29"]);
    controller.announce(&node);
    node.start_agent();
    let served = controller.serve(&node);
    node.wait_ready();
    (node, controller, served)
}

/// Attaches the isolated Pod, and counts the packets that it receives from an address.
fn add_isolated(node: &Node, from: IpAddr) -> (Netns, IpAddr) {
    let netns = Netns::new().unwrap();
    netns.link_up("lo").unwrap();
    count(&netns, "prerouting", "saddr", from);
    let made = node.cni(&Command::Add(call("isolated", &netns.path()))).unwrap().unwrap();
    (netns, made.ips[0].address.addr())
}

/// Counts packets in a network namespace by protocol, with nftables.
fn count(netns: &Netns, hook: &str, end: &str, ip: IpAddr) {
    let counters = PROTOCOLS.map(|name| format!("counter of-{name} {{}}")).join("; ");
    let rules = PROTOCOLS.map(|name| format!("ip {end} {ip} meta l4proto {name} counter name of-{name}")).join("; ");
    let table =
        format!("table ip count {{ {counters}; chain c {{ type filter hook {hook} priority -300; {rules}; }}; }}");
    run(netns.command("nft").arg(table), None).unwrap();
}

fn counted(netns: &Netns) -> [u64; 3] {
    PROTOCOLS.map(|name| {
        let counter =
            run(netns.command("nft").args(["list", "counter", "ip", "count", &format!("of-{name}")]), None).unwrap();
        counter.split_whitespace().skip_while(|word| *word != "packets").nth(1).unwrap().parse().unwrap()
    })
}

/// A raw socket for SCTP packets with arbitrary bytes.
fn sctp(netns: &Netns) -> UdpSocket {
    let open = || socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp);
    UdpSocket::from(netns.run(open).unwrap().unwrap())
}

/// Sends by all protocols until it is dropped.
struct Client {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Client {
    /// Opens connections to a Pod that echoes, and keeps sending.
    fn talking(from: &PodNet, to: &PodNet) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let listener = to.netns.run(|| TcpListener::bind("0.0.0.0:7")).unwrap().unwrap();
        let udp = to.netns.run(|| UdpSocket::bind("0.0.0.0:7")).unwrap().unwrap();
        for socket in [udp, sctp(&to.netns)] {
            socket.set_read_timeout(Some(PAUSE)).unwrap();
            let stops = Arc::clone(&stop);
            // Ends with the first read timeout after the stop.
            thread::spawn(move || {
                let mut bytes = [0; 64];
                loop {
                    match socket.recv_from(&mut bytes) {
                        Ok((_, from)) => _ = socket.send_to(b"answer--", SocketAddr::new(from.ip(), from.port())),
                        Err(_) if stops.load(Ordering::Relaxed) => return,
                        Err(_) => {}
                    }
                }
            });
        }
        let at = SocketAddr::new(to.v4, 7);
        let udp = from.netns.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        udp.connect(at).unwrap();
        let sctp = sctp(&from.netns);
        sctp.connect((to.v4, 0)).unwrap();
        let mut tcp = from.netns.run(|| TcpStream::connect_timeout(&at, TIMEOUT)).unwrap().unwrap();
        let (mut served, _) = listener.accept().unwrap();
        tcp.write_all(b"x").unwrap();
        served.read_exact(&mut [0]).unwrap();
        served.write_all(b"x").unwrap();
        tcp.read_exact(&mut [0]).unwrap();
        for socket in [&udp, &sctp] {
            socket.set_read_timeout(Some(PAUSE)).unwrap();
            let answered = || socket.send(b"12345678").ok().and_then(|_| socket.recv(&mut [0; 64]).ok());
            until("an answer", TIMEOUT, answered).unwrap();
        }
        tcp.set_nonblocking(true).unwrap();
        let stops = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            // The Pod does not close the connection.
            let _served = served;
            while !stops.load(Ordering::Relaxed) {
                let _ = (udp.send(b"12345678"), sctp.send(b"12345678"), tcp.write(b"x"));
                let _ = udp.recv(&mut [0; 64]);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_connection_to_a_pod_that_is_gone_does_not_reach_the_next_one_with_its_address() {
    let (node, _controller, _served) = node();
    let client = node.add("client");
    let (old, _second, _third) = (node.add("old"), node.add("second"), node.add("third"));
    count(&client.netns, "output", "daddr", old.v4);
    let talk = Client::talking(&client, &old);
    // DEL removes the interface; processes of the Pod may still run.
    node.del(&old);
    let (isolated, ip) = add_isolated(&node, client.v4);
    assert_eq!(ip, old.v4, "it was the only address left");
    // TCP retransmits with growing delays.
    let sent = counted(&client.netns);
    let more = || {
        (counted(&client.netns).iter().zip(sent).zip([50, 2, 50]).all(|((now, then), n)| *now >= then + n))
            .then_some(())
    };
    let went_on = until("the client goes on sending", TIMEOUT, more);
    assert_eq!(counted(&isolated), [0; 3], "{PROTOCOLS:?} of an older Pod's connections");
    went_on.unwrap();
    drop(talk);
}

#[test]
fn connections_to_an_unassigned_address_are_not_accepted_for_its_next_pod() {
    let (node, _controller, _served) = node();
    let client = node.add("client");
    let (old, _second, _third) = (node.add("old"), node.add("second"), node.add("third"));
    node.del(&old);
    let is_free = || (!node.traces().contains(&old.v4.to_string())).then_some(());
    until("the address is free", TIMEOUT, is_free).unwrap();
    // No Pod has the address: there is no ARP reply, and no policy applies to packets to it.
    let mac = node.ask_json("/v1/podinterfaces")[0]["mac"].as_str().unwrap().to_owned();
    client.netns.ip(["neigh", "replace", &old.v4.to_string(), "lladdr", &mac, "dev", "eth0"]).unwrap();
    let outside = client.netns.run(|| UdpSocket::bind(("0.0.0.0", 7))).unwrap().unwrap();
    outside.connect((old.v4, 7)).unwrap();
    outside.set_read_timeout(Some(PAUSE)).unwrap();
    for _ in 0..20 {
        let _ = (outside.send(b"early"), outside.recv(&mut [0; 8]));
    }
    let (isolated, ip) = add_isolated(&node, client.v4);
    assert_eq!(ip, old.v4);
    // The Pod cooperates: its packets look like replies.
    let inside = isolated.run(|| UdpSocket::bind(("0.0.0.0", 7))).unwrap().unwrap();
    inside.connect((client.v4, 7)).unwrap();
    inside.set_read_timeout(Some(PAUSE)).unwrap();
    for round in 0..50 {
        let _ = (inside.send(b"leak"), outside.send(b"leak"));
        let heard = (outside.recv(&mut [0; 8]).is_ok(), inside.recv(&mut [0; 8]).is_ok());
        assert_eq!(heard, (false, false), "outside and inside, in round {round}");
    }
}
