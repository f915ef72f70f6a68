//! What happens to Services while they are used: connections spread, clients keep their endpoints, endpoints come and go,
//! agents die.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::until;

use super::{labelled_pod, place, service, set_ingress};
use crate::agent::network;
use crate::lab::{Kube, Lab, PATIENCE, pause};

/// How long an answer may take on a machine that is busy.
const LATE: Duration = Duration::from_secs(5);

fn times(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

/// Servers of our own: one address each on the loopback of a Pod would not be reached, so each is a port of the Pod.
struct Servers {
    address: IpAddr,
    ports: Vec<u16>,
    stop: std::sync::Arc<AtomicBool>,
}

impl Servers {
    /// Each tells its port by TCP and UDP to whoever asks, and echoes what it is sent afterwards.
    fn start(netns: &Netns, address: IpAddr, count: u16) -> Self {
        let ports: Vec<u16> = (7000..7000 + count).collect();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        for port in &ports {
            let at = SocketAddr::new(address, *port);
            let (tcp, udp) =
                netns.run(|| (std::net::TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())).unwrap();
            udp.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let (port, ended) = (*port, std::sync::Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((_, from)) = udp.recv_from(&mut buffer) {
                        let _ = udp.send_to(&port.to_be_bytes(), from);
                    }
                }
            });
            std::thread::spawn(move || {
                for stream in tcp.incoming().map_while(Result::ok) {
                    std::thread::spawn(move || tell_and_echo(stream, port));
                }
            });
        }
        Self { address, ports, stop }
    }

    /// An EndpointSlice of a Service with these of them. One slice can say one port only, so each has a slice of its own.
    fn slices(&self, service: &str, protocol: &str, ports: &[u16]) -> Vec<Value> {
        let slice = |port: &u16| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": format!("{service}-{port}"), "labels": {"kubernetes.io/service-name": service}},
                "endpoints": [{"addresses": [self.address], "conditions": {"ready": true}, "nodeName": "node-2"}],
                "ports": [{"port": port, "protocol": protocol}],
            })
        };
        ports.iter().map(slice).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn tell_and_echo(mut stream: TcpStream, port: u16) {
    let _ = stream.set_nodelay(true);
    let mut buffer = [0; 64];
    let mut send = Ok(()).and_then(|()| stream.write_all(&port.to_be_bytes()));
    while send.is_ok() {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => send = stream.write_all(&buffer[..length]),
        }
    }
}

/// The server that a new connection gets to.
fn connect(from: &Netns, to: SocketAddr) -> std::io::Result<(u16, TcpStream)> {
    let connect = || -> std::io::Result<(u16, TcpStream)> {
        let mut stream = TcpStream::connect_timeout(&to, LATE)?;
        stream.set_read_timeout(Some(LATE))?;
        let mut port = [0; 2];
        stream.read_exact(&mut port)?;
        Ok((u16::from_be_bytes(port), stream))
    };
    from.run(connect).unwrap()
}

/// The server that a socket's datagrams get to.
fn ask(socket: &UdpSocket) -> std::io::Result<u16> {
    let mut port = [0; 2];
    socket.send(b"?")?;
    socket.recv(&mut port)?;
    Ok(u16::from_be_bytes(port))
}

fn udp_socket(from: &Netns, to: SocketAddr) -> UdpSocket {
    let socket = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(LATE)).unwrap();
    socket
}

/// A lab with a client on node-1 and servers on node-2, and Services without selectors whose endpoints tests set.
struct World {
    lab: Lab,
    api: Kube,
    client: Netns,
    servers: Servers,
}

impl World {
    fn start(name: &'static str, servers: u16) -> Self {
        let (lab, api) = network(name, 2, &[]);
        for (name, node) in [("client", "node-1"), ("servers", "node-2")] {
            labelled_pod(&api, name, name, &pause(node));
        }
        api.until_ready("client");
        let address: IpAddr = api.until_ready("servers")[0].parse().unwrap();
        let servers = Servers::start(&lab.netns("node-2", "servers"), address, servers);
        let client = lab.netns("node-1", "client");
        Self { lab, api, client, servers }
    }

