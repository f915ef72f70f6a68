//! The state of a Node's kernel: observe, diff, apply, observe.

use std::net::IpAddr;

use host::{Kernel, diff, uplink};
use testkit::{Netns, veth_pair};
use types::host::{Address, Desired, Link, Neighbour, Observed, Op, Route, RoutingRule};

/// A Node with a gateway, whose peer answers nothing, and an uplink.
fn node() -> (Netns, Netns) {
    let (node, outside) = (Netns::new().unwrap(), Netns::new().unwrap());
    veth_pair(&node, "antrea-gw0", &outside, "peer").unwrap();
    veth_pair(&node, "uplink", &outside, "eth0").unwrap();
    for (netns, link) in [(&node, "uplink"), (&outside, "eth0"), (&outside, "peer")] {
        netns.link_up(link).unwrap();
    }
    node.add_address("uplink", "192.168.77.100/24").unwrap();
    (node, outside)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn desired() -> Desired {
    let gateway = "antrea-gw0";
    let address = |net: &str| Address { device: gateway.into(), net: net.parse().unwrap() };
    let neighbour = |text: &str| Neighbour { device: gateway.into(), ip: ip(text), mac: types::Mac::GLOBAL_VIRTUAL };
    let onlink = |to: &str, via: &str| Route::onlink(to.parse().unwrap(), ip(via), gateway);
    Desired {
        links: [(gateway.to_owned(), Link { up: true, mtu: Some(1450), mac: "0a:00:0a:0a:00:01".parse().ok() })].into(),
        addresses: [address("10.10.0.1/24"), address("fd00:10::1/64")].into(),
        routes: [
            onlink("10.10.1.0/24", "10.10.1.1"),
            Route { mtu: Some(1400), source: Some(ip("10.10.0.1")), ..onlink("10.10.2.0/24", "10.10.2.1") },
            onlink("fd00:10:1::/64", "fd00:10:1::1"),
            Route::link("169.254.0.253/32".parse().unwrap(), gateway),
            Route { table: 300, ..onlink("0.0.0.0/0", "169.254.253.1") },
            // A peer in the same subnet that is reached without a tunnel.
            Route { onlink: false, ..Route::onlink("10.10.3.0/24".parse().unwrap(), ip("192.168.77.103"), "uplink") },
        ]
        .into(),
        neighbours: [neighbour("10.10.1.1"), neighbour("10.10.2.1"), neighbour("fd00:10:1::1")].into(),
        rules: [RoutingRule {
            priority: 300,
            ipv6: false,
            device: gateway.into(),
            mark: 0x800,
            mask: 0x800,
            table: 300,
        }]
        .into(),
        sysctls: [
            ("net/ipv4/conf/antrea-gw0/arp_announce".to_owned(), "1".to_owned()),
            ("net/ipv4/ip_forward".to_owned(), "1".to_owned()),
        ]
        .into(),
        ..Desired::default()
    }
}

fn observe(node: &Netns, desired: &Desired) -> Observed {
    node.run(|| Kernel::open().unwrap().observe(desired).unwrap()).unwrap()
}

/// Applies the differences; returns the changes and the errors.
fn settle(node: &Netns, desired: &Desired, sweep: bool) -> (Vec<Op>, Vec<String>) {
    node.run(|| {
        let mut kernel = Kernel::open().unwrap();
        let ops = diff(desired, &kernel.observe(desired).unwrap(), sweep);
        let failures = kernel.apply(&ops);
        (ops, failures.iter().map(ToString::to_string).collect())
    })
    .unwrap()
}

#[test]
fn the_desired_state_is_applied_once() {
    let (node, _outside) = node();
    let desired = desired();
    let (ops, failures) = settle(&node, &desired, true);
    assert_eq!(failures, [""; 0]);
    assert!(ops.len() > 10, "{ops:?}");
    let observed = observe(&node, &desired);
    assert_eq!(observed.links, desired.links);
    assert_eq!(observed.addresses, desired.addresses);
    assert_eq!(observed.routes, desired.routes);
    assert_eq!(observed.neighbours, desired.neighbours);
    assert_eq!(observed.rules, desired.rules);
    assert_eq!(observed.sysctls, desired.sysctls);
    assert_eq!(settle(&node, &desired, true), (vec![], vec![]));

    // As `ip` shows it.
    let routes = node.ip(["route"]).unwrap();
    for route in [
        "10.10.1.0/24 via 10.10.1.1 dev antrea-gw0 proto 167 onlink",
        "10.10.2.0/24 via 10.10.2.1 dev antrea-gw0 proto 167 src 10.10.0.1 onlink mtu 1400",
        "169.254.0.253 dev antrea-gw0 proto 167 scope link",
        "10.10.3.0/24 via 192.168.77.103 dev uplink proto 167",
    ] {
        assert!(routes.lines().any(|line| line.trim() == route), "{route} in\n{routes}");
    }
    let rules = node.ip(["rule"]).unwrap();
    assert!(rules.contains("300:\tfrom all fwmark 0x800/0x800 iif antrea-gw0 lookup 300 proto 167"), "{rules}");
    let neighbours = node.ip(["neigh", "show", "dev", "antrea-gw0"]).unwrap();
    assert!(neighbours.contains("10.10.1.1 lladdr aa:bb:cc:dd:ee:ff PERMANENT proto 167"), "{neighbours}");
}

#[test]
fn every_change_can_be_repeated() {
    let (node, _outside) = node();
    let desired = desired();
    let (ops, _) = settle(&node, &desired, true);
    let repeat = |ops: &[Op]| node.run(|| Kernel::open().unwrap().apply(ops)).unwrap();
    assert!(repeat(&ops).is_empty());
    assert_eq!(settle(&node, &desired, true), (vec![], vec![]));

    let nothing = Desired { links: desired.links.clone(), ..Desired::default() };
    let (removals, failures) = settle(&node, &nothing, true);
    assert_eq!(failures, [""; 0]);
    assert_eq!(repeat(&removals).iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(settle(&node, &nothing, true), (vec![], vec![]));
}

#[test]
fn drift_of_our_objects_is_repaired_and_foreign_objects_are_kept() {
    let (node, _outside) = node();
    let desired = desired();
    settle(&node, &desired, true);
    let before = observe(&node, &desired);
    // Foreign objects.
    let foreign = [
        vec!["route", "add", "10.20.0.0/16", "via", "192.168.77.1", "dev", "uplink"],
        vec!["route", "add", "10.21.0.0/16", "dev", "antrea-gw0", "proto", "static"],
        vec!["neigh", "add", "192.168.77.9", "lladdr", "02:00:00:00:00:09", "dev", "uplink"],
        vec!["addr", "add", "192.168.78.1/24", "dev", "uplink"],
        vec!["rule", "add", "pref", "400", "fwmark", "0x1", "lookup", "400"],
    ];
    for command in &foreign {
        node.ip(command).unwrap();
    }
    // Our objects.
    for command in [
        vec!["route", "del", "10.10.1.0/24"],
        vec!["route", "change", "10.10.2.0/24", "via", "10.10.2.9", "dev", "antrea-gw0", "onlink", "proto", "167"],
        vec!["neigh", "replace", "10.10.1.1", "lladdr", "02:00:00:00:00:01", "dev", "antrea-gw0", "nud", "permanent"],
        vec!["neigh", "replace", "10.10.2.1", "lladdr", "02:00:00:00:00:02", "dev", "antrea-gw0", "nud", "reachable"],
        vec!["neigh", "add", "10.10.9.1", "lladdr", "02:00:00:00:00:03", "dev", "antrea-gw0"],
        vec!["addr", "add", "10.10.0.7/24", "dev", "antrea-gw0"],
        vec!["addr", "del", "fd00:10::1/64", "dev", "antrea-gw0"],
        vec!["link", "set", "antrea-gw0", "mtu", "1300"],
        vec!["rule", "del", "pref", "300"],
    ] {
        node.ip(command).unwrap();
    }
    let (ops, failures) = settle(&node, &desired, true);
    assert_eq!(failures, [""; 0], "{ops:?}");
    assert_eq!(observe(&node, &desired), before);
    for (shown, part) in [
        (node.ip(["route"]), "10.20.0.0/16 via 192.168.77.1 dev uplink"),
        (node.ip(["route"]), "10.21.0.0/16 dev antrea-gw0 proto static"),
        (node.ip(["neigh"]), "192.168.77.9 dev uplink lladdr 02:00:00:00:00:09"),
        (node.ip(["addr"]), "inet 192.168.78.1/24"),
        (node.ip(["rule"]), "400:\tfrom all fwmark 0x1 lookup 400"),
    ] {
        let shown = shown.unwrap();
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn routes_are_restored_after_a_device_was_down() {
    let (node, _outside) = node();
    let desired = desired();
    settle(&node, &desired, true);
    node.ip(["link", "set", "antrea-gw0", "down"]).unwrap();
    assert!(observe(&node, &desired).routes.len() < desired.routes.len());
    let mut rounds = 0;
    while settle(&node, &desired, true) != (vec![], vec![]) {
        rounds += 1;
        assert!(rounds < 3, "still something to do");
    }
    assert_eq!(observe(&node, &desired).routes, desired.routes);
}

#[test]
fn the_gateway_can_change_its_subnet() {
    let (node, _outside) = node();
    let mut desired = desired();
    settle(&node, &desired, true);
    let address = |net: &str| Address { device: "antrea-gw0".into(), net: net.parse().unwrap() };
    desired.addresses = [address("10.10.0.2/24"), address("fd00:10::1/64")].into();
    desired.routes = desired.routes.into_iter().map(|route| Route { source: None, ..route }).collect();
    assert_eq!(settle(&node, &desired, true).1, [""; 0]);
    assert_eq!(settle(&node, &desired, true), (vec![], vec![]));
}

#[test]
fn a_foreign_route_is_named_and_kept() {
    let (node, _outside) = node();
    let theirs = ["route", "add", "10.10.1.0/24", "via", "192.168.77.1", "dev", "uplink", "proto", "static"];
    node.ip(theirs).unwrap();
    let (_, failures) = settle(&node, &desired(), true);
    let expected = "cannot add the route to 10.10.1.0/24: `10.10.1.0/24 via 192.168.77.1 dev uplink proto 4` exists and \
                    is not ours; remove it if it is not needed";
    assert_eq!(failures, [expected]);
    assert!(node.ip(["route"]).unwrap().contains("10.10.1.0/24 via 192.168.77.1 dev uplink proto static"));
    // All others exist, and this one is added after the conflict is gone.
    assert_eq!(observe(&node, &desired()).routes.len(), desired().routes.len() - 1);
    node.ip(["route", "del", "10.10.1.0/24"]).unwrap();
    assert_eq!(settle(&node, &desired(), true).1, [""; 0]);
}

#[test]
fn a_foreign_route_that_leads_the_same_way_becomes_ours() {
    let (node, _outside) = node();
    settle(&node, &desired(), true);
    // As Antrea adds it, without a mark.
    let there = node.ip(["route", "show", "10.10.1.0/24"]).unwrap();
    let same = there.split(" proto").next().unwrap();
    node.ip(["route", "del", "10.10.1.0/24"]).unwrap();
    node.ip(["route", "add"].into_iter().chain(same.split_whitespace()).chain(["onlink"])).unwrap();
    assert_eq!(settle(&node, &desired(), true).1, [""; 0]);
    assert_eq!(node.ip(["route", "show", "10.10.1.0/24"]).unwrap(), there);
}

#[test]
fn errors_name_their_object() {
    let (node, _outside) = node();
    let mut desired = desired();
    desired.links = [("antrea-gw9".to_owned(), Link::default())].into();
    desired.routes = [Route::link("10.10.9.0/24".parse().unwrap(), "nowhere")].into();
    desired.sysctls =
        [("net/ipv4/conf/none/arp".to_owned(), "1".to_owned()), ("../x".to_owned(), "1".to_owned())].into();
    (desired.addresses, desired.neighbours, desired.rules) = Default::default();
    let error = node.run(|| Kernel::open().unwrap().observe(&desired).unwrap_err()).unwrap();
    assert!(error.to_string().starts_with("sysctl `../x`: is not a path below /proc/sys"), "{error}");
    desired.sysctls.remove("../x");
    let (_, failures) = settle(&node, &desired, true);
    let expected = [
        "cannot set sysctl net/ipv4/conf/none/arp to 1: No such file or directory (os error 2)",
        "cannot configure device antrea-gw9: there is no device antrea-gw9",
        "cannot add the route to 10.10.9.0/24 on nowhere: there is no device nowhere",
    ];
    assert_eq!(failures, expected);
}

#[test]
fn thousands_of_routes_are_applied_quickly() {
    let (node, _outside) = node();
    let mut desired = desired();
    let peers = (0..2000_u32).map(|peer| {
        let [_, _, high, low] = peer.to_be_bytes();
        let net = format!("10.{}.{low}.0/24", 100 + high).parse().unwrap();
        Route::onlink(net, format!("10.{}.{low}.1", 100 + high).parse().unwrap(), "antrea-gw0")
    });
    desired.routes.extend(peers);
    assert_eq!(settle(&node, &desired, true).1, [""; 0]);
    assert_eq!(observe(&node, &desired).routes, desired.routes);
    desired.routes.clear();
    assert_eq!(settle(&node, &desired, true).1, [""; 0]);
    assert!(observe(&node, &desired).routes.is_empty());
}

#[test]
fn the_uplink_is_the_device_with_the_nodes_address() {
    let (node, _outside) = node();
    node.ip(["link", "set", "uplink", "mtu", "1400", "address", "02:00:00:00:00:77"]).unwrap();
    let found = node.run(|| uplink::find(ip("192.168.77.100"))).unwrap().unwrap().unwrap();
    assert_eq!(found.device, "uplink");
    assert_eq!(found.address, "192.168.77.100/24".parse().unwrap());
    assert_eq!((found.mtu, found.mac), (1400, "02:00:00:00:00:77".parse().ok()));
    assert_eq!(node.run(|| uplink::find(ip("192.168.77.101"))).unwrap().unwrap(), None);
}

#[test]
fn the_routers_are_the_next_hops_of_default_routes_but_ours() {
    let (node, _outside) = node();
    node.add_address("uplink", "fd77::1/64").unwrap();
    for route in [
        "default via 192.168.77.254 dev uplink",
        "default via 192.168.77.253 dev uplink metric 100",
        "default via fd77::fe dev uplink",
        "10.20.0.0/16 via 192.168.77.252 dev uplink",
        "default via 192.168.77.251 dev uplink table 300",
        "default via 192.168.77.250 dev uplink metric 200 proto 167",
    ] {
        node.ip(["route", "add"].into_iter().chain(route.split(' '))).unwrap();
    }
    let found = node.run(uplink::routers).unwrap().unwrap();
    assert_eq!(found, ["192.168.77.253", "192.168.77.254", "fd77::fe"].map(ip));
}
