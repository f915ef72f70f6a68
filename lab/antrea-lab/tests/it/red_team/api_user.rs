//! Attacks with valid but malicious objects in the API.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use antrea_lab::plan::{API, API_PORT};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::until;

use super::attack::Attacker::{AgentToken, NamespaceEditor, NodeRegistrar, Pod, ServiceCreator};
use super::attack::{Attack, Effect};
use super::field::{Field, NEIGHBOUR};
use crate::lab::TIMEOUT;

/// Addresses that a Node must not lose: the API, a controller, the router, another Node.
const VITAL_ADDRESSES: [&str; 4] = ["192.168.1.2", "192.168.1.3", "192.168.1.1", "192.168.1.12"];
/// A harmless external address of the hostile Service: once it is served, the agent has processed the Service.
const CANARY: &str = "192.0.2.50";
/// How long an object may take to have an effect, good or bad.
const EFFECT: Duration = Duration::from_millis(1000);

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("agent's token reads Pods of others", AgentToken, token),
    Attack::steps("closed Pods by way of Services", Pod, services),
    Attack::steps("a Service with Pods' and Services' addresses", ServiceCreator, stolen_addresses),
    Attack::steps("malformed objects", NamespaceEditor, malformed),
    Attack::steps("a policy with 10,000 ports", NamespaceEditor, many_ports).long(),
    Attack::steps("100,000 endpoints", ServiceCreator, many_endpoints).long(),
    Attack::steps("a Node with another Node's Pod subnet", NodeRegistrar, rogue_subnet),
    Attack::steps("a Node with the Nodes' own subnet", NodeRegistrar, underlay_subnet),
    Attack::steps("a Service with the API's and Nodes' addresses", ServiceCreator, external_ips),
];

/// The vital addresses that the first Node cannot reach.
fn lost(f: &Field) -> Vec<&'static str> {
    let reach = |to: &str| f.node("node-1", &format!("ping -n -c 1 -W 1 {to}")).is_ok();
    VITAL_ADDRESSES.into_iter().filter(|to| !reach(to)).collect()
}

fn cut_off(lost: &[&str]) -> String {
    if lost.is_empty() { String::new() } else { format!("node-1 lost {}", lost.join(", ")) }
}

/// The routes of the first Node.
const ROUTES: &str = "ip route; ip -6 route";
/// The flows of the first Node.
const FLOWS: &str = "ovs-ofctl -O OpenFlow15 dump-flows br-int";

/// Waits until the output of a command on the first Node contains this text; an object without effect is not an error.
fn effect(f: &Field, command: &str, text: &str) {
    let _ = until("an effect", EFFECT, || f.node("node-1", command).ok()?.contains(text).then_some(()));
}

fn external_ips(f: &Field, _: usize) -> Effect {
    let ips: Vec<&str> = VITAL_ADDRESSES.into_iter().chain([CANARY]).collect();
    let ports = json!([{"name": "a", "port": 6443}, {"name": "b", "port": 10349}]);
    let spec = json!({"selector": {"kind": "open"}, "ports": ports, "externalIPs": ips});
    f.api.apply("v1", "Service", "thief", json!({"spec": spec}));
    effect(f, ROUTES, CANARY);
    let lost = lost(f);
    f.api.remove("default", "v1", "Service", "thief");
    let gone = || f.node("node-1", "ip route").is_ok_and(|routes| !routes.contains(CANARY)).then_some(());
    let stays = until("routes without the Service", Duration::from_secs(5), gone).is_err();
    let mut note = cut_off(&lost);
    if stays {
        note += "; the routes stay though the Service is gone";
        for address in ips {
            let _ = f.node("node-1", &format!("ip route del {address} dev antrea-gw0"));
            let _ = f.node("node-2", &format!("ip route del {address} dev antrea-gw0"));
            let _ = f.node("node-3", &format!("ip route del {address} dev antrea-gw0"));
        }
    }
    Effect::new(1, lost.len() + usize::from(stays), note)
}

