//! The lab of the attacks: victims with permanent allowed traffic, and attackers of every kind.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Netns;
use testkit::frames::Mac;
use testkit::hostile::Host;

use super::wire::Tap;
use crate::agent::network;
use crate::lab::{Kube, Lab};
use crate::streams::Stream;

/// How long a frame may be under way before it counts as dropped.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// The address of the hostile host on the Nodes' network.
pub(super) const NEIGHBOUR: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(192, 168, 1, 200), Ipv6Addr::new(0xfd00, 0x192, 0x168, 1, 0, 0, 0, 0xc8));
/// The port of allowed traffic.
pub(super) const ALLOWED: u16 = 7;

/// A Pod: name, Node, and value of the label that policies select.
pub(super) type Planned = (&'static str, &'static str, &'static str);
/// `safe` Pods are isolated but for `friend`; `open` ones are not isolated.
const PODS: [Planned; 8] = [
    ("evil", "node-1", "evil"),
    ("safe-1", "node-1", "safe"),
    ("open-1", "node-1", "open"),
    ("safe-2", "node-2", "safe"),
    ("open-2", "node-2", "open"),
    ("friend", "node-2", "friend"),
    ("safe-3", "node-3", "safe"),
    ("friend-3", "node-3", "friend"),
];

/// A Pod that runs.
pub(super) struct Pod {
    pub(super) host: Host,
    pub(super) netns: Netns,
    pub(super) tap: Tap,
}

/// How Pods' packets travel between Nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Encap,
    Vxlan,
    Gre,
    NoEncap,
    Hybrid,
}

impl Mode {
    pub(super) const ALL: &[Self] = &[Self::Encap, Self::Vxlan, Self::Gre, Self::NoEncap, Self::Hybrid];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Encap => "encap",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::NoEncap => "noencap",
            Self::Hybrid => "hybrid",
        }
    }

    fn arguments(self) -> [&'static str; 2] {
        match self {
            Self::Vxlan | Self::Gre => ["--tunnel", self.name()],
            mode => ["--mode", mode.name()],
        }
    }
}

pub(super) struct Field {
    pub(super) mode: Mode,
    pub(super) lab: Lab,
    pub(super) api: Kube,
    pub(super) pods: BTreeMap<&'static str, Pod>,
    /// The gateway of the first Node.
    pub(super) gateway: Host,
    /// A host on the Nodes' network.
    pub(super) neighbour: Netns,
    pub(super) neighbour_tap: Tap,
    pub(super) outside_tap: Tap,
    outside_mac: Mac,
    pub(super) streams: Vec<Stream>,
}

impl Field {
    pub(super) fn start(name: &'static str, mode: Mode) -> Self {
        let (lab, api) = network(name, 3, &mode.arguments());
        for (name, node, kind) in PODS {
            let container = json!({"name": "c", "image": "pause"});
            let spec = json!({"nodeName": node, "containers": [container]});
            api.apply("v1", "Pod", name, json!({"metadata": {"labels": {"kind": kind}}, "spec": spec}));
        }
        let from = json!([{"podSelector": {"matchLabels": {"kind": "friend"}}}]);
        let spec = json!({"podSelector": {"matchLabels": {"kind": "safe"}}, "ingress": [{"from": from}]});
        api.apply("networking.k8s.io/v1", "NetworkPolicy", "safe", json!({"spec": spec}));
        let pods: BTreeMap<_, _> =
            PODS.iter().map(|(name, node, _)| (*name, Pod::find(&lab, &api, name, node))).collect();
        let gateway = gateway(&lab, &pods["safe-1"].host);
        let neighbour = neighbour(&lab);
        let neighbour_tap = Tap::open(&neighbour, "eth0");
        let outside = lab.underlay("outside");
        let outside_tap = Tap::open(&outside, "eth0");
        let outside_mac = mac(&outside.ip(["-j", "link", "show", "eth0"]).unwrap());
        let mut field = Self {
            mode,
            lab,
            api,
            pods,
            gateway,
            neighbour,
            neighbour_tap,
            outside_tap,
            outside_mac,
            streams: Vec::new(),
        };
        field.settle();
        field.streams = field.allowed();
        field
    }

    /// Waits until the policy is enforced and allowed connections work.
    fn settle(&self) {
        let (evil, friend) = (&self.pod("evil").netns, &self.pod("friend").netns);
        for safe in ["safe-1", "safe-2", "safe-3"] {
            let to = SocketAddr::new(self.ip(safe), 9);
            testkit::wait::until(format_args!("{safe} is isolated"), crate::lab::TIMEOUT, || {
                // Refused means that it was reached.
                (!self.reaches(evil, to) && self.reaches(friend, to)).then_some(())
            })
            .unwrap();
        }
    }

    /// Whether a connection is accepted or refused, but not lost.
    pub(super) fn reaches(&self, from: &Netns, to: SocketAddr) -> bool {
        let connected = from.run(|| std::net::TcpStream::connect_timeout(&to, Duration::from_millis(600))).unwrap();
        match connected {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        }
    }

    /// Whether a policy that is made now is enforced soon, and is gone when it is gone.
    pub(super) fn policies_work(&self) -> bool {
        let (evil, to) = (&self.pod("evil").netns, SocketAddr::new(self.ip("open-2"), 9));
        let becomes = |open: bool| {
            let so = || (self.reaches(evil, to) == open).then_some(());
            testkit::wait::until("a policy takes effect", Duration::from_secs(15), so).is_ok()
        };
        let spec = json!({"podSelector": {"matchLabels": {"kind": "open"}}, "policyTypes": ["Ingress"]});
        self.api.apply("networking.k8s.io/v1", "NetworkPolicy", "probe", json!({"spec": spec}));
        let closes = becomes(false);
        self.api.remove("default", "networking.k8s.io/v1", "NetworkPolicy", "probe");
        closes && becomes(true)
    }

