//! Control calls against ovs-vswitchd.

use std::time::Duration;

use ovs::unixctl::{
    ConntrackEntry, ConntrackLoad, ConntrackMatch, ConntrackProtocol, Control, Layer4, UnixctlError, call, find_socket,
};
use testkit::Ovs;
use testkit::wait::TIMEOUT;
use tokio::net::UnixListener;

fn control(ovs: &Ovs) -> Control {
    Control::vswitchd(ovs.dir(), TIMEOUT).unwrap()
}

/// A switch that tracks what comes in at p1: IPv4 in zone 5 with a mark, IPv6 in zone 6.
fn tracking() -> Ovs {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    ovs.add_port("br0", "p1", 1).unwrap();
    ovs.add_port("br0", "p2", 2).unwrap();
    let flows = "ip,actions=ct(commit,zone=5,exec(set_field:0x7->ct_mark,set_field:0x1->ct_label)),output:2\n\
        ipv6,actions=ct(commit,zone=6),output:2\n";
    ovs.ofctl_stdin(["add-flows", "br0", "-"], flows).unwrap();
    ovs
}

/// Sends a packet into p1 and waits until the `n`th comes out of p2.
async fn packet(ovs: &Ovs, fields: &str, n: usize) {
    let flow = format!("in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),{fields}");
    control(ovs).call("netdev-dummy/receive", &["p1", &flow]).await.unwrap();
    ovs.wait_captured("p2", n).unwrap();
}

const TCP: &str = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),\
    tcp(src=1000,dst=80),tcp_flags(syn)";
const UDP: &str = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1001,dst=53)";
const ICMP: &str = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";
const UDP6: &str = "eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,label=0,proto=17,tclass=0,hlimit=64,frag=no),\
    udp(src=1001,dst=53)";

fn protocols(entries: &[ConntrackEntry]) -> Vec<ConntrackProtocol> {
    let mut protocols: Vec<_> = entries.iter().map(|entry| entry.protocol.clone()).collect();
    protocols.sort();
    protocols
}

#[tokio::test]
async fn connections_are_listed_and_forgotten() {
    use ConntrackProtocol::{Icmp, Tcp, Udp};
    let ovs = tracking();
    let control = control(&ovs);
    for (n, fields) in [TCP, UDP, ICMP, UDP6].into_iter().enumerate() {
        packet(&ovs, fields, n + 1).await;
    }
    let all = control.conntrack_dump(None, None).await.unwrap();
    assert_eq!(protocols(&all), [Tcp, Udp, Udp, Icmp]);
    let six = control.conntrack_dump(Some("dummy@ovs-dummy"), Some(6)).await.unwrap();
    assert_eq!((six.len(), six[0].original.src.to_string().as_str()), (1, "fd00::1"));
    let tcp = all.iter().find(|entry| entry.protocol == Tcp).unwrap();
    assert_eq!((tcp.zone, tcp.mark, tcp.label), (5, 7, 1));
    assert_eq!(tcp.original.layer4, Layer4::Ports { src: 1000, dst: 80 });
    assert_eq!(tcp.reply.layer4, Layer4::Ports { src: 80, dst: 1000 });
    assert_eq!(tcp.state.as_deref(), Some("SYN_SENT"));

    let any = ConntrackMatch::default();
    let dns = ConntrackMatch { protocol: Some(17), dst_port: Some(53), ..any.clone() };
    control.conntrack_flush(Some(5), &dns, &any).await.unwrap();
    assert_eq!(protocols(&control.conntrack_dump(None, None).await.unwrap()), [Tcp, Udp, Icmp]);
    let from_server = ConntrackMatch { src: Some("10.0.0.2".parse().unwrap()), protocol: Some(6), ..any.clone() };
    control.conntrack_flush(Some(5), &any, &from_server).await.unwrap();
    assert_eq!(protocols(&control.conntrack_dump(None, None).await.unwrap()), [Udp, Icmp]);
    control.conntrack_flush(Some(5), &any, &any).await.unwrap();
    assert_eq!(protocols(&control.conntrack_dump(None, None).await.unwrap()), [Udp]);
    control.conntrack_flush(None, &any, &any).await.unwrap();
    assert_eq!(control.conntrack_dump(None, None).await.unwrap(), []);
}

#[tokio::test]
async fn the_connections_of_an_address_are_forgotten_and_no_others() {
    use ConntrackProtocol::{Icmpv6, Udp};
    let ovs = tracking();
    let control = control(&ovs);
    let sctp = UDP.replace("proto=17", "proto=132").replace("udp(", "sctp(");
    let other = UDP.replace("src=10.0.0.1", "src=10.0.0.3").replace("dst=10.0.0.2", "dst=10.0.0.4");
    let ping = "eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,label=0,proto=58,tclass=0,hlimit=64,frag=no),\
        icmpv6(type=128,code=0)";
    for (n, fields) in [TCP, UDP, ICMP, UDP6, &sctp, &other, ping].into_iter().enumerate() {
        packet(&ovs, fields, n + 1).await;
    }
    let all = control.conntrack_dump(None, None).await.unwrap();
    assert_eq!(all.len(), 7);
    control.revalidated().await.unwrap();
    control.conntrack_flush_address("10.0.0.9".parse().unwrap()).await.unwrap();
    assert_eq!(control.conntrack_dump(None, None).await.unwrap().len(), 7);
    // As the destination, and as the source.
    control.conntrack_flush_address("10.0.0.2".parse().unwrap()).await.unwrap();
    let left = control.conntrack_dump(None, None).await.unwrap();
    assert_eq!(protocols(&left), [Udp, Udp, Icmpv6]);
    // One that the switch would not survive to forget is left.
    control.conntrack_flush_address("fd00::1".parse().unwrap()).await.unwrap();
    let left = control.conntrack_dump(None, None).await.unwrap();
    assert_eq!(protocols(&left), [Udp, Icmpv6]);
    assert!(left.iter().any(|entry| entry.original.src.to_string() == "10.0.0.3"));

    // Those that have ended by themselves keep no others.
    assert!(control.conntrack_flush_entries(&all).await.unwrap() >= 1);
    assert_eq!(protocols(&control.conntrack_dump(None, None).await.unwrap()), [Icmpv6]);
    let any = ConntrackMatch::default();
    control.conntrack_flush(Some(6), &any, &any).await.unwrap();
    assert_eq!(control.conntrack_dump(None, None).await.unwrap(), []);
}

