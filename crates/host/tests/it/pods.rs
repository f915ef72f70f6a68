//! Attaching, checking and detaching Pod veths.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use host::pod;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Ovs, Process, veth_pair};
use types::host::{PodLink, PodRoute};
use types::network::Datapath;

/// A Pod with addresses of both families, by number.
fn pod(netns: &Netns, number: u8) -> PodLink {
    PodLink {
        netns: netns.path(),
        container_device: "eth0".into(),
        host_device: format!("pod-{number}"),
        mac: format!("0a:00:0a:0a:00:{number:02x}").parse().unwrap(),
        addresses: vec![
            format!("10.10.0.{number}/24").parse().unwrap(),
            format!("fd00:10::{number:x}/64").parse().unwrap(),
        ],
        gateways: vec!["10.10.0.1".parse().unwrap(), "fd00:10::1".parse().unwrap()],
        routes: vec![],
        mtu: 1450,
        datapath: Datapath::Netdev,
    }
}

fn attach(node: &Netns, pod: &PodLink) -> Result<(), host::Error> {
    node.run(|| pod::attach(pod, || {})).unwrap()
}

fn differences(node: &Netns, pod: &PodLink) -> Vec<String> {
    let found = node.run(|| pod::check(pod)).unwrap().unwrap();
    found.iter().map(ToString::to_string).collect()
}

/// Everything that a veth can leave behind in a namespace: devices and chains.
fn traces(netns: &Netns) -> String {
    let chains = run(netns.command("nft").args(["list", "chains"]), None).unwrap();
    format!("{}{}", netns.ip(["-o", "link"]).unwrap(), chains)
}

/// Whether one ping is answered.
fn ping(from: &Netns, to: &str) -> bool {
    from.command("ping").args(["-n", "-c", "1", "-W", "0.4", to]).output().unwrap().status.success()
}

#[test]
fn a_pod_gets_device_addresses_and_routes_and_loses_all_of_them() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let before = (traces(&node), traces(&inside));
    let mut pod = pod(&inside, 2);
    pod.routes = vec![PodRoute { destination: "192.0.2.0/24".parse().unwrap(), via: "10.10.0.9".parse().unwrap() }];
    attach(&node, &pod).unwrap();

    let link = inside.ip(["-d", "link", "show", "eth0"]).unwrap();
    for part in ["mtu 1450", "link/ether 0a:00:0a:0a:00:02", "UP", "veth"] {
        assert!(link.contains(part), "{part} in {link}");
    }
    let addresses = inside.ip(["addr", "show", "eth0"]).unwrap();
    assert!(addresses.contains("inet 10.10.0.2/24 brd 10.10.0.255"), "{addresses}");
    assert!(addresses.contains("inet6 fd00:10::2/64 scope global nodad"), "{addresses}");
    let setting = |key: &str| fs::read_to_string(format!("/proc/sys/net/ipv6/conf/eth0/{key}")).unwrap();
    let settings = inside.run(|| ["accept_dad", "accept_ra", "disable_ipv6"].map(setting)).unwrap();
    assert_eq!(settings, ["0\n", "0\n", "0\n"]);
    let routes = inside.ip(["route"]).unwrap();
    assert!(routes.contains("default via 10.10.0.1 dev eth0"), "{routes}");
    assert!(routes.contains("192.0.2.0/24 via 10.10.0.9 dev eth0"), "{routes}");
    let routes = inside.ip(["-6", "route"]).unwrap();
    assert!(routes.contains("default via fd00:10::1 dev eth0"), "{routes}");
    // The host end forwards packets, and sends none itself.
    let host = node.ip(["addr", "show", "pod-2"]).unwrap();
    assert!(host.contains("mtu 1450") && host.contains("state UP") && !host.contains("inet"), "{host}");
    assert_eq!(differences(&node, &pod), [""; 0]);

    for _ in 0..2 {
        node.run(|| pod::detach("pod-2")).unwrap().unwrap();
        assert_eq!(traces(&node), before.0.clone() + "table netdev antrea {\n}\n");
        assert_eq!(traces(&inside), before.1);
    }
    // Once more: nothing is left that prevents it.
    attach(&node, &pod).unwrap();
    assert_eq!(differences(&node, &pod), [""; 0]);
}

