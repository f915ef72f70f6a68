//! Renders the rules as a script for `nft`. Pure.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::net::IpAddr;

use ipnet::IpNet;
use types::Mac;
use types::host::{FIREWALL_TABLE, Firewall, Guard, NodePort, PolicyOnly, SwitchTunnel};
use types::meta::Protocol;
use types::network::TunnelPackets;

/// The script that replaces the contents of our table.
pub fn script(firewall: &Firewall) -> String {
    let mut script = Script::default();
    script.sets(firewall);
    script.raw(firewall);
    script.tunnels(firewall);
    script.mark(firewall);
    script.node_ports(firewall);
    script.masquerade(firewall);
    // Deleting a missing table fails, and adding an existing one does not.
    let table = format!("inet {FIREWALL_TABLE}");
    format!("add table {table}\ndelete table {table}\ntable {table} {{\n{}}}\n", script.0)
}

#[derive(Default)]
struct Script(String);

impl Script {
    fn line(&mut self, depth: usize, line: impl Display) {
        // Writing to a `String` does not fail.
        let _ = writeln!(self.0, "{}{line}", "\t".repeat(depth));
    }

    /// A chain, unless it would be empty: then packets need not traverse it.
    fn chain(&mut self, name: &str, hook: &str, rules: Vec<String>) {
        if rules.is_empty() {
            return;
        }
        self.line(1, format!("chain {name} {{"));
        self.line(2, format!("type {hook}; policy accept;"));
        rules.into_iter().for_each(|rule| self.line(2, rule));
        self.line(1, "}");
    }

    fn set(&mut self, name: &str, kind: &str, flags: &str, elements: impl IntoIterator<Item = String>) {
        let elements: Vec<_> = elements.into_iter().collect();
        self.line(1, format!("set {name} {{"));
        self.line(2, format!("type {kind}"));
        if !flags.is_empty() {
            self.line(2, flags);
        }
        if !elements.is_empty() {
            self.line(2, format!("elements = {{ {} }}", elements.join(", ")));
        }
        self.line(1, "}");
    }

    /// Sets with the roles of Antrea's ipsets: ANTREA-POD-IP and ANTREA-NODEPORT-IP, with a `6` for IPv6; and those of the guard.
    fn sets(&mut self, firewall: &Firewall) {
        for family in FAMILIES {
            let nets =
                |nets: &BTreeSet<IpNet>| nets.iter().filter(|net| family.has(net.addr())).map(text).collect::<Vec<_>>();
            // Subnets may contain one another; the set then has the larger one.
            let flags = "flags interval\n\t\tauto-merge";
            self.set(&family.name("cluster-pods"), family.address, flags, nets(&firewall.cluster));
            let ports = firewall.node_ports.iter().filter(|port| family.has(port.ip)).map(node_port);
            let kind = format!("{} . inet_proto . inet_service", family.address);
            self.set(&family.name("node-ports"), &kind, "", ports);
            let Guard { bridged, routed, nodes: addresses, .. } = &firewall.guard;
            self.set(&family.name("bridged-pods"), family.address, flags, nets(bridged));
            self.set(&family.name("routed-pods"), family.address, flags, nets(routed));
            let addresses = addresses.iter().filter(|ip| family.has(**ip)).map(ToString::to_string);
            self.set(&family.name("nodes"), family.address, "", addresses);
        }
    }