/// A Service whose endpoints are closed: by its own address, by Nodes' ports and external addresses, from Pods and hosts. Some of
/// these ways give the packets a source of the Node, which policies let in.
fn services(f: &Field, _: usize) -> Effect {
    let ports = json!([{"port": 80, "nodePort": 30_555, "targetPort": 9}]);
    let service = |kind: &str| json!({"spec": {"type": "NodePort", "selector": {"kind": kind}, "ports": ports, "externalIPs": [CANARY]}});
    // The same with open endpoints first, to check that the frontends work.
    f.api.apply("v1", "Service", "ways", service("open"));
    let object = f.api.object("default", "v1", "Service", "ways").unwrap();
    let own: IpAddr = object["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    let nodes =
        ["192.168.1.11", "192.168.1.12", "192.168.2.13"].map(|node| SocketAddr::new(node.parse().unwrap(), 30_555));
    let mut ways = vec![SocketAddr::new(own, 80), SocketAddr::new(CANARY.parse().unwrap(), 80)];
    ways.extend(nodes);
    let mut tries: Vec<(&str, &Netns, SocketAddr)> =
        ways.iter().map(|to| ("evil", &f.pod("evil").netns, *to)).collect();
    tries.extend(nodes.iter().map(|to| ("neighbour", &f.neighbour, *to)));
    let reached = || -> Vec<String> {
        std::thread::scope(|scope| {
            let tried: Vec<_> = tries
                .iter()
                .map(|(who, from, to)| scope.spawn(move || f.reaches(from, *to).then(|| format!("{who} to {to}"))))
                .collect();
            tried.into_iter().filter_map(|tried| tried.join().unwrap()).collect()
        })
    };
    let open = until("all ways to the Service", TIMEOUT, || (reached().len() == tries.len()).then_some(()));
    f.api.apply("v1", "Service", "ways", service("safe"));
    // Connections to the closed Pods are denied as soon as the Service forwards to them.
    let closed = until("no way to closed Pods", Duration::from_secs(4), || reached().is_empty().then_some(()));
    let through = if closed.is_ok() { Vec::new() } else { reached() };
    f.api.remove("default", "v1", "Service", "ways");
    let note = if open.is_err() { "not all ways worked before".to_owned() } else { through.join(", ") };
    Effect::new(tries.len(), through.len() + usize::from(open.is_err()), note)
}

/// External addresses that belong to a Pod and to the cluster's DNS.
fn stolen_addresses(f: &Field, _: usize) -> Effect {
    let (pod, dns) = (f.ip("safe-2").to_string(), "10.96.0.10");
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353}, {"name": "any", "port": 9, "targetPort": 9}]);
    let spec = json!({"selector": {"kind": "thief"}, "ports": ports, "externalIPs": [pod, dns, CANARY]});
    f.api.apply("v1", "Service", "thief", json!({"spec": spec}));
    let labels = json!({"labels": {"kubernetes.io/service-name": "thief"}});
    let endpoint =
        json!([{"addresses": [f.ip("evil").to_string()], "conditions": {"ready": true}, "nodeName": "node-1"}]);
    let slice_ports =
        json!([{"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "any", "port": 9, "protocol": "TCP"}]);
    f.api.apply(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "thief",
        json!({"metadata": labels, "addressType": "IPv4", "endpoints": endpoint, "ports": slice_ports}),
    );
    effect(f, FLOWS, CANARY);
    let friend = f.pod("friend");
    let ask = |to: &str, port: u16| {
        let socket = friend.netns.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        let _ = socket.send_to(b"red-team-stolen", (to, port));
    };
    (0..5).for_each(|_| ask(dns, 53));
    let to_pod = SocketAddr::new(f.ip("safe-2"), 9);
    let reaches = f.reaches(&f.pod("friend-3").netns, to_pod);
    let stolen = f.marked([("evil", f.pod("evil"))].into_iter(), b"red-team-stolen").len();
    f.api.remove("default", "v1", "Service", "thief");
    f.api.try_remove("default", "discovery.k8s.io/v1", "EndpointSlice", "thief");
    let mut notes = Vec::new();
    if stolen > 0 {
        notes.push(format!("{stolen} of 5 questions to the DNS went to the thief"));
    }
    if !reaches {
        notes.push("safe-2 is not reached".to_owned());
    }
    Effect::new(7, notes.len(), notes.join(", "))
}

/// Makes a Node that is none, if the API takes it.
fn register(f: &Field, name: &str, subnets: &[&str]) {
    let spec = json!({"podCIDR": subnets[0], "podCIDRs": subnets});
    let addresses = json!([{"type": "InternalIP", "address": NEIGHBOUR.0.to_string()}]);
    if f.api.try_put("", "v1", "Node", name, json!({"spec": spec})).is_ok() {
        f.api.put_status("v1", "Node", name, json!({"status": {"addresses": addresses}}));
    }
}

fn underlay_subnet(f: &Field, _: usize) -> Effect {
    let (mut all, mut notes) = (0, Vec::new());
    let wide = [&["192.168.1.0/25"][..], &["0.0.0.0/0"], &["192.168.0.0/16", "fd00:192:168::/48"]];
    for subnets in wide {
        register(f, "rogue", subnets);
        effect(f, ROUTES, subnets[0]);
        let lost = lost(f);
        f.api.remove("", "v1", "Node", "rogue");
        all += lost.len();
        if !lost.is_empty() {
            notes.push(format!("{}: {}", subnets[0], cut_off(&lost)));
            // A Node that has lost the API does not hear that the other is gone.
            for node in ["node-1", "node-2", "node-3"] {
                let _ = f.node(node, &format!("ip route del {} dev antrea-gw0", subnets[0]));
                let _ = f.node(node, &format!("ip route del {}", subnets[0]));
            }
        }
    }
    Effect::new(wide.len(), all, notes.join("; "))
}

fn rogue_subnet(f: &Field, _: usize) -> Effect {
    f.neighbour_tap.frames();
    register(f, "a-rogue", &["10.10.2.0/24"]);
    let stolen = |frame: &[u8]| {
        let pod = f.pod("friend").host.v4.octets();
        frame.windows(4).any(|window| window == pod) && frame.get(..6) == Some(&f.mac_of_neighbour())
    };
    let taken = f.neighbour_tap.wait(EFFECT, stolen).is_some();
    f.api.remove("", "v1", "Node", "a-rogue");
    Effect::new(1, usize::from(taken), if taken { "packets to node-2's Pods went to it" } else { "" })
}

/// Requests with the token of the first Node's agent that must be forbidden.
fn token(f: &Field, _: usize) -> Effect {
    let token = std::fs::read_to_string(f.lab.home.token_of("antrea-agent", "node-1")).unwrap();
    let paths = [
        "/api/v1/namespaces/default/pods/safe-2",
        "/api/v1/namespaces/kube-system/pods/any",
        "/api/v1/pods",
        "/api/v1/secrets",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
    ];
    let ask = |path: &&str| {
        let url = format!("https://{API}:{API_PORT}{path}");
        let curl =
            format!("curl -sk --max-time 10 -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {token}' {url}");
        f.node("node-1", &curl).unwrap() != "403"
    };
    let read: Vec<&str> = paths.into_iter().filter(ask).collect();
    Effect::new(
        paths.len(),
        read.len(),
        if read.is_empty() { String::new() } else { format!("may read {}", read.join(", ")) },
    )
}

/// Objects that the API takes, or does not, with values that make no sense.
fn malformed(f: &Field, _: usize) -> Effect {
    let slice = |addresses: Value, ports: Value| {
        json!({"addressType": "IPv4", "metadata": {"labels": {"kubernetes.io/service-name": "odd"}},
               "endpoints": [{"addresses": addresses, "nodeName": "node-1"}], "ports": ports})
    };
    let policy = |spec: Value| ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": spec}));
    let all = json!({"matchLabels": {"kind": "none"}});
    let objects = [
        ("v1", "Service", json!({"spec": {"ports": [{"port": 0}]}})),
        ("v1", "Service", json!({"spec": {"clusterIP": "127.0.0.1", "ports": [{"port": 80}]}})),
        (
            "v1",
            "Service",
            json!({"spec": {"externalIPs": ["0.0.0.0", "127.0.0.1", "224.0.0.1", "garbage", "::"], "ports": [{"port": 80}]}}),
        ),
        (
            "v1",
            "Service",
            json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 2147483647}}, "ports": [{"port": 80}]}}),
        ),
        (
            "v1",
            "Service",
            json!({"spec": {"ports": (1..2000).map(|n| json!({"name": format!("p{n}"), "port": n})).collect::<Vec<_>>()}}),
        ),
        ("discovery.k8s.io/v1", "EndpointSlice", slice(json!(["127.0.0.1"]), json!([{"port": 22}]))),
        ("discovery.k8s.io/v1", "EndpointSlice", slice(json!(["169.254.169.254"]), json!([{"port": 80}]))),
        ("discovery.k8s.io/v1", "EndpointSlice", slice(json!(["garbage", ""]), json!([{"port": 99999}]))),
        ("discovery.k8s.io/v1", "EndpointSlice", slice(json!(["10.10.2.2"]), json!([{}]))),
        ("discovery.k8s.io/v1", "EndpointSlice", slice(json!(["0.0.0.0", "255.255.255.255"]), Value::Null)),
        policy(json!({"podSelector": all, "ingress": [{"from": [{"ipBlock": {"cidr": "garbage"}}]}]})),
        policy(
            json!({"podSelector": all, "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["::/0", "10.0.0.0/33"]}}]}]}),
        ),
        policy(
            json!({"podSelector": all, "ingress": [{"ports": [{"port": 70000}, {"port": 80, "endPort": 1}, {"port": "-", "protocol": "X"}]}]}),
        ),
        policy(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Wrong"}]}})),
        policy(json!({"podSelector": {"matchLabels": {"k".repeat(300): "v".repeat(300)}}})),
        ("v1", "Pod", json!({"spec": {"nodeName": "node-1", "hostNetwork": true, "containers": []}})),
    ];
    let mut taken = 0;
    for (n, (version, kind, object)) in objects.iter().enumerate() {
        taken += usize::from(f.api.try_put("default", version, kind, &format!("odd-{n}"), object.clone()).is_ok());
    }
    register(f, "odd", &["garbage/24"]);
    register(f, "odd-2", &["10.10.200.0/24", "10.10.201.0/24"]);
    effect(f, ROUTES, "10.10.200.0/24");
    let works = f.policies_work();
    let livez = ["node-1", "node-2", "node-3"].into_iter().filter(|node| !f.agent_lives(node)).count();
    for (n, (version, kind, _)) in objects.iter().enumerate() {
        f.api.try_remove("default", version, kind, &format!("odd-{n}"));
    }
    f.api.try_remove("", "v1", "Node", "odd");
    f.api.try_remove("", "v1", "Node", "odd-2");
    let note = format!("{taken} taken by the API{}", if works { "" } else { "; policies no longer work" });
    Effect::new(objects.len() + 2, usize::from(!works) + livez, note)
}

/// Many ports, each of its own, to Pods of all Nodes.
fn many_ports(f: &Field, _: usize) -> Effect {
    let ports: Vec<Value> = (0..10_000).map(|n| json!({"port": 1000 + n * 5})).collect();
    let spec = json!({"podSelector": {"matchLabels": {"kind": "open"}}, "ingress": [{"ports": ports, "from": [{"podSelector": {}}]}]});
    f.api.apply("networking.k8s.io/v1", "NetworkPolicy", "ports", json!({"spec": spec}));
    let closed = || (!f.reaches(&f.pod("evil").netns, SocketAddr::new(f.ip("open-1"), 999))).then_some(());
    let enforced = until("the policy", TIMEOUT, closed).is_ok();
    let open = f.reaches(&f.pod("evil").netns, SocketAddr::new(f.ip("open-1"), 1005));
    f.api.remove("default", "networking.k8s.io/v1", "NetworkPolicy", "ports");
    let reopened = || f.reaches(&f.pod("evil").netns, SocketAddr::new(f.ip("open-1"), 999)).then_some(());
    let gone = until("no policy", TIMEOUT, reopened).is_ok();
    Effect::new(1, [enforced, open, gone].iter().filter(|fine| !**fine).count(), "")
}

/// More endpoints than a switch has room for in one group.
fn many_endpoints(f: &Field, _: usize) -> Effect {
    f.api.apply("v1", "Service", "many", json!({"spec": {"ports": [{"port": 80}]}}));
    let slices = 100;
    for n in 0..slices {
        let address = |m: u32| format!("172.{}.{}.{}", 16 + n / 60, (n % 60) * 4 + m / 250, m % 250 + 1);
        let endpoints: Vec<Value> = (0..1000 / 4 * 4)
            .map(|m| json!({"addresses": [address(m % 750)], "conditions": {"ready": true}}))
            .collect();
        let labels = json!({"labels": {"kubernetes.io/service-name": "many"}});
        let slice = json!({"metadata": labels, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]});
        f.api.apply("discovery.k8s.io/v1", "EndpointSlice", &format!("many-{n}"), slice);
    }
    // An agent may be busy for a moment; one that is silent for longer would be restarted by the kubelet.
    let begun = Instant::now();
    let alive = |node: &&str| {
        until("an agent that answers", Duration::from_secs(15), || f.agent_lives(node).then_some(())).is_ok()
    };
    let dead = 3 - ["node-1", "node-2", "node-3"].iter().filter(|node| alive(node)).count();
    let silent = begun.elapsed().as_secs();
    let works = f.policies_work();
    for n in 0..slices {
        f.api.try_remove("default", "discovery.k8s.io/v1", "EndpointSlice", &format!("many-{n}"));
    }
    f.api.try_remove("default", "v1", "Service", "many");
    Effect::new(100_000, usize::from(!works) + dead, format!("agents answer after {silent} s"))
}
