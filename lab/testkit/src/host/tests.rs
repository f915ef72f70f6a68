use std::io::{Read, Write};

use super::*;

fn nic<'a>(port: &'a str, ofport: u16, mac: &'a str, addresses: &'a [&'a str]) -> Nic<'a> {
    Nic { port, ofport, mac, addresses, gateways: &[] }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn two_hosts() -> (Ovs, Host, Host) {
    let ovs = Ovs::start_in(&Netns::new().unwrap()).unwrap();
    ovs.add_bridge("br0").unwrap();
    let one = nic("one", 1, "0a:00:00:00:00:01", &["192.0.2.1/24", "2001:db8::1/64"]);
    let two = nic("two", 2, "0a:00:00:00:00:02", &["192.0.2.2/24", "2001:db8::2/64"]);
    let one = Host::attach(&ovs, "br0", &one).unwrap();
    let two = Host::attach(&ovs, "br0", &two).unwrap();
    (ovs, one, two)
}

#[test]
fn hosts_on_a_learning_switch_ping_and_connect() {
    let (ovs, one, two) = two_hosts();
    assert!(!one.ping_once(address("192.0.2.2"), Duration::from_millis(200)).unwrap(), "there are no flows yet");
    ovs.ofctl(["add-flow", "br0", "actions=NORMAL"]).unwrap();
    one.ping(address("192.0.2.2")).unwrap();
    two.ping(address("2001:db8::1")).unwrap();

    let listener = two.tcp_listen("[::]:80").unwrap();
    for to in ["192.0.2.2:80", "[2001:db8::2]:80"] {
        let mut client = one.tcp_connect(to.parse().unwrap(), TIMEOUT).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 100_000]).unwrap();
        drop(client);
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!(received, vec![7; 100_000]);
    }

    let (asks, answers) = (one.udp_bind("0.0.0.0:0").unwrap(), two.udp_bind("0.0.0.0:53").unwrap());
    asks.send_to(b"ask", "192.0.2.2:53").unwrap();
    let mut buffer = [0; 16];
    let (length, from) = answers.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"ask");
    assert_eq!(from.ip(), address("192.0.2.1"));

    let refused = one.tcp_connect("192.0.2.2:81".parse().unwrap(), TIMEOUT).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn connection_tracking_is_real() {
    let (ovs, one, two) = two_hosts();
    let flows = "priority=10,arp,actions=NORMAL
        priority=10,ct_state=-trk,ip,actions=ct(table=0)
        priority=10,ct_state=+trk+new,in_port=1,ip,actions=ct(commit),NORMAL
        priority=10,ct_state=+trk+est,ip,actions=NORMAL";
    ovs.ofctl_stdin(["add-flows", "br0", "-"], flows).unwrap();
    let _listeners = [&one, &two].map(|host| host.tcp_listen("0.0.0.0:80").unwrap());
    one.tcp_connect("192.0.2.2:80".parse().unwrap(), TIMEOUT).unwrap();
    let refused = two.tcp_connect("192.0.2.1:80".parse().unwrap(), Duration::from_millis(300)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(ovs.appctl(["dpctl/dump-conntrack"]).unwrap().contains("dst=192.0.2.2"));
}

#[test]
fn a_restarted_switch_takes_its_ports_again() {
    let (ovs, one, _two) = two_hosts();
    ovs.kill_vswitchd().unwrap();
    ovs.start_vswitchd().unwrap();
    ovs.ofctl(["add-flow", "br0", "actions=NORMAL"]).unwrap();
    one.ping(address("192.0.2.2")).unwrap();
}

#[test]
fn the_dummy_datapath_has_no_hosts() {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    let error = Host::attach(&ovs, "br0", &nic("one", 1, "0a:00:00:00:00:01", &[])).unwrap_err();
    assert!(format!("{error:#}").ends_with("use Ovs::start_in"), "{error:#}");
}
