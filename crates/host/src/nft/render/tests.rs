use super::*;
use types::host::Virtual;

fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn firewall() -> Firewall {
    let node_port = |ip: &str, protocol, port| NodePort { ip: ip.parse().unwrap(), protocol, port };
    Firewall {
        gateway: "antrea-gw0".into(),
        masquerade: nets(&["10.10.0.0/24", "fd00:10::/64"]),
        cluster: nets(&["10.10.0.0/24", "10.10.1.0/24", "fd00:10::/64"]),
        random_ports: false,
        node_ports: [
            node_port("192.168.77.100", Protocol::Tcp, 30001),
            node_port("127.0.0.1", Protocol::Udp, 30053),
            node_port("fd00:77::100", Protocol::Tcp, 30001),
        ]
        .into(),
        virtual_service: Virtual { v4: "169.254.0.253".parse().ok(), v6: "fc01::aabb:ccdd".parse().ok() },
        tunnel_ports: [6081].into(),
        switch_tunnel: None,
        host_mark: Some(1),
        policy_only: None,
        guard: Guard {
            bridged: nets(&["10.10.0.0/24", "fd00:10::/64"]),
            routed: nets(&["10.10.1.0/24"]),
            transport: "eth0".into(),
            nodes: ["192.168.77.100", "192.168.77.101", "fd00:77::100"].map(|ip| ip.parse().unwrap()).into(),
        },
    }
}

#[test]
fn all_rules_of_a_node() {
    let expected = r#"add table inet antrea
delete table inet antrea
table inet antrea {
	set cluster-pods {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.10.0.0/24, 10.10.1.0/24 }
	}
	set node-ports {
		type ipv4_addr . inet_proto . inet_service
		elements = { 127.0.0.1 . udp . 30053, 192.168.77.100 . tcp . 30001 }
	}
	set bridged-pods {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.10.0.0/24 }
	}
	set routed-pods {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.10.1.0/24 }
	}
	set nodes {
		type ipv4_addr
		elements = { 192.168.77.100, 192.168.77.101 }
	}
	set cluster-pods6 {
		type ipv6_addr
		flags interval
		auto-merge
		elements = { fd00:10::/64 }
	}
	set node-ports6 {
		type ipv6_addr . inet_proto . inet_service
		elements = { fd00:77::100 . tcp . 30001 }
	}
	set bridged-pods6 {
		type ipv6_addr
		flags interval
		auto-merge
		elements = { fd00:10::/64 }
	}
	set routed-pods6 {
		type ipv6_addr
		flags interval
		auto-merge
	}
	set nodes6 {
		type ipv6_addr
		elements = { fd00:77::100 }
	}
	chain raw-prerouting {
		type filter hook prerouting priority raw; policy accept;
		iifname != "lo" ip saddr 127.0.0.0/8 drop
		iifname != "lo" ip daddr 127.0.0.0/8 drop
		iifname != { "lo", "antrea-gw0" } ip saddr @bridged-pods drop
		iifname != { "lo", "antrea-gw0", "eth0" } ip saddr @routed-pods drop
		iifname != { "lo", "antrea-gw0" } ip6 saddr @bridged-pods6 drop
		iifname != { "lo", "antrea-gw0", "eth0" } ip6 saddr @routed-pods6 drop
		udp dport { 6081 } fib daddr type local notrack
	}
	chain raw-output {
		type filter hook output priority raw; policy accept;
		udp dport { 6081 } fib saddr type local notrack
	}
	chain tunnels {
		ct direction reply return
		udp dport { 4789, 6081 } drop
		meta l4proto 47 drop
		tcp dport 7471 drop
	}
	chain filter-input {
		type filter hook input priority filter; policy accept;
		iifname "antrea-gw0" jump tunnels
		ct status dnat jump tunnels
	}
	chain filter-forward {
		type filter hook forward priority filter; policy accept;
		iifname "antrea-gw0" ip daddr @nodes jump tunnels
		iifname "antrea-gw0" ip6 daddr @nodes6 jump tunnels
		ct status dnat ip daddr @nodes jump tunnels
		ct status dnat ip6 daddr @nodes6 jump tunnels
	}
	chain mangle-output {
		type route hook output priority mangle; policy accept;
		oifname "antrea-gw0" fib saddr type local meta mark set meta mark | 0x1
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		iifname != "antrea-gw0" ip daddr . meta l4proto . th dport @node-ports dnat ip to 169.254.0.253
		iifname != "antrea-gw0" ip6 daddr . meta l4proto . th dport @node-ports6 dnat ip6 to fc01::aabb:ccdd
	}
	chain nat-output {
		type nat hook output priority -100; policy accept;
		ip daddr . meta l4proto . th dport @node-ports dnat ip to 169.254.0.253
		ip6 daddr . meta l4proto . th dport @node-ports6 dnat ip6 to fc01::aabb:ccdd
	}
	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname != "antrea-gw0" ip saddr { 10.10.0.0/24 } ip daddr != @cluster-pods masquerade
		oifname != "antrea-gw0" ip6 saddr { fd00:10::/64 } ip6 daddr != @cluster-pods6 masquerade
		ip saddr 169.254.0.253 masquerade
		ip6 saddr fc01::aabb:ccdd masquerade
		oifname "antrea-gw0" fib saddr type local fib saddr . oif type != local masquerade
	}
}
"#;
    assert_eq!(script(&firewall()), expected);
}

#[test]
fn policy_only_mode_marks_services_and_keeps_foreign_marks() {
    let policy_only = PolicyOnly { services: nets(&["10.0.0.0/16"]), mark: 0x800 };
    let firewall =
        Firewall { gateway: "gw0".into(), policy_only: Some(policy_only), random_ports: true, ..Firewall::default() };
    let script = script(&firewall);
    for rule in [
        "iifname \"gw0\" ether saddr de:ad:be:ef:de:ad notrack",
        "iifname \"gw0\" ip daddr { 10.0.0.0/16 } meta mark set meta mark | 0x800",
        "iifname \"gw0\" ip daddr != { 10.0.0.0/16 } meta mark set meta mark & 0xfffff7ff",
        "masquerade fully-random",
    ] {
        assert!(script.contains(rule), "{rule} in\n{script}");
    }
    for absent in ["dnat ip to", "nat-output", "fib daddr type local notrack", "routed-pods drop"] {
        assert!(!script.contains(absent), "{absent} in\n{script}");
    }
}
