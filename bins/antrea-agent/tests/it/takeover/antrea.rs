//! A Node in the state that Antrea leaves, and connections of its Pods.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use serde_json::json;
use testkit::Netns;
use testkit::process::run;

use super::BROKEN;
use crate::fixture::Node;

/// The round number that Antrea has stored, and that its cookies begin with.
const ROUND: &str = "3";
const COOKIE: &str = "0x3000000000000";
/// Where host-local has its reservations, in Antrea's directory of the Node.
const RESERVATIONS: &str = "cni/networks/antrea";
const SUBNET: &str = "10.10.1.0/24";

/// The flows of Antrea, reduced: connections are tracked in its zone, and everything is forwarded like by a learning switch.
const FLOWS: [&str; 4] = [
    "table=0,priority=200,ip actions=ct(table=105,zone=65520)",
    "table=105,priority=190,ct_state=+new+trk,ip actions=ct(commit,zone=65520),NORMAL",
    "table=105,priority=0 actions=NORMAL",
    "table=0,priority=190,arp actions=NORMAL",
];

/// The chains of Antrea with a rule each, as `iptables-restore` reads them. Without its sets, which need another program.
const RULES: &str = "*raw
:ANTREA-PREROUTING - [0:0]
-A PREROUTING -m comment --comment \"Antrea: jump to Antrea prerouting rules\" -j ANTREA-PREROUTING
-A ANTREA-PREROUTING -p udp -m udp --dport 6081 -m addrtype --dst-type LOCAL -j NOTRACK
COMMIT
*filter
:ANTREA-FORWARD - [0:0]
-A FORWARD -m comment --comment \"Antrea: jump to Antrea forwarding rules\" -j ANTREA-FORWARD
-A ANTREA-FORWARD -m comment --comment \"Antrea: accept packets from local Pods\" -i antrea-gw0 -j ACCEPT
COMMIT
*nat
:ANTREA-POSTROUTING - [0:0]
-A POSTROUTING -m comment --comment \"Antrea: jump to Antrea postrouting rules\" -j ANTREA-POSTROUTING
-A ANTREA-POSTROUTING -m comment --comment \"Antrea: masquerade Pod to external packets\" -s 10.10.1.0/24 ! -o antrea-gw0 -j MASQUERADE
COMMIT
";

/// A Node on which Antrea ran.
pub(super) struct AntreaNode {
    pub(super) node: Node,
    pods: u8,
}

/// A Pod that Antrea has attached.
pub(super) struct AntreaPod {
    pub(super) name: &'static str,
    pub(super) netns: Netns,
    pub(super) ip: IpAddr,
}

