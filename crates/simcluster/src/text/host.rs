//! Desired host state of a Node, as text.

use types::host::{Desired, Firewall, Guard, Route, RoutingRule, SwitchTunnel, Virtual};
use types::network::TunnelPackets;

use super::Lines;

/// Routes, addresses, neighbours, settings and firewall of a Node.
pub(crate) fn host(desired: &Desired) -> Lines {
    let Desired { links, addresses, routes, neighbours, rules, unmerged, sysctls, firewall, clear } = desired;
    let mut lines = Lines::new();
    let mut add = |section: &str, line: String| _ = lines.entry(section.to_owned()).or_default().insert(line);
    for (name, link) in links {
        add("link", format!("{name} {}", if link.up { "up" } else { "down" }));
    }
    for device in unmerged {
        add("link", format!("{device} without GRO"));
    }
    for address in addresses {
        add("address", format!("{} dev {}", address.net, address.device));
    }
    for route in routes {
        add("route", self::route(route));
    }
    for neighbour in neighbours {
        add("neighbour", format!("{} lladdr {} dev {}", neighbour.ip, neighbour.mac, neighbour.device));
    }
    for RoutingRule { priority, ipv6, device, mark, mask, table } in rules {
        let family = if *ipv6 { "inet6" } else { "inet" };
        add("rule", format!("{family} {priority} iif {device} fwmark {mark:#x}/{mask:#x} lookup {table}"));
    }
    for address in clear {
        add("no route", address.to_string());
    }
    for (key, value) in sysctls {
        add("sysctl", format!("{key} = {value}"));
    }
    if let Some(firewall) = firewall {
        for line in self::firewall(firewall) {
            add("nftables", line);
        }
    }
    lines
}

fn route(route: &Route) -> String {
    let Route { destination, via, device, onlink, source, mtu, table } = route;
    let via = via.map(|via| format!(" via {via}")).unwrap_or_default();
    let onlink = if *onlink { " onlink" } else { "" };
    let source = source.map(|source| format!(" src {source}")).unwrap_or_default();
    let mtu = mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
    let table = if *table == types::host::MAIN_TABLE { String::new() } else { format!(" table {table}") };
    format!("{destination}{via} dev {device}{onlink}{source}{mtu}{table}")
}

fn firewall(firewall: &Firewall) -> Vec<String> {
    let Firewall {
        gateway,
        masquerade,
        cluster,
        random_ports,
        node_ports,
        virtual_service: Virtual { v4, v6 },
        tunnel_ports,
        switch_tunnel,
        host_mark,
        policy_only,
        guard: Guard { bridged, routed, transport, nodes },
    } = firewall;
    let mut lines = vec![format!("gateway {gateway}")];
    lines.extend(masquerade.iter().map(|net| format!("masquerade {net}")));
    lines.extend(cluster.iter().map(|net| format!("cluster {net}")));
    lines.extend(random_ports.then(|| "random source ports".to_owned()));
    lines.extend(node_ports.iter().map(|port| {
        let protocol = format!("{:?}", port.protocol).to_lowercase();
        format!("NodePort {} {protocol}/{}", port.ip, port.port)
    }));
    lines.extend(v4.map(|ip| format!("virtual Service address {ip}")));
    lines.extend(v6.map(|ip| format!("virtual Service address {ip}")));
    lines.extend(tunnel_ports.iter().map(|port| format!("untracked tunnel port {port}")));
    lines.extend(switch_tunnel.iter().map(|SwitchTunnel { device, packets }| {
        let packets = match packets {
            TunnelPackets::Udp(port) => format!("udp/{port}"),
            TunnelPackets::Gre => "gre".to_owned(),
        };
        format!("{packets} from {device} for the switch only")
    }));
    lines.extend(host_mark.map(|mark| format!("host mark {mark:#x}")));
    lines.extend(bridged.iter().map(|net| format!("source {net} from {gateway} only")));
    lines.extend(routed.iter().map(|net| format!("source {net} from {gateway} and {transport} only")));
    lines.extend(nodes.iter().map(|ip| format!("no tunnel packets of Pods to {ip}")));
    lines.extend(policy_only.iter().map(|policy_only| format!("policy-only {policy_only:?}")));
    lines
}
