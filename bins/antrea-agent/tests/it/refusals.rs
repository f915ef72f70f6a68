//! Connections to Services without endpoints are refused at once, also while another Pod floods such a Service.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, PodNet};

/// Time until a client's connection is refused.
fn refused(pod: &PodNet, at: SocketAddr) -> Option<Duration> {
    let began = Instant::now();
    let outcome = pod.netns.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap();
    outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then(|| began.elapsed())
}

#[test]
fn a_pod_that_floods_a_service_without_endpoints_does_not_delay_its_neighbours_refusals() {
    let node = Node::start("");
    let ports = json!([{"name": "t", "port": 80, "protocol": "TCP"}, {"name": "u", "port": 80, "protocol": "UDP"}]);
    let service = json!({"metadata": {"name": "empty"}, "spec": {"clusterIP": "10.96.0.50", "ports": ports}});
    node.api.local().create("v1", "services", "default", service).unwrap();
    let at: SocketAddr = "10.96.0.50:80".parse().unwrap();
    let (flooder, neighbour) = (node.add("flooder"), node.add("neighbour"));
    until("a refusal", TIMEOUT, || refused(&neighbour, at)).unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let sockets: Vec<UdpSocket> =
        (0..16).map(|_| flooder.netns.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap()).collect();
    let mut waited = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for socket in &sockets {
                    sent.fetch_add(usize::from(socket.send_to(b"flood", at).is_ok()), Ordering::Relaxed);
                }
                // A few thousand per second, which a debug build of the agent can read.
                testkit::wait::rest(Duration::from_millis(5));
            }
        });
        until("the flood flows", TIMEOUT, || (sent.load(Ordering::Relaxed) > 3000).then_some(())).unwrap();
        let ask = |_| {
            testkit::wait::rest(Duration::from_millis(100));
            refused(&neighbour, at)
        };
        let waited: Vec<Duration> = (0..20).filter_map(ask).collect();
        stop.store(true, Ordering::Relaxed);
        waited
    });
    waited.sort_unstable();
    println!("{} packets of the flood; refusals came after {waited:.1?}", sent.load(Ordering::Relaxed));
    assert_eq!(waited.len(), 20, "each is refused");
    assert!(waited[10] < Duration::from_millis(100), "most at once: {waited:.1?}");
    // The client's kernel retransmits after a second.
    assert!(waited[17] < Duration::from_millis(900), "nearly none is lost: {waited:.1?}");
}
