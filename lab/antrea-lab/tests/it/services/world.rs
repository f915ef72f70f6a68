//! A lab with servers that return their port, and Services with endpoints that tests set.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::until;

use super::{labelled_pod, service};
use crate::agent::network;
use crate::lab::{Kube, Lab, TIMEOUT, pause};

/// How long an answer may take on a machine that is busy.
const LATE: Duration = Duration::from_secs(5);
/// How long an answer to a datagram is waited for before one asks again.
const AGAIN: Duration = Duration::from_millis(500);
/// Room for a datagram of any size.
const DATAGRAM: usize = 1 << 16;

/// A number from an environment variable, or the default.
pub(super) fn times(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

/// Servers of our own: one address each on the loopback of a Pod would not be reached, so each is a port of the Pod.
pub(super) struct Servers {
    address: IpAddr,
    pub(super) ports: Vec<u16>,
    stop: std::sync::Arc<AtomicBool>,
    listeners: Vec<TcpListener>,
}

impl Servers {
    /// Each server returns its port: over TCP after the connect, followed by an echo; over UDP before each echoed datagram.
    pub(super) fn start(netns: &Netns, address: IpAddr, count: u16) -> Self {
        let ports: Vec<u16> = (7000..7000 + count).collect();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let mut listeners = Vec::new();
        for port in &ports {
            let at = SocketAddr::new(address, *port);
            let (tcp, udp) = netns.run(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())).unwrap();
            listeners.push(tcp.try_clone().unwrap());
            udp.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let (port, ended) = (*port, std::sync::Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut buffer = vec![0; DATAGRAM];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = udp.recv_from(&mut buffer) {
                        let _ = udp.send_to(&[&port.to_be_bytes(), &buffer[..length]].concat(), from);
                    }
                }
            });
            std::thread::spawn(move || {
                for stream in tcp.incoming().map_while(Result::ok) {
                    std::thread::spawn(move || tell_and_echo(stream, port));
                }
            });
        }
        Self { address, ports, stop, listeners }
    }

    /// An EndpointSlice of a Service with these of them. One slice can say one port only, so each has a slice of its own.
    pub(super) fn slices(&self, service: &str, protocol: &str, ports: &[u16]) -> Vec<Value> {
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
        for listener in self.listeners.drain(..) {
            // Ends the thread that accepts connections.
            let _ = TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
        }
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
pub(super) fn connect(from: &Netns, to: SocketAddr) -> std::io::Result<(u16, TcpStream)> {
    connect_within(from, to, LATE)
}

/// Like [`connect`], with another timeout for the handshake.
pub(super) fn connect_within(from: &Netns, to: SocketAddr, time: Duration) -> std::io::Result<(u16, TcpStream)> {
    let connect = || -> std::io::Result<(u16, TcpStream)> {
        let mut stream = TcpStream::connect_timeout(&to, time)?;
        stream.set_read_timeout(Some(LATE))?;
        let mut port = [0; 2];
        stream.read_exact(&mut port)?;
        Ok((u16::from_be_bytes(port), stream))
    };
    from.run(connect).unwrap()
}

/// The server that a datagram of a socket got to.
pub(super) fn ask(socket: &UdpSocket) -> std::io::Result<u16> {
    ask_with(socket, 4)
}

/// Like [`ask`], with a datagram of this size.
pub(super) fn ask_with(socket: &UdpSocket, size: usize) -> std::io::Result<u16> {
    // Every question is another one: an answer that is late would be taken for that of another server.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let number = ASKED.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let question: Vec<u8> = number.into_iter().cycle().take(size).collect();
    socket.send(&question)?;
    let mut answer = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut answer)?;
        if let [a, b, echo @ ..] = &answer[..length]
            && *echo == question
        {
            return Ok(u16::from_be_bytes([*a, *b]));
        }
    }
}

/// The server that a socket's datagrams get to; one that is lost is sent again.
pub(super) fn answered_by(socket: &UdpSocket) -> u16 {
    until("an answer to a datagram", TIMEOUT, || ask(socket).ok()).unwrap()
}

pub(super) fn udp_socket(from: &Netns, to: SocketAddr) -> UdpSocket {
    udp_socket_at(from, 0, to)
}

/// One with a port of its own choice; 0 for any.
pub(super) fn udp_socket_at(from: &Netns, port: u16, to: SocketAddr) -> UdpSocket {
    let socket = from.run(|| UdpSocket::bind(("0.0.0.0", port))).unwrap().unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    socket
}

/// A lab with a client on node-1 and servers on node-2, and Services without selectors.
pub(super) struct World {
    pub(super) lab: Lab,
    pub(super) api: Kube,
    pub(super) client: Netns,
    pub(super) servers: Servers,
}

impl World {
    pub(super) fn start(name: &'static str, servers: u16) -> Self {
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

    /// Creates a Service with the first `servers` servers, and waits until it works. Returns its address.
    pub(super) fn service(&self, name: &str, protocol: &str, mut spec: Value, servers: usize) -> SocketAddr {
        spec["ports"] = json!([{"port": 80, "protocol": protocol}]);
        self.api.apply("v1", "Service", name, json!({"spec": spec}));
        self.set(name, protocol, &self.servers.ports[..servers]);
        let address = service(&self.api, name)["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        let at = SocketAddr::new(address, 80);
        let served = || match protocol {
            "TCP" => connect(&self.client, at).ok().map(drop),
            _ => ask(&udp_socket(&self.client, at)).ok().map(drop),
        };
        until(format_args!("Service {name}"), TIMEOUT, served).unwrap();
        at
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.api.client.clone(), "default")
    }

    /// Writes the EndpointSlices of a Service for these servers.
    pub(super) fn set(&self, name: &str, protocol: &str, ports: &[u16]) {
        self.servers.slices(name, protocol, ports).iter().for_each(|slice| self.put(slice));
    }

    /// Makes an EndpointSlice, or makes it this one.
    pub(super) fn put(&self, slice: &Value) {
        let named = slice["metadata"]["name"].as_str().unwrap();
        let ours = PatchParams::apply("test").force();
        self.api.wait(self.slices().patch(named, &ours, &Patch::Apply(slice))).unwrap();
    }

    /// Takes a server from a Service.
    pub(super) fn remove(&self, name: &str, port: u16) {
        self.api.wait(self.slices().delete(&format!("{name}-{port}"), &DeleteParams::default())).unwrap();
    }

    pub(super) fn kill_agent(&self, node: &str) {
        let pid = until("an agent", TIMEOUT, || self.lab.pid(node, "antrea-agent")).unwrap();
        self.lab.node(node, &["kill", "-KILL", &pid.to_string()]).unwrap();
    }

    /// Waits until an agent is ready that was started after one was killed.
    pub(super) fn until_agent_is_back(&self, node: &str) {
        let ready = || self.lab.node(node, &["curl", "-sf", "http://127.0.0.1:10350/readyz"]).ok().map(drop);
        until(format_args!("the agent of {node}"), TIMEOUT, ready).unwrap();
    }
}
