//! Every kind of Service, client and endpoint location: reachability and the client address that the server sees.
//!
//! The table of it is in docs/services.md; `make codegen` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::json;
use testkit::Netns;
use testkit::process::run;
use testkit::wait::until;

use super::oracle::{Backend, Client, Expected, Kind, expected, is_a_case};
use super::probe::{Outcome, ask_all};
use super::{TARGET, labelled_pod, place, service, set_ingress, teller};
use crate::agent::network;
use crate::documentation;
use crate::lab::{Kube, Lab, TIMEOUT};

/// Number of retries of unexpected results: a busy machine loses packets.
const ROUNDS: usize = 4;

/// A Service of the matrix: its endpoint and its policies.
type Wanted = (Backend, Client, bool);

fn name((backend, client, local): Wanted) -> String {
    let backend = match backend {
        Backend::PodOnNode1 => "pod-1",
        Backend::PodOnNode3 => "pod-3",
        Backend::HostOfNode1 => "host-1",
        Backend::HostOfNode3 => "host-3",
        Backend::None => "missing",
        Backend::Itself if client == Client::PodOnNode1 => "client-1",
        Backend::Itself => "client-2",
    };
    format!("{backend}-{}", if local { "local" } else { "cluster" })
}

/// The number of a Service, for its external addresses.
fn number(name: &str) -> u8 {
    let names = ["pod-1", "pod-3", "host-1", "host-3", "missing", "client-1", "client-2"];
    let index = names.iter().position(|other| name.starts_with(other)).unwrap();
    u8::try_from(10 + 2 * index).unwrap() + u8::from(name.ends_with("local"))
}

fn external(name: &str, load_balancer: bool) -> [IpAddr; 2] {
    let host = number(name);
    let v6 = if load_balancer { 0x2 } else { 0x51 };
    let v4 = if load_balancer { Ipv4Addr::new(192, 0, 2, host) } else { Ipv4Addr::new(198, 51, 100, host) };
    [v4.into(), Ipv6Addr::new(0x2001, 0xdb8, v6, 0, 0, 0, 0, host.into()).into()]
}

fn make_services(api: &Kube) {
    for (name, local) in services() {
        let policy = if local { "Local" } else { "Cluster" };
        let port =
            |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 80, "targetPort": TARGET});
        let spec = json!({
            "type": "LoadBalancer", "selector": {"app": name.rsplit_once('-').unwrap().0},
            "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
            "internalTrafficPolicy": policy, "externalTrafficPolicy": policy,
            "externalIPs": external(&name, false), "ports": [port("tcp", "TCP"), port("udp", "UDP")],
        });
        api.apply("v1", "Service", &name, json!({"spec": spec}));
        set_ingress(api, &name, &external(&name, true));
    }
}

/// All Services of the matrix by name, and whether their policies are Local.
fn services() -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for backend in Backend::ALL {
        for client in [Client::PodOnNode1, Client::PodOnNode2] {
            for local in [false, true] {
                all.insert(name((backend, client, local)), local);
            }
        }
    }
    all
}

/// Where a Service is asked for, IPv4 and IPv6; the ports of TCP and UDP.
fn frontend(api: &Kube, kind: Kind, name: &str) -> ([IpAddr; 2], [u16; 2]) {
    let object = service(api, name);
    let node_ports = [0, 1].map(|n| u16::try_from(object["spec"]["ports"][n]["nodePort"].as_u64().unwrap()).unwrap());
    let cluster_ips = || [0, 1].map(|n| object["spec"]["clusterIPs"][n].as_str().unwrap().parse().unwrap());
    match kind {
        Kind::ClusterIp => (cluster_ips(), [80, 80]),
        Kind::NodePort => ([node(1)[0], node(1)[1]], node_ports),
        Kind::LoadBalancer => (external(name, true), [80, 80]),
        Kind::ExternalIp => (external(name, false), [80, 80]),
    }
}

/// The addresses of a Node.
fn node(number: u8) -> [IpAddr; 2] {
    let (net, host) = (if number == 3 { 2 } else { 1 }, 10 + number);
    let v6 = Ipv6Addr::new(0xfd00, 0x192, 0x168, net, 0, 0, 0, host.into());
    [Ipv4Addr::new(192, 168, u8::try_from(net).unwrap(), host).into(), v6.into()]
}