#[tokio::test]
async fn the_size_of_the_table_is_read_and_set() {
    let ovs = tracking();
    let control = control(&ovs);
    packet(&ovs, UDP, 1).await;
    let load = |connections, limit| ConntrackLoad { connections, limit };
    assert_eq!(control.conntrack_load(None).await.unwrap(), load(1, 3_000_000));
    control.conntrack_limit(None, 1000).await.unwrap();
    assert_eq!(control.conntrack_load(Some("dummy@ovs-dummy")).await.unwrap(), load(1, 1000));
}

#[tokio::test]
async fn a_trace_says_what_would_happen_and_counters_what_did() {
    let ovs = tracking();
    let control = control(&ovs);
    let trace = control.trace("br0", "in_port=1,tcp,nw_src=10.0.0.1").await.unwrap();
    assert!(trace.contains("Datapath actions: ct(commit,zone=5"), "{trace}");
    let error = control.trace("nobridge", "ip").await.unwrap_err();
    assert!(matches!(&error, UnixctlError::Refused { message, .. } if message.contains("unknown bridge")), "{error}");
    assert!(!error.is_transient());
    // The daemon sums its counters up every few seconds.
    let counted = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while control.coverage().await.unwrap().total("bridge_reconfigure") == 0 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(TIMEOUT, counted).await.unwrap();
}

#[tokio::test]
async fn a_missing_daemon_and_a_silent_one_are_different_errors() {
    let ovs = Ovs::start().unwrap();
    let found = find_socket(ovs.dir(), "ovs-vswitchd").unwrap();
    assert_eq!(found, ovs.vswitchd_ctl().unwrap());
    let error = find_socket(ovs.dir(), "ovs-nothing").unwrap_err();
    assert!(matches!(&error, UnixctlError::NotRunning { .. }) && error.is_transient(), "{error}");
    ovs.kill_vswitchd().unwrap();
    let error = call(&found, "version", &[], TIMEOUT).await.unwrap_err();
    assert!(matches!(&error, UnixctlError::Io { .. }) && error.is_transient(), "{error}");
    let socket = ovs.dir().join("mute.ctl");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = call(&socket, "version", &[], Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(&error, UnixctlError::TimedOut { .. }) && error.is_transient(), "{error}");
}

#[tokio::test]
async fn routes_and_neighbours_of_tunnels_are_set_replaced_and_removed() {
    let netns = testkit::Netns::new().unwrap();
    let outside = testkit::Netns::new().unwrap();
    testkit::netns::veth_pair(&netns, "eth0", &outside, "eth0").unwrap();
    netns.add_address("eth0", "192.168.7.1/24").unwrap();
    netns.link_up("eth0").unwrap();
    let ovs = Ovs::start_in(&netns).unwrap();
    let control = control(&ovs);
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let put = async |routes: &[(&str, Option<&str>)]| {
        let routes: Vec<_> = routes.iter().map(|(to, via)| (ip(to), via.map(ip))).collect();
        control.put_tunnel_routes("eth0", &routes).await.unwrap()
    };
    let outcomes =
        put(&[("192.168.7.2", None), ("10.1.1.1", Some("192.168.7.9")), ("10.1.1.2", Some("10.9.9.9"))]).await;
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{outcomes:?}");
    put(&[("10.1.1.1", Some("192.168.7.8"))]).await.remove(0).unwrap();
    let mut routes = control.tunnel_routes().await.unwrap();
    routes.sort_by_key(|route| route.to);
    let seen: Vec<_> = routes.iter().map(|route| (route.to, route.router, route.source)).collect();
    let source = Some(ip("192.168.7.1"));
    let direct = (ip("192.168.7.2"), None, source);
    assert_eq!(seen, [(ip("10.1.1.1"), Some(ip("192.168.7.8")), source), direct]);
    control.remove_tunnel_route("eth0", ip("10.1.1.1"), Some((ip("192.168.7.2"), None))).await.unwrap();
    assert_eq!(control.tunnel_routes().await.unwrap(), [routes[1].clone()]);
    control.remove_tunnel_route("eth0", ip("192.168.7.2"), None).await.unwrap();
    assert_eq!(control.tunnel_routes().await.unwrap(), []);

    for last in [2, 3] {
        let neighbours = [(ip("192.168.7.2"), types::Mac([2, 0, 0, 0, 0, last]))].into();
        control.set_tunnel_neighbours("br0", &neighbours).await.unwrap().remove(0).unwrap();
        assert_eq!(control.tunnel_neighbours("br0").await.unwrap(), neighbours);
        assert!(control.tunnel_neighbours("br1").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn the_features_of_a_datapath_are_read() {
    let ovs = tracking();
    assert!(control(&ovs).datapath_features("br0").await.unwrap().all_zero_snat);
    let unknown = control(&ovs).datapath_features("br9").await;
    assert!(matches!(unknown, Err(UnixctlError::Refused { .. })), "{unknown:?}");
}