    /// Makes a Service with the first so many servers, and waits until it is served; where.
    fn service(&self, name: &str, protocol: &str, mut spec: Value, servers: usize) -> SocketAddr {
        spec["ports"] = json!([{"port": 80, "protocol": protocol}]);
        self.api.apply("v1", "Service", name, json!({"spec": spec}));
        self.set(name, protocol, &self.servers.ports[..servers]);
        let address = service(&self.api, name)["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        let at = SocketAddr::new(address, 80);
        let served = || match protocol {
            "TCP" => connect(&self.client, at).ok().map(drop),
            _ => ask(&udp_socket(&self.client, at)).ok().map(drop),
        };
        until(format_args!("Service {name}"), PATIENCE, served).unwrap();
        at
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.api.client.clone(), "default")
    }

    /// Gives a Service these servers, too.
    fn set(&self, name: &str, protocol: &str, ports: &[u16]) {
        for slice in self.servers.slices(name, protocol, ports) {
            let named = slice["metadata"]["name"].as_str().unwrap();
            let ours = PatchParams::apply("test").force();
            self.api.wait(self.slices().patch(named, &ours, &Patch::Apply(&slice))).unwrap();
        }
    }

    /// Takes a server from a Service.
    fn remove(&self, name: &str, port: u16) {
        self.api.wait(self.slices().delete(&format!("{name}-{port}"), &DeleteParams::default())).unwrap();
    }

    fn kill_agent(&self, node: &str) {
        let pid = until("an agent", PATIENCE, || self.lab.pid(node, "antrea-agent")).unwrap();
        self.lab.node(node, &["kill", "-KILL", &pid.to_string()]).unwrap();
    }

    /// Waits until an agent is ready that was started after one was killed.
    fn until_agent_is_back(&self, node: &str) {
        let ready = || self.lab.node(node, &["curl", "-sf", "http://127.0.0.1:10350/readyz"]).ok().map(drop);
        until(format_args!("the agent of {node}"), PATIENCE, ready).unwrap();
    }
}

/// Whether counts are as even as chance would have it: no more than `sigmas` from the mean.
fn assert_even(counts: &BTreeMap<u16, usize>, of: usize, sigmas: f64) {
    let (total, share) = (counts.values().sum::<usize>() as f64, 1.0 / of as f64);
    let (mean, sigma) = (total * share, (total * share * (1.0 - share)).sqrt());
    println!("{total} connections, {mean:.0} +- {sigma:.1} each: {:?}", counts.values().collect::<Vec<_>>());
    assert_eq!(counts.len(), of, "{counts:?}");
    let worst = counts.values().map(|count| (*count as f64 - mean).abs() / sigma).fold(0.0, f64::max);
    assert!(worst <= sigmas, "{worst:.1} sigma from the mean: {counts:?}");
}

#[test]
fn connections_spread_evenly_and_clients_who_are_remembered_keep_their_endpoint() {
    let world = World::start("spread", 10);
    let connections = times("CONNECTIONS", 2000);
    let tcp = world.service("tcp", "TCP", json!({}), 10);
    let udp = world.service("udp", "UDP", json!({}), 10);
    let mut counts = BTreeMap::new();
    for _ in 0..connections {
        *counts.entry(connect(&world.client, tcp).unwrap().0).or_insert(0) += 1;
    }
    assert_even(&counts, 10, 4.0);
    let mut counts = BTreeMap::new();
    for _ in 0..connections {
        *counts.entry(ask(&udp_socket(&world.client, udp)).unwrap()).or_insert(0) += 1;
    }
    assert_even(&counts, 10, 4.0);

    // The endpoint that this client got, while others go and come and the agent is killed.
    let affinity = |seconds: u32| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
    let sticky = world.service("sticky", "TCP", affinity(600), 10);
    let kept = connect(&world.client, sticky).unwrap().0;
    let stays = |what: &str| {
        for _ in 0..20 {
            assert_eq!(connect(&world.client, sticky).unwrap().0, kept, "{what}");
        }
    };
    stays("at once");
    let others: Vec<u16> = world.servers.ports.iter().copied().filter(|port| *port != kept).collect();
    others[..5].iter().for_each(|port| world.remove("sticky", *port));
    stays("while others go");
    world.set("sticky", "TCP", &others[..5]);
    stays("while others come");
    world.kill_agent("node-1");
    stays("while the agent is dead");
    world.until_agent_is_back("node-1");
    stays("after a restart of the agent");
    // Nobody else has this endpoint, so that it is gone.
    for other in ["tcp", "udp"] {
        world.servers.ports.iter().for_each(|port| world.remove(other, *port));
    }
    world.remove("sticky", kept);
    let moved = || connect(&world.client, sticky).ok().filter(|(port, _)| *port != kept);
    let (now, _) = until("another endpoint", PATIENCE, moved).unwrap();
    world.set("sticky", "TCP", &[kept]);
    for _ in 0..20 {
        assert_eq!(connect(&world.client, sticky).unwrap().0, now, "it keeps its new one");
    }
    // It is forgotten after its time, though it comes again and again.
    let brief = world.service("brief", "TCP", affinity(1), 10);
    let first = connect(&world.client, brief).unwrap().0;
    until("another endpoint", PATIENCE, || (connect(&world.client, brief).unwrap().0 != first).then_some(())).unwrap();
}