#[test]
fn a_pod_without_ipv6_is_silent_in_ipv6() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut pod = pod(&inside, 2);
    pod.addresses.truncate(1);
    pod.gateways.truncate(1);
    attach(&node, &pod).unwrap();
    let addresses = inside.ip(["addr", "show", "eth0"]).unwrap();
    assert!(addresses.contains("inet 10.10.0.2/24") && !addresses.contains("inet6"), "{addresses}");
    assert_eq!(differences(&node, &pod), [""; 0]);
}

#[test]
fn a_pod_with_a_host_prefix_reaches_its_gateway() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut pod = pod(&inside, 2);
    pod.addresses = vec!["10.10.0.2/32".parse().unwrap(), "fd00:10::2/128".parse().unwrap()];
    attach(&node, &pod).unwrap();
    assert_eq!(differences(&node, &pod), [""; 0]);
    assert!(inside.ip(["route", "get", "192.0.2.1"]).unwrap().contains("via 10.10.0.1 dev eth0 src 10.10.0.2"));
}

#[test]
fn the_kernel_drops_pod_packets_with_the_userspace_datapath() {
    let (node, inside, outside) = (Netns::new().unwrap(), Netns::new().unwrap(), Netns::new().unwrap());
    // A Node that would answer and forward.
    node.add_address("lo", "10.10.0.1/32").unwrap();
    veth_pair(&node, "uplink", &outside, "eth0").unwrap();
    for (netns, link, address) in [(&node, "uplink", "192.0.2.1/24"), (&outside, "eth0", "192.0.2.2/24")] {
        netns.add_address(link, address).unwrap();
        netns.link_up(link).unwrap();
    }
    outside.ip(["route", "add", "default", "via", "192.0.2.1"]).unwrap();
    node.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();

    let mut pod = pod(&inside, 2);
    for (datapath, reached) in [(Datapath::System, true), (Datapath::Netdev, false)] {
        pod.datapath = datapath;
        attach(&node, &pod).unwrap();
        node.ip(["route", "add", "10.10.0.2", "dev", "pod-2"]).unwrap();
        if reached {
            // The route back must work, or the test would show nothing.
            until("an answer", TIMEOUT, || ping(&inside, "10.10.0.1").then_some(())).unwrap();
        }
        assert_eq!(ping(&inside, "10.10.0.1"), reached, "ARP and ping with {datapath:?}");
        // Packets to the device itself, and to an address that a bridge would forward.
        let mac = fs_mac(&node, "pod-2");
        for mac in [mac.as_str(), "01:80:c2:00:00:0e", "01:80:c2:00:00:02", "ff:ff:ff:ff:ff:ff"] {
            inside.ip(["neigh", "replace", "10.10.0.1", "lladdr", mac, "dev", "eth0"]).unwrap();
            let local = ping(&inside, "10.10.0.1");
            let far = ping(&inside, "192.0.2.2");
            if datapath == Datapath::Netdev || mac == fs_mac(&node, "pod-2") {
                assert_eq!((local, far), (reached, reached), "to {mac} with {datapath:?}");
            }
        }
        node.run(|| pod::detach("pod-2")).unwrap().unwrap();
    }
}

