//! Many Services to measure: their objects, servers for some of them, and a client.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use apiserver::{ApiServer, Patch};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::rest;

/// Endpoints of each Service.
pub const ENDPOINTS: u8 = 5;
/// Timeout of a connection to a Service that exists.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_micros(500);
/// The last byte of the address of the first endpoint, and of the endpoint that is added later.
const FIRST: u8 = 101;
const LATER: u8 = FIRST + ENDPOINTS;

/// The addresses of all endpoints; Services differ in the port.
pub fn addresses() -> Vec<Ipv4Addr> {
    (FIRST..=LATER).map(|last| Ipv4Addr::new(192, 168, 77, last)).collect()
}

/// The port of a Service's endpoints.
fn target(service: u16) -> u16 {
    20_000 + service
}

/// The cluster IP of a Service.
pub fn cluster_ip(service: u16) -> IpAddr {
    let [high, low] = service.to_be_bytes();
    Ipv4Addr::new(10, 96, 1 + high, low).into()
}

/// Creates this many Services.
pub fn create(api: &ApiServer, count: u16) -> Result<()> {
    let local = api.local();
    for service in 0..count {
        let name = format!("s{service}");
        let spec = json!({"clusterIP": cluster_ip(service), "ports": [{"port": 80, "protocol": "TCP"}]});
        local.create("v1", "services", "default", json!({"metadata": {"name": name}, "spec": spec}))?;
        let slice = json!({
            "metadata": {"name": format!("{name}-x"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"port": target(service), "protocol": "TCP"}],
            "endpoints": endpoints(FIRST..LATER),
        });
        local.create("discovery.k8s.io/v1", "endpointslices", "default", slice)?;
    }
    Ok(())
}

fn endpoints(last: impl Iterator<Item = u8>) -> Vec<Value> {
    last.map(|last| json!({"addresses": [Ipv4Addr::new(192, 168, 77, last)], "conditions": {"ready": true}})).collect()
}

/// Replaces all endpoints of a Service by a new one, or restores them.
pub fn change(api: &ApiServer, service: u16, later: bool) -> Result<()> {
    let endpoints = if later { endpoints(LATER..=LATER) } else { endpoints(FIRST..LATER) };
    let (name, patch) = (format!("s{service}-x"), json!({"endpoints": endpoints}));
    api.local().patch("discovery.k8s.io/v1", "endpointslices", "default", &name, "", Patch::Merge, &patch)?;
    Ok(())
}

/// Serves all endpoints of a Service: each sends the last byte of its address.
pub fn answer(at: &Netns, service: u16) -> Result<()> {
    for address in addresses() {
        let listener = at.run(|| TcpListener::bind((address, target(service))))??;
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                // The client may be gone.
                let _ = stream.write_all(&[address.octets()[3]]);
            }
        });
    }
    Ok(())
}

/// The last byte of the address of the endpoint that a connection to a Service reaches.
fn ask(service: u16) -> Option<u8> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(cluster_ip(service), 80), CONNECT_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT)).ok()?;
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    byte.first().copied()
}

/// Waits until all of these Services can be reached from a namespace.
pub fn until_reached(from: &Netns, services: &[u16], timeout: Duration) -> Result<()> {
    let end = Instant::now() + timeout;
    let all = || services.iter().all(|service| until(end, || ask(*service).is_some()));
    from.run(all)?.then_some(()).with_context(|| format!("not all Services are reached within {timeout:?}"))
}

/// Waits until a Service uses the new endpoint, or no longer does.
pub fn until_changed(from: &Netns, service: u16, later: bool, timeout: Duration) -> Result<()> {
    let end = Instant::now() + timeout;
    let changed = || until(end, || ask(service).is_some_and(|last| (last == LATER) == later));
    from.run(changed)?.then_some(()).with_context(|| format!("no change within {timeout:?}"))
}

fn until(end: Instant, so: impl Fn() -> bool) -> bool {
    while Instant::now() < end {
        if so() {
            return true;
        }
        // A busy loop would take the CPU from the measured programs.
        rest(PAUSE);
    }
    false
}
