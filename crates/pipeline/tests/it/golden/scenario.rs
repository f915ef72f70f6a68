//! The scenario that the settings of a fragment describe, and its flows.
//!
//! A setting is words, bare or `name=value`; lists within a value are separated by commas. An unknown word is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use openflow::action::{Action, Learn, LearnSource, LearnSpec, Subfield};
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;
use pipeline::Pipeline;
use pipeline::model::{
    Address, Affinity, Applied, Datapath, Direction, Endpoint, Families, Features, Frontend, FrontendKind, Gateway,
    IpBlock, Mac, Mode, Node, Peer, PeerPath, Pod, Ports, Protocol, Rule, RuleAction, RuleKind, ServiceFrontend,
    ServiceGroup, Uplink,
};

use super::file::{Entry, Fragment, Settings};

/// The words of a setting; each is taken once.
struct Words<'a> {
    whole: &'a str,
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(whole: &'a str) -> Self {
        Self { whole, words: whole.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, ""))).collect() }
    }

    fn flag(&mut self, word: &str) -> bool {
        self.words.remove(word).is_some()
    }

    fn opt<T: FromStr<Err: Debug>>(&mut self, name: &str) -> Option<T> {
        self.list(name).map(|mut list| list.remove(0))
    }

    fn get<T: FromStr<Err: Debug>>(&mut self, name: &str) -> T {
        self.opt(name).unwrap_or_else(|| panic!("`{}` lacks {name}=", self.whole))
    }

    fn list<T: FromStr<Err: Debug>>(&mut self, name: &str) -> Option<Vec<T>> {
        let value = self.words.remove(name)?;
        let parse = |part: &str| part.parse().unwrap_or_else(|e| panic!("`{}`: {name}={part}: {e:?}", self.whole));
        Some(value.split(',').map(parse).collect())
    }

    fn port(&mut self, name: &str) -> Port {
        self.get(name)
    }

    fn mac(&mut self) -> Mac {
        let text: String = self.get("mac");
        let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        Mac(bytes.try_into().unwrap())
    }

    fn protocol(&mut self) -> Protocol {
        let known = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("sctp", Protocol::Sctp)];
        let found = known.into_iter().find(|(name, _)| self.flag(name));
        found.unwrap_or_else(|| panic!("`{}` has no protocol", self.whole)).1
    }

    fn direction(&mut self) -> Direction {
        if self.flag("egress") {
            return Direction::Egress;
        }
        assert!(self.flag("ingress"), "`{}` has no direction", self.whole);
        Direction::Ingress
    }
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.words.is_empty(), "`{}`: {:?} means nothing", self.whole, self.words.keys());
        }
    }
}

/// Settings of one kind.
fn all<'a, T>(settings: &'a Settings, key: &str, parse: impl Fn(&mut Words<'a>) -> T) -> Vec<T> {
    settings.get(key).into_iter().flatten().map(|value| parse(&mut Words::new(value))).collect()
}

fn one<'a, T>(settings: &'a Settings, key: &str, parse: impl Fn(&mut Words<'a>) -> T) -> T {
    let mut values = all(settings, key, parse);
    assert_eq!(values.len(), 1, "one `{key}:` is needed");
    values.remove(0)
}

/// Compiles the scenario of a fragment: the flows in its table, and all groups.
pub(super) fn compile(fragment: &Fragment) -> Vec<Entry> {
    let (flows, groups) = everything(&fragment.settings);
    let here = flows.into_iter().filter(|flow| flow.table == fragment.table);
    here.map(Entry::Flow).chain(groups).collect()
}

/// The tables in which the scenario has flows.
pub(super) fn tables(settings: &Settings) -> Vec<u8> {
    everything(settings).0.iter().map(|flow| flow.table).collect()
}

