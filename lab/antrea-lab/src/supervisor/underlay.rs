//! The underlay network: subnets, the router between them, and the outside.
//!
//! Subnets are Linux bridges in one namespace, where all packets between Nodes can be captured. The router, the Kubernetes
//! API and the outside have a namespace each.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use testkit::Netns;

use crate::plan::{self, Node, Plan, Segment};

/// The namespaces of the underlay.
pub(crate) struct Underlay {
    fabric: Netns,
    router: Netns,
    /// The namespace of the Kubernetes API.
    pub(crate) control: Netns,
    /// The namespace of the host outside of the cluster.
    pub(crate) outside: Netns,
}

impl Underlay {
    /// Builds everything that does not depend on the Nodes.
    pub(crate) fn build(plan: &Plan) -> Result<Self> {
        let this =
            Self { fabric: Netns::new()?, router: Netns::new()?, control: Netns::new()?, outside: Netns::new()? };
        let mut lines = Vec::new();
        for segment in Segment::ALL {
            let bridge = segment.bridge();
            lines.push(format!("link add {bridge} type bridge mcast_snooping 0"));
            lines.push(format!("link set {bridge} addrgenmode none up"));
        }
        this.fabric.ip_batch(&lines)?;
        // Bridged packets must not pass the netfilter hooks of this namespace.
        let bridged = ["ip", "ip6", "arp"].map(|family| format!("net.bridge.bridge-nf-call-{family}tables"));
        for name in bridged.iter().filter(|name| exists(&this.fabric, name)) {
            this.fabric.sysctls(&[(name, "0")])?;
        }
        this.route(plan)?;
        let api = (plan::API, Segment::A.ipv6(2));
        this.attach(&this.control, "control", Segment::A, api)?;
        this.attach(&this.outside, "outside", Segment::Outside, plan::OUTSIDE)?;
        Ok(this)
    }

    /// Connects the namespace of a Node.
    pub(crate) fn connect(&self, node: &Node, netns: &Netns) -> Result<()> {
        self.attach(netns, &node.name, node.segment, (node.ipv4, node.ipv6))
    }

    /// Adds routes to the Pod CIDRs of a Node to the router, if the mode requires them.
    pub(crate) fn route_to(&self, plan: &Plan, node: &Node) -> Result<()> {
        self.router.ip_batch(&pod_routes(plan, node, "replace"))
    }

    /// Disconnects a Node; its namespace may no longer exist.
    pub(crate) fn disconnect(&self, plan: &Plan, node: &Node) -> Result<()> {
        // The kernel removes the namespace, and with it the veth, asynchronously.
        let _ = self.fabric.ip_batch(&[format!("link del {}", node.name)]);
        self.router.ip_batch(&pod_routes(plan, node, "del"))
    }

    /// The namespaces by their names for `antrea-lab node`.
    pub(crate) fn named(&self) -> [(&'static str, &Netns); 4] {
        [("fabric", &self.fabric), ("router", &self.router), ("control", &self.control), ("outside", &self.outside)]
    }

    fn route(&self, plan: &Plan) -> Result<()> {
        self.router.sysctls(&[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")])?;
        let mut lines = Vec::new();
        for segment in Segment::ALL {
            let (v4, v6) = segment.router();
            self.add_veth(segment, &format!("rt-{}", segment.bridge()), &self.router, segment.bridge(), v4)?;
            lines.extend(addresses(segment.bridge(), v4, v6));
        }
        self.router.ip_batch(&lines)?;
        plan.nodes.iter().try_for_each(|node| self.route_to(plan, node))
    }

    /// Adds an interface `eth0` to a namespace, with addresses and the router as the gateway.
    fn attach(&self, netns: &Netns, name: &str, segment: Segment, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> Result<()> {
        self.add_veth(segment, name, netns, "eth0", v4)?;
        let (gateway4, gateway6) = segment.router();
        let mut lines = addresses("eth0", v4, v6).to_vec();
        lines.push(format!("route add default via {gateway4}"));
        lines.push(format!("route add default via {gateway6}"));
        netns.ip_batch(&lines)
    }

    fn add_veth(&self, segment: Segment, here: &str, there: &Netns, name: &str, address: Ipv4Addr) -> Result<()> {
        let (path, mac, bridge) = (there.path(), plan::mac(address), segment.bridge());
        self.fabric.ip_batch(&[
            format!("link add name {here} type veth peer name {name} address {mac} netns {}", path.display()),
            format!("link set {here} master {bridge} addrgenmode none up"),
        ])?;
        // Duplicate address detection would keep an IPv6 address from being used for a second or two.
        there.sysctls(&[(&format!("net.ipv6.conf.{name}.accept_dad"), "0")])
    }
}

fn pod_routes(plan: &Plan, node: &Node, verb: &str) -> Vec<String> {
    let route = |net| format!("route {verb} {net} via {}", node.address_for(net));
    if plan.routes_pod_cidrs() { node.pod_cidrs.iter().map(route).collect() } else { Vec::new() }
}

fn addresses(link: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> [String; 3] {
    [format!("addr add {v4}/24 dev {link}"), format!("addr add {v6}/64 dev {link}"), format!("link set {link} up")]
}

fn exists(netns: &Netns, name: &str) -> bool {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    netns.run(|| std::path::Path::new(&path).exists()).unwrap_or_default()
}