fn fs_mac(netns: &Netns, link: &str) -> String {
    let text = netns.ip(["-o", "link", "show", link]).unwrap();
    text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn pods_connect_through_the_userspace_datapath() {
    let node = Netns::new().unwrap();
    let ovs = Ovs::start_in(&node).unwrap();
    ovs.add_bridge("br-int").unwrap();
    // Through connection tracking, which verifies checksums that offloads would leave incomplete.
    let flows =
        ["priority=0,actions=NORMAL".to_owned()].into_iter().chain(["tcp", "tcp6"].into_iter().flat_map(|tcp| {
            let tracked = format!("table=1,{tcp},ct_state=+trk-inv,actions=ct(commit),NORMAL");
            [format!("priority=10,{tcp},actions=ct(table=1)"), tracked]
        }));
    for flow in flows {
        ovs.ofctl(["add-flow", "br-int", &flow]).unwrap();
    }
    let namespaces = [Netns::new().unwrap(), Netns::new().unwrap()];
    for (number, netns) in (2..).zip(&namespaces) {
        let pod = pod(netns, number);
        attach(&node, &pod).unwrap();
        ovs.vsctl(["add-port", "br-int", &pod.host_device]).unwrap();
    }
    let [a, b] = &namespaces;
    for address in ["10.10.0.3", "fd00:10::3"] {
        until("an answer through the switch", TIMEOUT, || ping(a, address).then_some(())).unwrap();
    }
    for server in ["10.10.0.3:80", "[fd00:10::3]:80"] {
        let server: SocketAddr = server.parse().unwrap();
        let listener = b.run(|| std::net::TcpListener::bind(server)).unwrap().unwrap();
        let mut client = a.run(|| std::net::TcpStream::connect_timeout(&server, TIMEOUT)).unwrap().unwrap();
        let mut accepted = listener.accept().unwrap().0;
        accepted.set_read_timeout(Some(TIMEOUT)).unwrap();
        // More than fits into one packet.
        let sent = vec![7; 100_000];
        client.write_all(&sent).unwrap();
        drop(client);
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    }
}

#[test]
fn an_announcement_arrives_at_the_host_end() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let pod = pod(&inside, 2);
    attach(&node, &pod).unwrap();
    let scratch = testkit::Scratch::new().unwrap();
    let said = scratch.path().join("said");
    let mut command = node.command("tcpdump");
    command.args(["-l", "-n", "-e", "-i", "pod-2", "-c", "6", "arp or (icmp6 and ip6[40] == 136)"]);
    command.stdout(fs::File::create(&said).unwrap()).stderr(fs::File::create(scratch.path().join("log")).unwrap());
    let mut tcpdump = Process::spawn(command).unwrap();
    let log = || fs::read_to_string(scratch.path().join("log")).unwrap();
    until("tcpdump to listen", TIMEOUT, || log().contains("listening on").then_some(())).unwrap();
    pod::announce(&pod).unwrap();
    until("all announcements", TIMEOUT, || tcpdump.ended().unwrap()).unwrap();
    let said = fs::read_to_string(said).unwrap();
    let arp = "0a:00:0a:0a:00:02 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Request who-has 10.10.0.2";
    let na = "0a:00:0a:0a:00:02 > 33:33:00:00:00:01, ethertype IPv6 (0x86dd), length 86: fd00:10::2 > ff02::1: ICMP6, \
              neighbor advertisement, tgt is fd00:10::2, length 32";
    for part in [arp, na] {
        assert_eq!(said.lines().filter(|line| line.contains(part)).count(), 3, "{part} in {said}");
    }
    assert!(!said.contains("bad") && !said.contains("wrong"), "{said}");
}