fn everything(settings: &Settings) -> (Vec<Flow>, Vec<Entry>) {
    let known = "mode feature datapath gateway node virtual tunnel uplink nodeport service-cidr pod peer frontend endpoint \
                 group rule isolated packet whole";
    for key in settings.keys() {
        assert!(known.split(' ').any(|k| k == key), "`{key}:` is not a setting");
    }
    let pipeline = Pipeline::new(node(settings));
    let mut flows = pipeline.base();
    flows.extend(all(settings, "pod", pod).iter().flat_map(|pod| pipeline.pod(pod)));
    for peer in all(settings, "peer", peer) {
        let node = match peer.path {
            PeerPath::Tunnel(node) => [node].into(),
            PeerPath::Route => BTreeSet::new(),
        };
        flows.extend(pipeline.peer(&peer));
        flows.extend(pipeline.peer_node(&node, &[peer]));
    }
    flows.extend(all(settings, "frontend", frontend).iter().flat_map(|(f, cookie)| pipeline.frontend(f, *cookie)));
    flows.extend(all(settings, "endpoint", endpoints).iter().flat_map(|(protocol, endpoints)| {
        endpoints.iter().flat_map(|endpoint| pipeline.endpoint(*protocol, endpoint)).collect::<Vec<_>>()
    }));
    flows.extend(all(settings, "rule", rule).iter().flat_map(|rule| pipeline.rule(rule)));
    flows.extend(all(settings, "isolated", isolated).iter().flat_map(|(d, pod)| pipeline.isolated(*d, pod)));
    for packet in settings.get("packet").into_iter().flatten() {
        let packet: Match = packet.parse().unwrap();
        let learning = flows.iter().flat_map(|flow| &flow.actions).filter_map(|action| match action {
            Action::Learn(learn) => learned(learn, &packet),
            _ => None,
        });
        let learning: Vec<Flow> = learning.collect();
        assert!(!learning.is_empty(), "nothing is learned from `{packet}`");
        flows.extend(learning);
    }
    let groups = all(settings, "group", group).iter().map(|group| Entry::Group(pipeline.group(group))).collect();
    (joined(flows), groups)
}

/// Flows as a switch would have them: clauses with the same match are one flow; otherwise two flows with the same match are
/// the same flow.
fn joined(flows: Vec<Flow>) -> Vec<Flow> {
    let mut whole: Vec<Flow> = Vec::new();
    for flow in flows.into_iter().map(|flow| flow.cookie(0)) {
        let same = |f: &&mut Flow| (f.table, f.priority, &f.matches) == (flow.table, flow.priority, &flow.matches);
        match whole.iter_mut().find(same) {
            None => whole.push(flow),
            Some(there) if flow.actions.iter().all(|action| matches!(action, Action::Conjunction { .. })) => {
                there.actions.extend(flow.actions);
            }
            Some(there) => assert_eq!(*there, flow, "two flows with one match"),
        }
    }
    whole
}

fn node(settings: &Settings) -> Node {
    let mode = one(settings, "mode", |words| {
        let known = [
            ("encap", Mode::Encap),
            ("noEncap", Mode::NoEncap),
            ("hybrid", Mode::Hybrid),
            ("networkPolicyOnly", Mode::NetworkPolicyOnly),
        ];
        known.into_iter().find(|(name, _)| words.flag(name)).unwrap().1
    });
    let features = one(settings, "feature", |words| {
        words.flag("none");
        Features {
            antrea_proxy: words.flag("antreaProxy"),
            proxy_all: words.flag("proxyAll"),
            antrea_policy: words.flag("antreaPolicy"),
        }
    });
    let datapath = one(settings, "datapath", |words| {
        let known = [("system", Datapath::System), ("netdev", Datapath::Netdev), ("windows", Datapath::Windows)];
        known.into_iter().find(|(name, _)| words.flag(name)).unwrap().1
    });
    let (gateway, address) =
        one(settings, "gateway", |words| (Gateway { port: words.port("port"), mac: words.mac() }, words.get("ip")));
    let (virtual_service, hairpin) = one(settings, "virtual", |words| (words.get("service"), words.get("hairpin")));
    let v4 = one(settings, "node", |words| Address {
        node: words.get("ip"),
        gateway: address,
        snat: words.get("snat"),
        virtual_service,
        hairpin,
        pod_cidr: words.get("pods"),
    });
    Node {
        mode,
        features,
        datapath,
        gateway,
        uplink: all(settings, "uplink", |words| Uplink { port: words.port("port") }).pop(),
        tunnels: all(settings, "tunnel", |words| words.port("port")),
        tunnel_port: None,
        addresses: Families { v4: Some(v4), v6: None },
        node_port_addresses: all(settings, "nodeport", |words| words.get("ip")),
        service_cidrs: all(settings, "service-cidr", |words| words.get("cidr")),
        all_zero_snat: false,
        host_balances: false,
    }
}

fn pod(words: &mut Words<'_>) -> Pod {
    Pod { port: words.port("port"), mac: words.mac(), addresses: words.list("ip").unwrap() }
}

fn peer(words: &mut Words<'_>) -> Peer {
    let path = words.opt("tunnel").map_or(PeerPath::Route, PeerPath::Tunnel);
    Peer { pod_cidr: words.get("pods"), gateway: words.get("gateway"), path }
}