impl AntreaNode {
    /// The Node without Pods, and another Node to which it has a route.
    pub(super) fn start() -> Self {
        let node = Node::without_agent("", &[SUBNET]);
        let peer =
            json!({"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]}});
        node.api.local().create("v1", "nodes", "", peer).unwrap();
        let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.2"}]}});
        node.api.local().patch("v1", "nodes", "", "n2", "status", apiserver::Patch::Merge, &addresses).unwrap();

        // Without a port of its own, which `ovs-vsctl add-br` would add.
        let round = format!("external_ids:roundNum={ROUND}");
        let bridge = ["--id=@bridge", "create", "bridge", "name=br-int", "datapath_type=netdev", &round];
        let add = ["--", "add", "open_vswitch", ".", "bridges", "@bridge"];
        node.ovs.vsctl([&["--"], &bridge[..], &add].concat()).unwrap();
        let tunnel = ["type=geneve", "ofport_request=1", "options:key=flow", "options:remote_ip=flow"];
        for (port, kind, settings) in
            [("antrea-tun0", "tunnel", &tunnel[..]), ("antrea-gw0", "gateway", &["type=internal", "ofport_request=2"])]
        {
            let kind = format!("external_ids:antrea-type={kind}");
            let port = ["add-port", "br-int", port, "--", "set", "port", port, &kind, "--", "set", "interface", port];
            node.ovs.vsctl([&port[..], settings].concat()).unwrap();
        }
        node.netns.add_address("antrea-gw0", "10.10.1.1/24").unwrap();
        node.netns.link_up("antrea-gw0").unwrap();
        node.netns.ip(["route", "add", "10.10.2.0/24", "via", "10.10.2.1", "dev", "antrea-gw0", "onlink"]).unwrap();
        for setting in ["net.ipv4.ip_forward=1", "net.ipv4.conf.antrea-gw0.arp_announce=1"] {
            run(node.netns.command("sysctl").args(["-q", "-w", setting]), None).unwrap();
        }
        run(node.netns.command("iptables-nft-restore").arg("--noflush"), Some(RULES)).unwrap();
        fs::create_dir_all(node.file(RESERVATIONS)).unwrap();
        let antrea = Self { node, pods: 0 };
        for flow in FLOWS {
            antrea.add_flow(flow);
        }
        antrea.ofctl(&["add-group", "br-int", "group_id=7,type=select,bucket=actions=resubmit(,105)"]);
        antrea
    }

    fn ofctl(&self, arguments: &[&str]) {
        self.node.ovs.ofctl([&["-O", "OpenFlow15"], arguments].concat()).unwrap();
    }

    fn add_flow(&self, flow: &str) {
        self.ofctl(&["add-flow", "br-int", &format!("cookie={COOKIE},{flow}")]);
    }

    /// Attaches a Pod as Antrea does it. The first one has the address that this agent would reserve.
    pub(super) fn add_pod(&mut self, name: &'static str) -> AntreaPod {
        self.pods += 1;
        let (netns, address) = (Netns::new().unwrap(), format!("10.10.1.{}", self.pods + 1));
        let (device, mac) = (format!("{name}-1a2b3c"), format!("0a:00:0a:0a:01:{:02x}", self.pods + 1));
        testkit::netns::veth_pair(&self.node.netns, &device, &netns, "eth0").unwrap();
        netns.ip(["link", "set", "eth0", "address", &mac]).unwrap();
        netns.add_address("eth0", &format!("{address}/24")).unwrap();
        for (place, device) in [(&netns, "lo"), (&netns, "eth0"), (&self.node.netns, &*device)] {
            place.link_up(device).unwrap();
        }
        netns.ip(["route", "add", "default", "via", "10.10.1.1"]).unwrap();
        run(netns.command("ethtool").args(["-K", "eth0", "tx", "off"]), None).unwrap();
        let container = format!("container-of-{name}");
        let ids = [
            ("antrea-type", "container"),
            ("container-id", &container),
            ("pod-name", name),
            ("pod-namespace", "default"),
            ("ip-address", &address),
            ("attached-mac", &mac),
        ];
        let ids = ids.map(|(key, value)| format!("external_ids:{key}=\"{value}\""));
        let port = ["add-port", "br-int", &device, "--", "set", "port", &device];
        self.node.ovs.vsctl(port.into_iter().chain(ids.iter().map(String::as_str))).unwrap();
        let reservations = self.node.file(RESERVATIONS);
        fs::write(reservations.join(&address), format!("{container}\r\neth0")).unwrap();
        fs::write(reservations.join("last_reserved_ip.0"), &address).unwrap();
        AntreaPod { name, netns, ip: address.parse().unwrap() }
    }

    /// Denies packets from one Pod to another.
    pub(super) fn deny(&self, from: &AntreaPod, to: &AntreaPod) {
        self.add_flow(&format!("table=0,priority=210,ip,nw_src={},nw_dst={} actions=drop", from.ip, to.ip));
    }

    /// What is left of Antrea in the switch and in iptables.
    pub(super) fn traces(&self) -> Vec<String> {
        let mut traces = Vec::new();
        for table in ["dump-flows", "dump-groups"] {
            let dump = self.node.ovs.ofctl(["-O", "OpenFlow15", table, "br-int"]).unwrap();
            let cookie = format!("cookie={COOKIE},");
            let is_left = |line: &&str| line.contains(&cookie) || line.contains("group_id=7,");
            traces.extend(dump.lines().filter(is_left).map(str::to_owned));
        }
        let saved = run(&mut self.node.netns.command("iptables-nft-save"), None).unwrap();
        traces.extend(saved.lines().filter(|line| line.contains("ANTREA")).map(str::to_owned));
        traces
    }
}

/// A TCP connection that stays open.
pub(super) struct Conversation(TcpStream);

impl Conversation {
    /// Connects to an echo server in another namespace.
    pub(super) fn start(from: &Netns, to: &Netns, address: &str) -> Self {
        let listener = to.run(|| TcpListener::bind((address, 7))).unwrap().unwrap();
        let client = from.run(|| TcpStream::connect((address, 7))).unwrap().unwrap();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut byte = [0];
            while peer.read_exact(&mut byte).and_then(|()| peer.write_all(&byte)).is_ok() {}
        });
        client.set_read_timeout(Some(BROKEN)).unwrap();
        let conversation = Self(client);
        conversation.goes_on();
        conversation
    }

    /// Asserts that bytes are echoed.
    pub(super) fn goes_on(&self) {
        for byte in 0..20 {
            (&self.0).write_all(&[byte]).unwrap();
            let mut echo = [0];
            (&self.0).read_exact(&mut echo).unwrap();
            assert_eq!(echo, [byte]);
        }
    }
}