/// The owner of an address; those of its gateway and of its SNAT belong to a Node too.
fn owner(ip: IpAddr) -> Option<u8> {
    let of_pods = |number: u8| -> [IpAddr; 4] {
        let v6 = |host| Ipv6Addr::new(0xfd00, 0x10, 0x10, number.into(), 0, 0, 0, host).into();
        [Ipv4Addr::new(10, 10, number, 1).into(), Ipv4Addr::new(10, 10, number, 2).into(), v6(1), v6(2)]
    };
    (1..=3).find(|number| node(*number).contains(&ip) || of_pods(*number).contains(&ip))
}

/// Where a client is, and its own addresses.
struct Asking {
    from: Netns,
    own: Vec<IpAddr>,
}

fn clients(lab: &Lab, api: &Kube) -> BTreeMap<Client, Asking> {
    let pod = |name: &str, on: &str| {
        let own = api.until_ready(name).iter().map(|ip| ip.parse().unwrap()).collect();
        Asking { from: lab.netns(on, name), own }
    };
    let host = |number: u8| Asking { from: place(lab, &format!("node-{number}")), own: node(number).to_vec() };
    let outside = ["203.0.113.10", "2001:db8:113::a"].map(|ip| ip.parse().unwrap()).to_vec();
    BTreeMap::from([
        (Client::PodOnNode1, pod("client-1", "node-1")),
        (Client::PodOnNode2, pod("client-2", "node-2")),
        (Client::Node1, host(1)),
        (Client::Node2, host(2)),
        (Client::Outside, Asking { from: place(lab, "outside"), own: outside }),
    ])
}

/// Converts an outcome for the comparison. The entry Node translates connections to its own host to its virtual address.
fn judge(outcome: Outcome, asking: &Asking, entry: u8, backend: Backend) -> Expected {
    match outcome {
        Outcome::Refused => Expected::Refused,
        Outcome::Silent => Expected::Dropped,
        Outcome::Seen(ip) if asking.own.contains(&ip) => Expected::Client,
        Outcome::Seen(ip) => match owner(ip) {
            Some(node) => Expected::Node(node),
            None if backend == Backend::Itself => Expected::Hairpin,
            None => Expected::Node(entry),
        },
    }
}

/// A Node as a client has its own address, whichever it is.
fn of_node(expected: Expected, client: Client) -> Expected {
    match (expected, client) {
        (Expected::Client, Client::Node1) => Expected::Node(1),
        (Expected::Client, Client::Node2) => Expected::Node(2),
        _ => expected,
    }
}

/// One cell of the table: a Service, a kind of frontend, and the results.
struct Case {
    wanted: Wanted,
    kind: Kind,
    /// Any of these outcomes is correct.
    expected: Vec<Expected>,
    targets: Vec<(bool, SocketAddr)>,
    seen: Vec<Expected>,
}

#[test]
fn every_kind_of_service_behaves_as_kubernetes_specifies() {
    let flows = ["ovs-ofctl", "-OOpenFlow15", "dump-flows", "br-int", "table=41"];
    let only = |kind, client, backend, local| vec![expected(kind, client, backend, local)];
    let table = judge_all("matrix", &[], &flows, only);
    documentation::compare("services.md", &table);
}

/// Starts a lab, tests all cases, and compares the results with the oracle. Returns the table. `serves` is a command that prints all
/// Services of a Node.
pub(crate) fn judge_all(
    name_of_lab: &'static str,
    arguments: &[&str],
    serves: &[&str],
    expected: impl Fn(Kind, Client, Backend, bool) -> Vec<Expected>,
) -> String {
    let (lab, api) = network(name_of_lab, 3, arguments);
    let pods = [
        ("client-1", "node-1", None),
        ("client-2", "node-2", None),
        ("pod-1", "node-1", None),
        ("pod-3", "node-3", None),
        ("host-1", "node-1", Some(node(1))),
        ("host-3", "node-3", Some(node(3))),
    ];
    for (name, on, on_host) in pods {
        labelled_pod(&api, name, name, &teller(on, on_host));
    }
    make_services(&api);
    let router = place(&lab, "router");
    for (nets, via) in
        [(["192.0.2.0/24", "198.51.100.0/24"], node(1)[0]), (["2001:db8:2::/64", "2001:db8:51::/64"], node(1)[1])]
    {
        for net in nets {
            run(router.command("ip").args(["route", "add", net, "via", &via.to_string()]), None).unwrap();
        }
    }
    for (name, _, _) in pods {
        api.until_ready(name);
    }
    let clients = clients(&lab, &api);
    let mut cases = BTreeMap::<Client, Vec<Case>>::new();
    for client in Client::ALL {
        for backend in Backend::ALL {
            for (kind, local) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
                if !is_a_case(kind, client, backend) {
                    continue;
                }
                let wanted = (backend, client, local);
                let (addresses, ports) = frontend(&api, kind, &name(wanted));
                let at = |(udp, ip)| (udp, SocketAddr::new(ip, ports[usize::from(udp)]));
                let targets = [false, true].into_iter().flat_map(|udp| addresses.map(|ip| at((udp, ip)))).collect();
                let expected = expected(kind, client, backend, local);
                let expected = expected.into_iter().map(|one| of_node(one, client)).collect();
                cases.entry(client).or_default().push(Case { wanted, kind, expected, targets, seen: Vec::new() });
            }
        }
    }
    until_served(&lab, serves);
    std::thread::scope(|scope| {
        for (client, cases) in &mut cases {
            let asking = &clients[client];
            scope.spawn(move || try_all(*client, asking, cases));
        }
    });
    let table = table(&cases);
    println!("{table}");
    let wrong: Vec<String> = cases.values().flatten().filter_map(complaint).collect();
    assert!(wrong.is_empty(), "not as Kubernetes says:\n{}", wrong.join("\n"));
    table
}