fn frontend(words: &mut Words<'_>) -> (ServiceFrontend, u64) {
    let kind = match (words.opt("cluster-ip"), words.opt("external-ip")) {
        (Some(address), _) => FrontendKind::ClusterIp(address),
        (None, Some(address)) => FrontendKind::External(address),
        (None, None) => {
            assert!(words.flag("node-port"), "`{}` is no way into a Service", words.whole);
            FrontendKind::NodePort { ipv6: false }
        }
    };
    let cookie: Option<String> = words.opt("cookie");
    let cookie = cookie.map_or(0, |text| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap());
    let frontend = ServiceFrontend {
        frontend: Frontend { kind, port: words.get("port"), local_only: !words.flag("snat"), clients: None },
        protocol: words.protocol(),
        group: words.opt("group"),
        in_cluster_group: words.opt("in-cluster"),
        drops: false,
        affinity: words.opt("affinity").map(|seconds| Affinity { seconds }),
    };
    (frontend, cookie)
}

fn endpoints(words: &mut Words<'_>) -> (Protocol, Vec<Endpoint>) {
    let is_local_pod = words.flag("local");
    let at: Vec<SocketAddr> = words.list("at").unwrap();
    let endpoint = |at: SocketAddr| Endpoint { address: at.ip(), port: at.port(), is_local_pod };
    (words.protocol(), at.into_iter().map(endpoint).collect())
}

fn group(words: &mut Words<'_>) -> ServiceGroup {
    let at: Vec<SocketAddr> = words.list("at").unwrap();
    let endpoint = |at: SocketAddr| Endpoint { address: at.ip(), port: at.port(), is_local_pod: false };
    ServiceGroup {
        id: words.get("id"),
        endpoints: at.into_iter().map(endpoint).collect(),
        affinity: words.flag("affinity"),
    }
}

/// `3/10.10.1.2`: a Pod by its port and address.
struct PodAt(Applied);

impl FromStr for PodAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, address) = text.split_once('/').ok_or("needs port/address")?;
        let address: IpAddr = address.parse().map_err(|e| format!("{e}"))?;
        Ok(Self(Applied { port: port.parse().map_err(|e| format!("{e}"))?, addresses: vec![address] }))
    }
}

fn isolated(words: &mut Words<'_>) -> (Direction, Applied) {
    let PodAt(pod) = words.get("pod");
    (words.direction(), pod)
}

fn rule(words: &mut Words<'_>) -> Rule {
    let direction = words.direction();
    let actions = [
        ("allow", RuleAction::Allow),
        ("drop", RuleAction::Drop),
        ("reject", RuleAction::Reject),
        ("pass", RuleAction::Pass),
    ];
    let action = actions.into_iter().find(|(name, _)| words.flag(name)).map(|(_, action)| action);
    let kind = match (words.opt("tier"), words.opt("baseline")) {
        (Some(priority), _) => RuleKind::Antrea { priority, action: action.unwrap() },
        (None, Some(priority)) => RuleKind::Baseline { priority, action: action.unwrap() },
        (None, None) => RuleKind::Kubernetes,
    };
    let ports = words.opt("tcp").map(|port| Ports { protocol: Protocol::Tcp, range: Some((port, port)) });
    let peers: Option<Vec<IpAddr>> = words.list("peers");
    let applied: Vec<PodAt> = words.list("pods").unwrap();
    Rule {
        id: words.get("id"),
        direction,
        kind,
        applied_to: applied.into_iter().map(|PodAt(pod)| pod).collect(),
        peers: peers.map(|peers| peers.into_iter().map(IpBlock::from).collect()),
        ports: ports.map(|ports| [ports].into()),
    }
}

/// The flow that a switch would learn from the packet; `None` if the packet lacks a required field.
fn learned(learn: &Learn, packet: &Match) -> Option<Flow> {
    let of_packet = |bits: Subfield| Some((packet.get(bits.field())?.0 & bits.mask()) >> bits.offset());
    let value = |source: &LearnSource| match source {
        LearnSource::Field(bits) => of_packet(*bits),
        LearnSource::Value(value) => Some(*value),
    };
    let mut flow = Flow::at(learn.table, learn.priority);
    flow.hard_timeout = learn.hard_timeout;
    for spec in &learn.specs {
        match spec {
            LearnSpec::Match { dst, src } => flow.matches.set(dst.field(), value(src)?, dst.field().full_mask()),
            LearnSpec::Load { dst, src } => flow.actions.push(Action::load(*dst, value(src)?)),
            LearnSpec::Output(_) => panic!("nothing here learns ports"),
        }
    }
    Some(flow)
}