    /// Whether `/livez` of a Node's agent succeeds.
    pub(super) fn agent_lives(&self, node: &str) -> bool {
        self.node(node, "curl -sf --max-time 3 http://127.0.0.1:10350/livez").is_ok()
    }

    fn allowed(&self) -> Vec<Stream> {
        let mut streams = Vec::new();
        for (from, to) in [("friend", "safe-1"), ("friend", "safe-3"), ("friend-3", "safe-2")] {
            let (client, server) = (&self.pod(from).netns, &self.pod(to).netns);
            let address = self.pod(to).host.v4.to_string();
            let what = format!("{from} to {to}");
            streams.push(Stream::udp(&what, client, server, &address));
            streams.push(Stream::tcp(&what, client, server, &address));
        }
        streams
    }

    pub(super) fn pod(&self, name: &str) -> &Pod {
        &self.pods[name]
    }

    /// A Pod's IPv4 address.
    pub(super) fn ip(&self, pod: &str) -> IpAddr {
        self.pod(pod).host.v4.into()
    }

    /// The MAC by which a Node of the first subnet is reached on the Nodes' network.
    pub(super) fn node_mac(&self, node: u8) -> Mac {
        [0x0a, 0, 192, 168, 1, 10 + node]
    }

    pub(super) fn router_mac(&self) -> Mac {
        [0x0a, 0, 192, 168, 1, 1]
    }

    /// The frame of a packet from outside, to the router.
    pub(super) fn outside_frame(&self, packet: &[u8]) -> Vec<u8> {
        testkit::frames::ethernet_ip(self.outside_mac, [0x0a, 0, 203, 0, 113, 1], packet)
    }

    pub(super) fn mac_of_neighbour(&self) -> Mac {
        mac(&self.neighbour.ip(["-j", "link", "show", "eth0"]).unwrap())
    }

    /// Runs a command in a Node.
    pub(super) fn node(&self, node: &str, command: &str) -> Result<String, String> {
        self.lab.node(node, &["sh", "-c", command])
    }

    pub(super) fn node_netns(&self, node: &str) -> Netns {
        Netns::open(&PathBuf::from(format!("/proc/{}/ns/net", self.lab.node_init(node)))).unwrap()
    }

    /// Pods that must not get anything from an attacker.
    pub(super) fn victims(&self) -> impl Iterator<Item = (&'static str, &Pod)> {
        self.pods.iter().filter(|(name, _)| name.starts_with("safe")).map(|(name, pod)| (*name, pod))
    }

    /// Discards the frames that Pods have received so far.
    pub(super) fn drain(&self) {
        self.pods.values().for_each(|pod| drop(pod.tap.frames()));
        self.neighbour_tap.frames();
    }

    /// Which of these Pods have got a frame with this mark, each as often as it has.
    pub(super) fn marked<'a>(
        &self,
        pods: impl Iterator<Item = (&'static str, &'a Pod)>,
        mark: &[u8],
    ) -> Vec<&'static str> {
        let end = Instant::now() + UNDER_WAY;
        let has = |frame: &[u8]| frame.windows(mark.len()).any(|window| window == mark);
        let mut found = Vec::new();
        for (name, pod) in pods {
            // All wait for the same moment.
            found.extend(std::iter::repeat_n(name, pod.tap.count(end, has)));
        }
        found
    }
}

impl Pod {
    fn find(lab: &Lab, api: &Kube, name: &str, node: &str) -> Self {
        let ips: Vec<IpAddr> = api.until_ready(name).iter().map(|ip| ip.parse().unwrap()).collect();
        let [IpAddr::V4(v4), IpAddr::V6(v6)] = ips[..] else { panic!("{name} has the addresses {ips:?}") };
        let netns = lab.netns(node, name);
        let mac = mac(&netns.ip(["-j", "link", "show", "eth0"]).unwrap());
        let tap = Tap::open(&netns, "eth0");
        Self { host: Host { mac, v4, v6 }, netns, tap }
    }
}

/// The MAC in the output of `ip -j link show`.
pub(super) fn mac(text: &str) -> Mac {
    let links: Value = serde_json::from_str(text).unwrap();
    let bytes = links[0]["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

/// The gateway of the Node of a Pod.
fn gateway(lab: &Lab, pod: &Host) -> Host {
    let text = lab.node("node-1", &["ip", "-j", "link", "show", "antrea-gw0"]).unwrap();
    let (mut v4, mut v6) = (pod.v4.octets(), pod.v6.octets());
    v4[3] = 1;
    v6[8..].copy_from_slice(&1u64.to_be_bytes());
    Host { mac: mac(&text), v4: v4.into(), v6: v6.into() }
}

/// A host plugged into the Nodes' network.
fn neighbour(lab: &Lab) -> Netns {
    let (fabric, netns) = (lab.underlay("fabric"), Netns::new().unwrap());
    testkit::veth_pair(&fabric, "neighbour", &netns, "eth0").unwrap();
    fabric.ip(["link", "set", "neighbour", "master", "br-a", "up"]).unwrap();
    netns.add_address("eth0", &format!("{}/24", NEIGHBOUR.0)).unwrap();
    netns.add_address("eth0", &format!("{}/64", NEIGHBOUR.1)).unwrap();
    netns.offloads_off("eth0").unwrap();
    netns.link_up("eth0").unwrap();
    netns.ip(["route", "add", "default", "via", "192.168.1.1"]).unwrap();
    netns
}