#[test]
fn neighbours_accept_an_announcement() {
    // The kernel of another host checks what tcpdump does not: checksums and hop limits.
    let (other, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut pod = pod(&inside, 2);
    pod.datapath = Datapath::System;
    attach(&other, &pod).unwrap();
    other.add_address("pod-2", "10.10.0.1/24").unwrap();
    other.add_address("pod-2", "fd00:10::1/64").unwrap();
    for ip in ["10.10.0.2", "fd00:10::2"] {
        other.ip(["neigh", "add", ip, "lladdr", "02:02:02:02:02:02", "dev", "pod-2", "nud", "stale"]).unwrap();
    }
    pod::announce(&pod).unwrap();
    let believed = || {
        let text = other.ip(["neigh", "show", "dev", "pod-2"]).unwrap();
        let right = |ip: &str| text.lines().any(|line| line.starts_with(ip) && line.contains("0a:00:0a:0a:00:02"));
        (right("10.10.0.2") && right("fd00:10::2")).then_some(())
    };
    until("the neighbours to update", TIMEOUT, believed).unwrap();
}

#[test]
fn changes_by_others_are_reported() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let pod = pod(&inside, 2);
    attach(&node, &pod).unwrap();
    inside.ip(["link", "set", "eth0", "mtu", "1300", "address", "0a:00:00:00:00:99"]).unwrap();
    inside.ip(["addr", "del", "10.10.0.2/24", "dev", "eth0"]).unwrap();
    inside.ip(["-6", "route", "del", "default"]).unwrap();
    run(inside.command("ethtool").args(["-K", "eth0", "tx", "on"]), None).unwrap();
    node.ip(["link", "set", "pod-2", "down"]).unwrap();
    run(node.command("nft").args(["delete", "chain", "netdev", "antrea", "pod-2"]), None).unwrap();
    let found = differences(&node, &pod);
    let expected = [
        "state of pod-2: expected up, found down",
        "nftables ingress chain pod-2: expected present, found missing",
        "MTU of eth0: expected 1450, found 1300",
        "MAC of eth0: expected 0a:00:0a:0a:00:02, found 0a:00:00:00:00:99",
        "address 10.10.0.2/24 of eth0: expected present, found missing",
        "route 0.0.0.0/0 via 10.10.0.1 of eth0: expected present, found missing",
        "route ::/0 via fd00:10::1 of eth0: expected present, found missing",
        "offload tx of eth0: expected off, found on",
    ];
    assert_eq!(found, expected);

    node.ip(["link", "del", "pod-2"]).unwrap();
    let gone =
        ["device pod-2: expected present, found missing", "device eth0 in the Pod: expected present, found missing"];
    assert_eq!(differences(&node, &pod), gone);
}

#[test]
fn a_failed_attach_leaves_nothing_behind() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    node.ip(["link", "add", "taken", "type", "bridge"]).unwrap();
    inside.ip(["link", "add", "taken", "type", "bridge"]).unwrap();
    let before = (traces(&node), traces(&inside));
    let good = pod(&inside, 2);
    let long = "x".repeat(300);
    let bad: Vec<(PodLink, &str)> = vec![
        (
            PodLink { netns: PathBuf::from("/nowhere/netns"), ..good.clone() },
            "network namespace /nowhere/netns: cannot be",
        ),
        (
            PodLink { host_device: "sixteen-is-great".into(), ..good.clone() },
            "`sixteen-is-great`: is longer than 15 bytes",
        ),
        (PodLink { host_device: long.clone(), ..good.clone() }, "is longer than 15 bytes"),
        (PodLink { container_device: "a/b".into(), ..good.clone() }, "device name `a/b`: has a character other than"),
        (PodLink { container_device: "eth%d".into(), ..good.clone() }, "which the kernel would expand"),
        (PodLink { host_device: String::new(), ..good.clone() }, "device name ``: is empty"),
        (
            PodLink { host_device: "taken".into(), ..good.clone() },
            "cannot create device taken on the host: a device with this name exists; remove it, or use another name",
        ),
        (PodLink { container_device: "taken".into(), ..good.clone() }, "cannot create device taken in /proc/"),
        (PodLink { mtu: 10, ..good.clone() }, "cannot create the veth pair from pod-2 to /proc/"),
        (
            PodLink { gateways: vec!["10.10.0.2".parse().unwrap()], ..good.clone() },
            "cannot add the route 0.0.0.0/0 via 10.10.0.2 of eth0 in /proc/",
        ),
        (
            PodLink { addresses: vec!["127.0.0.0/0".parse().unwrap(), "127.0.0.0/0".parse().unwrap()], ..good.clone() },
            "cannot add the address 127.0.0.0/0 of eth0 in /proc/",
        ),
        (
            PodLink { addresses: vec!["ff02::1/128".parse().unwrap()], ..good.clone() },
            "cannot add the address ff02::1/128",
        ),
    ];
    for (pod, expected) in bad {
        let error = attach(&node, &pod).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let (host, container) = (traces(&node), traces(&inside));
        assert_eq!((host.replace("table netdev antrea {\n}\n", ""), container), before, "after {error}");
    }
    attach(&node, &good).unwrap();
    // A second attach is rejected, and changes nothing.
    assert!(
        attach(&node, &good).unwrap_err().to_string().contains("pod-2 on the host: a device with this name exists")
    );
    assert_eq!(differences(&node, &good), [""; 0]);
}