    /// Drops forged packets before anything else sees them. Packets between Nodes are tracked inside their tunnels.
    fn raw(&mut self, firewall: &Firewall) {
        let ports: Vec<_> = firewall.tunnel_ports.iter().map(ToString::to_string).collect();
        let (mut arriving, mut leaving) = (Vec::new(), Vec::new());
        // `route_localnet` of the gateway, or set by other programs, would let packets from outside reach services on loopback. The
        // host's own connections to 127.0.0.1:nodePort have other addresses outside. The kernel itself protects ::1.
        arriving.push("iifname != \"lo\" ip saddr 127.0.0.0/8 drop".to_owned());
        arriving.push("iifname != \"lo\" ip daddr 127.0.0.0/8 drop".to_owned());
        let (gateway, transport) = (&firewall.gateway, &firewall.guard.transport);
        for family in FAMILIES {
            let (ip, set) = (family.keyword, family.name("bridged-pods"));
            arriving.push(format!("iifname != {{ \"lo\", \"{gateway}\" }} {ip} saddr @{set} drop"));
            if !firewall.guard.routed.is_empty() {
                let set = family.name("routed-pods");
                let devices = format!("{{ \"lo\", \"{gateway}\", \"{transport}\" }}");
                arriving.push(format!("iifname != {devices} {ip} saddr @{set} drop"));
            }
        }
        if let Some(SwitchTunnel { device, packets }) = &firewall.switch_tunnel {
            // The kernel would answer that the port is unreachable.
            let packets = match packets {
                TunnelPackets::Udp(port) => format!("udp dport {port}"),
                TunnelPackets::Gre => format!("meta l4proto {}", Guard::GRE),
            };
            arriving.push(format!("iifname \"{device}\" {packets} fib daddr type local drop"));
        }
        if !ports.is_empty() {
            let ports = ports.join(", ");
            // raw PREROUTING: -p udp --dport 6081 -m addrtype --dst-type LOCAL -j NOTRACK
            arriving.push(format!("udp dport {{ {ports} }} fib daddr type local notrack"));
            // raw OUTPUT: -p udp --dport 6081 -m addrtype --src-type LOCAL -j NOTRACK
            leaving.push(format!("udp dport {{ {ports} }} fib saddr type local notrack"));
        }
        if firewall.policy_only.is_some() {
            // raw PREROUTING: -i antrea-gw0 -m mac --mac-source de:ad:be:ef:de:ad -j CT --notrack
            arriving.push(format!("iifname \"{}\" ether saddr {} notrack", firewall.gateway, Mac::REENTRANCE));
        }
        self.chain("raw-prerouting", "filter hook prerouting priority raw", arriving);
        self.chain("raw-output", "filter hook output priority raw", leaving);
    }

    /// A packet from a Pod to a Node's tunnel would leave the tunnel as if another Node's Pod had sent it. The hooks come after
    /// all address translation, and see whole packets: connection tracking has reassembled fragments before.
    fn tunnels(&mut self, firewall: &Firewall) {
        let ports: BTreeSet<u16> =
            Guard::TUNNEL_PORTS.into_iter().chain(firewall.tunnel_ports.iter().copied()).collect();
        let ports = ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        self.line(1, "chain tunnels {");
        // The reply to a client on a Node that uses one of these ports.
        self.line(2, "ct direction reply return");
        self.line(2, format!("udp dport {{ {ports} }} drop"));
        self.line(2, format!("meta l4proto {} drop", Guard::GRE));
        self.line(2, format!("tcp dport {} drop", Guard::STT_PORT));
        self.line(1, "}");
        let from_pods = format!("iifname \"{}\"", firewall.gateway);
        // An endpoint of a Service must not be a tunnel either, whichever program does the DNAT.
        let origins = [from_pods.as_str(), "ct status dnat"];
        let to_host = origins.map(|origin| format!("{origin} jump tunnels"));
        self.chain("filter-input", "filter hook input priority filter", to_host.into());
        let to_node = |origin: &str, family: &Family| {
            format!("{origin} {} daddr @{} jump tunnels", family.keyword, family.name("nodes"))
        };
        let to_nodes = origins.iter().flat_map(|origin| FAMILIES.iter().map(move |family| to_node(origin, family)));
        self.chain("filter-forward", "filter hook forward priority filter", to_nodes.collect());
    }

    fn mark(&mut self, firewall: &Firewall) {
        let gateway = &firewall.gateway;
        let mut services = Vec::new();
        if let Some(PolicyOnly { services: nets, mark }) = &firewall.policy_only {
            for family in FAMILIES {
                let nets: Vec<_> = nets.iter().filter(|net| family.has(net.addr())).map(text).collect();
                if nets.is_empty() {
                    continue;
                }
                let (ip, nets) = (family.keyword, nets.join(", "));
                // mangle PREROUTING: -i antrea-gw0 -d SERVICES -j MARK --or-mark 0x800
                services
                    .push(format!("iifname \"{gateway}\" {ip} daddr {{ {nets} }} meta mark set meta mark | {mark:#x}"));
                // mangle PREROUTING: -i antrea-gw0 ! -d SERVICES -j MARK --and-mark 0xfffff7ff; other bits are others'
                services.push(format!(
                    "iifname \"{gateway}\" {ip} daddr != {{ {nets} }} meta mark set meta mark & {:#x}",
                    !mark
                ));
            }
        }
        self.chain("mangle-prerouting", "filter hook prerouting priority mangle", services);
        let host = firewall.host_mark.map(|mark| {
            // mangle OUTPUT: -o antrea-gw0 -m addrtype --src-type LOCAL -j MARK --or-mark 0x1
            format!("oifname \"{gateway}\" fib saddr type local meta mark set meta mark | {mark:#x}")
        });
        self.chain("mangle-output", "route hook output priority mangle", host.into_iter().collect());
    }

