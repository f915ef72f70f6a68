//! The flows of a large Node: compiled from scratch, and after one Pod is added.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use anyhow::{Context, Result};
use benches::memory::Counting;
use benches::{Figure, Goal, median, progress, report};
use delta::State;
use openflow::flow::Flow;
use openflow::port::Port;
use pipeline::Pipeline;
use pipeline::model::{
    Address, Applied, Datapath, Direction, Endpoint, Families, Features, Frontend, FrontendKind, Gateway, IpBlock, Mac,
    Mode, Node, Pod, Ports, Protocol, Rule, RuleKind, ServiceFrontend, ServiceGroup,
};

#[global_allocator]
static MEMORY: Counting = Counting::new();

const PODS: u32 = 1_000;
const SERVICES: u32 = 5_000;
const ENDPOINTS: u32 = 5;
const RULES: u32 = 2_000;
const PEERS: u32 = 200;
/// Number of rules that apply to one Pod.
const RULES_PER_POD: u32 = 2;
const ROUNDS: u32 = 15;

/// Owner of flows and groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    Node,
    Pod(u32),
    Service(u32),
    Rule(u32),
}

fn ip(bits: u32) -> IpAddr {
    Ipv4Addr::from(bits).into()
}

fn node() -> Result<Node> {
    let address = Address {
        node: ip(0xc0a8_4d65),
        gateway: ip(0x0a0a_0001),
        snat: ip(0x0a0a_0002),
        virtual_service: Address::VIRTUAL_SERVICE.into(),
        hairpin: Address::HAIRPIN.into(),
        pod_cidr: "10.10.0.0/16".parse()?,
    };
    Ok(Node {
        mode: Mode::Encap,
        features: Features::default(),
        datapath: Datapath::System,
        gateway: Gateway { port: Port(2), mac: Mac([2, 0, 0, 0, 0, 2]) },
        uplink: None,
        tunnels: vec![Port(1)],
        tunnel_port: None,
        addresses: Families { v4: Some(address), v6: None },
        node_port_addresses: vec![address.node],
        service_cidrs: Vec::new(),
        all_zero_snat: false,
        host_balances: false,
    })
}

fn pod(number: u32) -> Pod {
    let [_, _, high, low] = number.to_be_bytes();
    Pod { port: Port(3 + number), mac: Mac([2, 0, 0, 1, high, low]), addresses: vec![ip(0x0a0a_0100 + number)] }
}

fn service(pipeline: &Pipeline, number: u32) -> (Vec<Flow>, openflow::group::Group) {
    let endpoints = (0..ENDPOINTS).map(|n| {
        let target = number * ENDPOINTS + n;
        let (address, is_local_pod) =
            if n == 0 { (ip(0x0a0a_0100 + target % PODS), true) } else { (ip(0x0a14_0000 + target), false) };
        Endpoint { address, port: 8080, is_local_pod }
    });
    let group = ServiceGroup { id: number + 1, endpoints: endpoints.collect(), affinity: false };
    let kind = FrontendKind::ClusterIp(ip(0x0a60_0000 + number));
    let frontend = ServiceFrontend {
        frontend: Frontend { kind, port: 80, local_only: false, clients: None },
        protocol: Protocol::Tcp,
        group: Some(group.id),
        in_cluster_group: None,
        drops: false,
        affinity: None,
    };
    let mut flows = pipeline.frontend(&frontend, u64::from(number) + 1);
    flows.extend(group.endpoints.iter().flat_map(|endpoint| pipeline.endpoint(Protocol::Tcp, endpoint)));
    (flows, pipeline.group(&group))
}

/// A rule that applies to some of the Pods, in rotation.
fn rule(number: u32, pods: u32) -> Rule {
    let applies = |pod: &u32| (0..RULES_PER_POD).any(|n| (pod * RULES_PER_POD + n) % RULES == number);
    let applied_to: BTreeSet<Applied> =
        (0..pods).filter(applies).map(pod).map(|pod| Applied { port: pod.port, addresses: pod.addresses }).collect();
    let peers = (0..PEERS).map(|peer| IpBlock::from(ip(0x0b00_0000 + number / 4 * PEERS + peer)));
    Rule {
        id: number + 1,
        direction: if number.is_multiple_of(2) { Direction::Ingress } else { Direction::Egress },
        kind: RuleKind::Kubernetes,
        applied_to,
        peers: Some(peers.collect()),
        ports: Some([Ports { protocol: Protocol::Tcp, range: Some((8080, 8080)) }].into()),
    }
}

fn main() -> Result<()> {
    progress(&format!("{PODS} Pods, {SERVICES} Services of {ENDPOINTS} endpoints, {RULES} rules of {PEERS} peers"));
    let before = MEMORY.live();
    MEMORY.reset_peak();
    let start = Instant::now();
    let pipeline = Pipeline::new(node()?);
    let mut state: State<Owner> = State::new(|_| false);
    state.set_flows(&Owner::Node, pipeline.base());
    for number in 0..PODS {
        state.set_flows(&Owner::Pod(number), pipeline.pod(&pod(number)));
    }
    for number in 0..SERVICES {
        let (flows, group) = service(&pipeline, number);
        state.set_groups(&Owner::Service(number), [group]);
        state.set_flows(&Owner::Service(number), flows);
    }
    for number in 0..RULES {
        state.set_flows(&Owner::Rule(number), pipeline.rule(&rule(number, PODS)));
    }
    let took = start.elapsed();
    let bytes = MEMORY.peak().saturating_sub(before);
    let flows = state.desired_flows().count();
    state.begin_resync();
    state.end_resync();
    let patch = state.patch().context("nothing to send")?;
    state.committed(patch);

    let mut times = Vec::new();
    for round in 0..ROUNDS {
        progress(&format!("one more Pod, round {} of {ROUNDS}", round + 1));
        let number = PODS + round;
        let rules: Vec<Rule> =
            (0..RULES_PER_POD).map(|n| rule((number * RULES_PER_POD + n) % RULES, number + 1)).collect();
        let start = Instant::now();
        state.set_flows(&Owner::Pod(number), pipeline.pod(&pod(number)));
        for rule in &rules {
            state.set_flows(&Owner::Rule(rule.id - 1), pipeline.rule(rule));
        }
        let patch = state.patch().context("a new Pod changes nothing")?;
        times.push(start.elapsed());
        state.committed(patch);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (flows, bytes) = (flows as f64, bytes as f64);
    let rate = flows / took.as_secs_f64();
    report(&Figure { name: "compile", unit: "flows/s", ours: rate, peer: None, goal: None });
    report(&Figure {
        name: "bytes-per-flow",
        unit: "B",
        ours: bytes / flows,
        peer: None,
        goal: Some(Goal::Ours(600.0)),
    });
    let ours = median(&times) * 1000.0;
    report(&Figure { name: "add-pod", unit: "ms", ours, peer: None, goal: Some(Goal::Ours(1.0)) });
    Ok(())
}