#[test]
fn a_permission_error_names_the_missing_capabilities() {
    let inside = Netns::new().unwrap();
    let pod = pod(&inside, 2);
    // Capabilities belong to a thread.
    let error = std::thread::spawn(move || {
        Command::new("true").status().unwrap();
        drop_capabilities();
        pod::attach(&pod, || {}).unwrap_err().to_string()
    });
    let error = error.join().unwrap();
    assert!(error.contains("Operation not permitted; this needs root, or the capabilities NET_ADMIN"), "{error}");
}

/// Drops all capabilities of the calling thread only.
fn drop_capabilities() {
    nix::unistd::setfsuid(65534.into());
    #[expect(unsafe_code, reason = "the system call, not the library's function, which is for all threads")]
    let result = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, 65534) };
    assert_eq!(result, 0);
}

#[test]
fn stale_veths_and_chains_are_removed_after_a_crash() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    attach(&node, &pod(&inside, 2)).unwrap();
    let other = Netns::new().unwrap();
    attach(&node, &pod(&other, 3)).unwrap();
    // The Pod's namespace ends, and the veth with it.
    drop(inside);
    let gone = || (!node.ip(["link"]).unwrap().contains("pod-2")).then_some(());
    until("the veth to disappear", TIMEOUT, gone).unwrap();
    let collect = |keep: &[&str]| {
        let keep = keep.iter().map(|name| (*name).to_owned()).collect();
        node.run(|| pod::collect(&keep)).unwrap().unwrap()
    };
    let collected = collect(&["pod-3"]);
    assert!(collected.is_empty() || collected == ["pod-2"], "{collected:?}");
    let chains = run(node.command("nft").args(["list", "chains"]), None).unwrap();
    assert!(!chains.contains("pod-2") && chains.contains("pod-3"), "{chains}");

    // Stale veths are removed, and foreign ones are not.
    let another = Netns::new().unwrap();
    veth_pair(&node, "pod-4", &another, "eth0").unwrap();
    assert_eq!(collect(&[]), ["pod-3"]);
    let links = node.ip(["link"]).unwrap();
    assert!(!links.contains("pod-3") && links.contains("pod-4"), "{links}");
}

#[test]
fn the_host_end_can_be_used_before_the_pods_end_is_ready() {
    let (node, inside) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut seen = None;
    let look = || seen = Some((node.ip(["-o", "link", "show", "pod-2"]), inside.ip(["-o", "addr", "show", "eth0"])));
    node.run(|| pod::attach(&pod(&inside, 2), look)).unwrap().unwrap();
    let (host, container) = seen.unwrap();
    let (host, container) = (host.unwrap(), container.unwrap());
    assert!(host.contains(",UP") && !container.contains("inet"), "{host}{container}");

    // `host_end` is not called without a veth.
    let again = node.run(|| pod::attach(&pod(&inside, 2), || panic!("called without a veth"))).unwrap();
    again.unwrap_err();
}

#[test]
fn concurrent_veths_do_not_disturb_each_other() {
    let node = Netns::new().unwrap();
    let namespaces: Vec<_> = (0..16).map(|_| Netns::new().unwrap()).collect();
    let pods: Vec<_> = (2..).zip(&namespaces).map(|(number, netns)| pod(netns, number)).collect();
    let before = traces(&node);
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| attach(&node, pod).unwrap());
            }
        });
        for pod in &pods {
            assert_eq!(differences(&node, pod), [""; 0]);
        }
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| node.run(|| pod::detach(&pod.host_device)).unwrap().unwrap());
            }
        });
    }
    assert_eq!(traces(&node).replace("table netdev antrea {\n}\n", ""), before);
}

#[test]
fn detaching_an_invalid_device_name_does_nothing() {
    let node = Netns::new().unwrap();
    for name in ["", "a/b", &"x".repeat(300)] {
        node.run(|| pod::detach(name)).unwrap().unwrap();
    }
}