#[test]
fn datagrams_of_a_client_that_goes_on_sending_find_another_endpoint_when_theirs_is_gone() {
    let world = World::start("datagrams", 3);
    let outside = place(&world.lab, "outside");
    let at = world.service("dns", "UDP", json!({"type": "NodePort"}), 2);
    let node_port =
        u16::try_from(service(&world.api, "dns")["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).unwrap();
    let clients = [
        ("a Pod", udp_socket(&world.client, at)),
        ("its Node", udp_socket(&place(&world.lab, "node-1"), at)),
        ("outside", udp_socket(&outside, format!("192.168.1.11:{node_port}").parse().unwrap())),
    ];
    for (who, socket) in &clients {
        let gone = until(format_args!("an answer for {who}"), PATIENCE, || ask(socket).ok()).unwrap();
        assert_eq!(ask(socket).unwrap(), gone, "{who}: a connection has one endpoint");
        world.remove("dns", gone);
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let moved = || ask(socket).ok().filter(|port| *port != gone);
        until(format_args!("another endpoint for {who}"), PATIENCE, moved).unwrap();
        world.set("dns", "UDP", &[gone]);
    }
    // It goes while nobody looks.
    let (_, socket) = &clients[0];
    let gone = ask(socket).unwrap();
    let old = world.lab.pid("node-1", "antrea-agent");
    world.kill_agent("node-1");
    world.remove("dns", gone);
    until("another agent", PATIENCE, || world.lab.pid("node-1", "antrea-agent").filter(|pid| Some(*pid) != old))
        .unwrap();
    until("another endpoint", PATIENCE, || ask(socket).ok().filter(|port| *port != gone)).unwrap();
    // A client that asks before there is anybody is served when there is.
    for port in world.servers.ports.iter().filter(|port| **port != gone).take(1) {
        world.remove("dns", *port);
    }
    let refused =
        || ask(&udp_socket(&world.client, at)).err().filter(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    until("a refusal", PATIENCE, refused).unwrap();
    let early = udp_socket(&world.client, at);
    assert!(ask(&early).is_err());
    world.set("dns", "UDP", &[7002]);
    early.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert_eq!(until("an answer", PATIENCE, || ask(&early).ok()).unwrap(), 7002);
}

#[test]
fn load_balancers_learn_which_nodes_have_endpoints() {
    let world = World::start("health", 2);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    world.service("web", "TCP", spec, 2);
    set_ingress(&world.api, "web", &["192.0.2.1".parse().unwrap()]);
    let port = service(&world.api, "web")["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let status = |node: &str, url: &str| {
        world
            .lab
            .node("outside", &["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "5", url])
            .unwrap_or_else(|error| format!("{node}: {error}"))
    };
    let asked = |address: &str, port: u64| status(address, &format!("http://{address}:{port}/healthz"));
    let is = |address: &str, port: u64, code: &str| {
        until(format_args!("{code} of {address}:{port}"), PATIENCE, || (asked(address, port) == code).then_some(()))
            .unwrap();
    };
    is("192.168.1.12", port, "200");
    is("192.168.1.11", port, "503");
    is("192.168.1.11", 10256, "200");
    world.servers.ports.iter().for_each(|port| world.remove("web", *port));
    is("192.168.1.12", port, "503");
}