    fn node_ports(&mut self, firewall: &Firewall) {
        let to = |family: &Family| match family.keyword {
            "ip" => firewall.virtual_service.v4.map(IpAddr::from),
            _ => firewall.virtual_service.v6.map(IpAddr::from),
        };
        let rules = |condition: &str| -> Vec<String> {
            let rule = |family: &Family| {
                let (ip, set) = (family.keyword, family.name("node-ports"));
                let to = to(family)?;
                Some(format!("{condition}{ip} daddr . meta l4proto . th dport @{set} dnat {ip} to {to}"))
            };
            FAMILIES.iter().filter_map(rule).collect()
        };
        // nat PREROUTING: ! -i antrea-gw0 -m set --match-set ANTREA-NODEPORT-IP dst,dst -j DNAT --to-destination VIRTUAL
        let arriving = rules(&format!("iifname != \"{}\" ", firewall.gateway));
        self.chain("nat-prerouting", "nat hook prerouting priority dstnat", arriving);
        // nat OUTPUT: -m set --match-set ANTREA-NODEPORT-IP dst,dst -j DNAT --to-destination VIRTUAL
        self.chain("nat-output", "nat hook output priority -100", rules(""));
    }

    fn masquerade(&mut self, firewall: &Firewall) {
        let gateway = &firewall.gateway;
        let masquerade = if firewall.random_ports { "masquerade fully-random" } else { "masquerade" };
        let mut rules = Vec::new();
        for family in FAMILIES {
            let ip = family.keyword;
            let local: Vec<_> = firewall.masquerade.iter().filter(|net| family.has(net.addr())).map(text).collect();
            if !local.is_empty() {
                // nat POSTROUTING: -s POD-CIDR -m set ! --match-set ANTREA-POD-IP dst ! -o antrea-gw0 -j MASQUERADE
                let (local, set) = (local.join(", "), family.name("cluster-pods"));
                rules.push(format!(
                    "oifname != \"{gateway}\" {ip} saddr {{ {local} }} {ip} daddr != @{set} {masquerade}"
                ));
            }
        }
        let virtuals = firewall.virtual_service;
        for (ip, address) in [("ip", virtuals.v4.map(IpAddr::from)), ("ip6", virtuals.v6.map(IpAddr::from))] {
            // nat POSTROUTING: -s VIRTUAL -j MASQUERADE
            rules.extend(address.map(|address| format!("{ip} saddr {address} {masquerade}")));
        }
        // nat POSTROUTING: -o antrea-gw0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL
        // -j MASQUERADE: packets of the host to Pods and Services from 127.0.0.1 or an address of another device get the
        // gateway's address, so that replies return to it.
        rules.push(format!("oifname \"{gateway}\" fib saddr type local fib saddr . oif type != local {masquerade}"));
        self.chain("nat-postrouting", "nat hook postrouting priority srcnat", rules);
    }
}

struct Family {
    keyword: &'static str,
    address: &'static str,
    suffix: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { keyword: "ip", address: "ipv4_addr", suffix: "" },
    Family { keyword: "ip6", address: "ipv6_addr", suffix: "6" },
];

impl Family {
    fn has(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self.keyword == "ip")
    }

    fn name(&self, set: &str) -> String {
        format!("{set}{}", self.suffix)
    }
}

fn text(net: &IpNet) -> String {
    net.trunc().to_string()
}

fn node_port(NodePort { ip, protocol, port }: &NodePort) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    format!("{ip} . {protocol} . {port}")
}

#[cfg(test)]
mod tests;
