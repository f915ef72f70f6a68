//! Traffic during a rollout: connections, datagrams, packets that policies deny, and policies and Pods that change meanwhile.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::until;
use types::meta::Protocol;

use super::versions::NODES;
use crate::lab::{Kube, Lab, TIMEOUT};
use crate::policies::outages::DeniedSender;
use crate::policies::probes::{Server, Target, reached};
use crate::streams::{Noticed, Stream};

/// Interval of the datagrams to each server.
const TICK: Duration = Duration::from_millis(10);
/// Port of the Pods whose policy changes.
const PORT: u16 = 80;

pub(super) const HEAD: &str = "step                          UDP sent  lost  TCP sent  broken  denied sent  passed  policy twice changed in  new Pods in  versions";

/// Pods on all Nodes that exchange messages.
pub(super) struct Traffic<'a> {
    lab: &'a Lab,
    api: &'a Kube,
    client: Netns,
    udp: Vec<Stream>,
    tcp: Vec<Stream>,
    denied: Vec<DeniedSender>,
    /// A Pod on each Node, which the policy that changes selects.
    targets: Vec<Target>,
    _servers: Vec<Server>,
    rounds: Cell<usize>,
}

fn pod(api: &Kube, name: &str, node: &str, app: &str) {
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "pause"}]});
    api.put("default", "v1", "Pod", name, json!({"metadata": {"labels": {"app": app}}, "spec": spec}));
}

/// A policy that lets one application reach another.
fn policy(api: &Kube, name: &str, to: &str, from: &str) {
    let peer = json!({"podSelector": {"matchLabels": {"app": from}}});
    let spec =
        json!({"podSelector": {"matchLabels": {"app": to}}, "policyTypes": ["Ingress"], "ingress": [{"from": [peer]}]});
    api.put("default", "networking.k8s.io/v1", "NetworkPolicy", name, json!({"spec": spec}));
}

impl<'a> Traffic<'a> {
    pub(super) fn start(lab: &'a Lab, api: &'a Kube) -> Self {
        policy(api, "server", "server", "client");
        for (name, node, app) in [("client", NODES[0], "client"), ("stranger", NODES[0], "stranger")] {
            pod(api, name, node, app);
        }
        for node in NODES {
            pod(api, &format!("server-{node}"), node, "server");
            pod(api, &format!("changed-{node}"), node, "changed");
            service(api, node);
        }
        let address = |name: &str| api.until_ready(name).remove(0);
        let [client, stranger] = ["client", "stranger"].map(|name| {
            address(name);
            lab.netns(NODES[0], name)
        });
        let mut traffic = Self {
            lab,
            api,
            client,
            udp: Vec::new(),
            tcp: Vec::new(),
            denied: Vec::new(),
            targets: Vec::new(),
            _servers: Vec::new(),
            rounds: Cell::new(0),
        };
        for node in NODES {
            let name = format!("changed-{node}");
            let ip: IpAddr = address(&name).parse().unwrap();
            traffic.targets.push((ip, Protocol::Tcp, PORT));
            traffic._servers.push(Server::start(&lab.netns(node, &name), &[PORT]));
            traffic.talk(&stranger, node);
        }
        traffic
    }

    /// Messages to a Node's server, directly and by its Service, and packets that it must not receive.
    fn talk(&mut self, stranger: &Netns, node: &str) {
        let name = format!("server-{node}");
        let address = self.api.until_ready(&name).remove(0);
        let server = self.lab.netns(node, &name);
        let ip: IpAddr = address.parse().unwrap();
        let frontend = self.api.object("default", "v1", "Service", node).unwrap();
        let frontend: IpAddr = frontend["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        {
            let _server = Server::start(&server, &[8]);
            let targets = [(ip, Protocol::Tcp, 8), (frontend, Protocol::Tcp, 8)];
            let served = || (reached(&self.client, &targets).len() == 2).then_some(());
            until(format_args!("{name} and its Service"), TIMEOUT, served).unwrap();
        }
        assert!(reached(stranger, &[(ip, Protocol::Udp, 8)]).is_empty(), "{name} is not isolated");
        let at = |ip: IpAddr| SocketAddr::new(ip, 8);
        self.tcp.push(Stream::tcp(&name, &self.client, &server, &address));
        self.tcp.push(Stream::tcp_through(&format!("Service of {name}"), &self.client, &server, at(ip), at(frontend)));
        self.udp.push(Stream::udp_every(TICK, &name, &self.client, &server, &address));
        // Two take turns, so that one is sent at least every 10 ms.
        self.denied.extend([(); 2].map(|()| DeniedSender::start(stranger, &server, &address)));
    }