/// Waits until the output of a command has all Services on every Node.
fn until_served(lab: &Lab, serves: &[&str]) {
    let last = external("client-2-local", false)[1].to_string();
    for node in ["node-1", "node-2", "node-3"] {
        let holds = || lab.node(node, serves).ok()?.contains(&last).then_some(());
        until(format_args!("all Services on {node}"), TIMEOUT, holds).unwrap();
    }
}

fn try_all(client: Client, asking: &Asking, cases: &mut [Case]) {
    for _ in 0..ROUNDS {
        let mut open: Vec<&mut Case> =
            cases.iter_mut().filter(|case| case.seen.is_empty() || complaint(case).is_some()).collect();
        let targets: Vec<_> = open.iter().flat_map(|case| case.targets.clone()).collect();
        if targets.is_empty() {
            return;
        }
        let mut outcomes = ask_all(&asking.from, &targets).into_iter();
        for case in &mut open {
            let entry = match (case.kind, client) {
                (Kind::NodePort, _) | (_, Client::PodOnNode1 | Client::Node1 | Client::Outside) => 1,
                _ => 2,
            };
            let judged = outcomes.by_ref().take(case.targets.len());
            case.seen = judged.map(|outcome| of_node(judge(outcome, asking, entry, case.wanted.0), client)).collect();
        }
    }
}

fn complaint(case: &Case) -> Option<String> {
    let (backend, client, local) = case.wanted;
    let wrong = case.seen.iter().zip(&case.targets).filter(|(seen, _)| !case.expected.contains(seen));
    let wrong: Vec<_> =
        wrong.map(|(seen, (udp, to))| format!("{} {to}: {seen}", if *udp { "UDP" } else { "TCP" })).collect();
    let policy = if local { "Local" } else { "Cluster" };
    let (from, kind, to) = (client.title(), case.kind.title(), backend.title());
    (!wrong.is_empty()).then(|| {
        let expected: Vec<String> = case.expected.iter().map(ToString::to_string).collect();
        let (expected, wrong) = (expected.join(" or "), wrong.join(", "));
        format!("from {from} by {kind}, policy {policy}, endpoint {to}: not {expected} but {wrong}")
    })
}

/// The table of the documentation.
fn table(cases: &BTreeMap<Client, Vec<Case>>) -> String {
    let columns: Vec<_> = Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]).collect();
    let mut text = String::from("| client | endpoint |");
    for (kind, local) in &columns {
        let _ = write!(text, " {}, {} |", kind.title(), if *local { "Local" } else { "Cluster" });
    }
    let _ = write!(text, "\n|{}\n", " --- |".repeat(2 + columns.len()));
    for (client, cases) in cases {
        for backend in Backend::ALL {
            let cell = |(kind, local): &(Kind, bool)| {
                let found = cases
                    .iter()
                    .find(|case| case.kind == *kind && (case.wanted.0, case.wanted.2) == (backend, *local))?;
                let mut seen: Vec<String> = found.seen.iter().map(ToString::to_string).collect();
                seen.dedup();
                Some(seen.join("/"))
            };
            let cells: Vec<Option<String>> = columns.iter().map(cell).collect();
            if cells.iter().any(Option::is_some) {
                let cells: Vec<String> = cells.into_iter().map(Option::unwrap_or_default).collect();
                let _ = writeln!(text, "| {} | {} | {} |", client.title(), backend.title(), cells.join(" | "));
            }
        }
    }
    text
}