    /// Runs a step, changes the policy, and starts a Pod on each Node. Returns a row of the table.
    pub(super) fn row(&self, what: &str, step: impl FnOnce()) -> String {
        let (begin, before) = (Instant::now(), self.denied());
        step();
        let policy = self.change_policy();
        let pods = self.start_pods();
        let end = Instant::now();
        let count = |streams: &[Stream]| {
            let counts = streams.iter().map(|stream| stream.between(begin, end));
            counts.fold((0, 0), |(sent, lost), (some, of_them)| (sent + some, lost + of_them))
        };
        let ((udp, udp_lost), (tcp, tcp_lost), denied) = (count(&self.udp), count(&self.tcp), self.denied());
        format!(
            "{what:<28} {udp:>9} {udp_lost:>5} {tcp:>9} {tcp_lost:>7} {:>12} {:>7} {policy:>23.1?} {pods:>12.1?} ",
            denied.0 - before.0,
            denied.1 - before.1
        )
    }

    /// Packets that policies deny: sent, received.
    fn denied(&self) -> (usize, usize) {
        let counts = self.denied.iter().map(|sender| (sender.sender(), sender.received()));
        counts.fold((0, 0), |(sent, received), (some, of_them)| (sent + some, received + of_them))
    }

    /// Denies what was allowed, and allows it again. Returns how long that took on all Nodes.
    fn change_policy(&self) -> Duration {
        let start = Instant::now();
        for (from, expected) in [("missing", 0), ("client", self.targets.len())] {
            policy(self.api, "changed", "changed", from);
            let applied = || (reached(&self.client, &self.targets).len() == expected).then_some(());
            until(format_args!("{expected} Pods are reached on all Nodes"), TIMEOUT, applied).unwrap();
        }
        start.elapsed()
    }

    /// Starts a Pod on each Node, and deletes those of the round before. Returns how long it took until they were reached.
    fn start_pods(&self) -> Duration {
        let (start, round) = (Instant::now(), self.rounds.get());
        self.rounds.set(round + 1);
        for node in NODES {
            pod(self.api, &format!("new-{round}-{node}"), node, "new");
            if let Some(before) = round.checked_sub(1) {
                self.api.try_remove("default", "v1", "Pod", &format!("new-{before}-{node}"));
            }
        }
        for node in NODES {
            let address = self.api.until_ready(&format!("new-{round}-{node}")).remove(0);
            self.lab.exec("client", &["ping", "-n", "-q", "-c", "1", "-w", "10", &address]).unwrap();
        }
        start.elapsed()
    }

    /// Ends all streams: no connection broke, no datagram was lost, no denied packet passed.
    pub(super) fn end(self) {
        let mut wrong = Vec::new();
        for stream in self.tcp.into_iter().chain(self.udp) {
            let Noticed { what, sent, lost, longest, outcome } = stream.end();
            println!("{what}: {sent} messages, {} lost, at most {longest:.0?} between two echoes", lost.len());
            if !lost.is_empty() || outcome.is_err() {
                wrong.push(format!("{what}: {} lost, {outcome:?}", lost.len()));
            }
        }
        let (sent, received) =
            self.denied.into_iter().map(DeniedSender::end).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        println!("{sent} packets that policies deny, {received} of them received");
        assert_eq!((received, wrong), (0, Vec::new()));
    }
}

/// A Service for the server of a Node.
fn service(api: &Kube, node: &str) {
    // One endpoint each, so that the server of a connection is known: the Pod has the name of the Node as a label.
    let label = json!({"metadata": {"labels": {"app": "server", "of": node}}});
    let patch = kube::api::Patch::Merge(label);
    let name = format!("server-{node}");
    api.wait(api.pods().patch(&name, &kube::api::PatchParams::default(), &patch)).unwrap();
    let spec: Value = json!({"selector": {"of": node}, "ports": [{"port": 8, "protocol": "TCP"}]});
    api.apply("v1", "Service", node, json!({"spec": spec}));
}
