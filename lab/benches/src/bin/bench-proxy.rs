//! Many Services, served by the agent and by kube-proxy (nftables) in turn, with the same API and objects: time until
//! all are reachable, latency of one change, memory. Then requests from Pod to Pod, directly and by a Service's
//! address.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use benches::node::{Node, Sandbox, Site};
use benches::services::{self, addresses, answer, cluster_ip, until_changed, until_reached};
use benches::{Figure, Goal, median, progress, report};
use serde_json::json;
use testkit::Netns;
use testkit::process::{Process, run};
use testkit::wait::{rest, until};

/// Number of Services, unless the environment variable `SERVICES` is set.
const SERVICES: u16 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time without any change before a measured one.
const CALM: Duration = Duration::from_millis(50);
/// Duration of the measurement of requests and connections.
const TIME: Duration = Duration::from_secs(3);

fn main() -> Result<()> {
    let count: u16 = match std::env::var("SERVICES") {
        Ok(text) => text.parse().with_context(|| format!("SERVICES: `{text}` is not a number up to 40000"))?,
        Err(_) => SERVICES,
    };
    let site = Site::new(0)?;
    for address in addresses() {
        site.outside().add_address("eth0", &format!("{address}/16"))?;
    }
    // NAT in the kernel happens after the route lookup, so there must be a route.
    site.netns().ip(["route", "add", "default", "via", "192.168.77.101"])?;
    progress(&format!("{count} Services with {} endpoints each", services::ENDPOINTS));
    services::create(site.api(), count)?;
    let asked: Vec<u16> = (0..20).map(|n| n * (count - 1) / 19).collect();
    for service in &asked {
        answer(site.outside(), *service)?;
    }

    let peer = kube_proxy(&site, &asked)?;
    progress("antrea-agent, from cold");
    let start = Instant::now();
    let node = site.start("antreaProxy: {proxyAll: true}\n")?;
    let log = || node.log();
    until_reached(node.site().netns(), &asked, TIMEOUT).with_context(log)?;
    let cold = start.elapsed();
    node.wait_ready(0)?;
    let ours = Measured { cold, change: changes(node.site(), &asked)?, rss: node.agent_rss()? };
    let figure = |name, unit, value: fn(&Measured) -> f64, goal| {
        report(&Figure { name, unit, ours: value(&ours), peer: peer.as_ref().map(value), goal: Some(goal) });
    };
    figure("cold-sync", "s", |measured| measured.cold.as_secs_f64(), Goal::Ratio(0.3));
    figure("one-change", "ms", |measured| measured.change * 1e3, Goal::Ours(5.0));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    figure("rss", "MB", |measured| measured.rss as f64 / 1e6, Goal::Ratio(0.5));
    datapath(&node).with_context(log)
}

struct Measured {
    cold: Duration,
    change: f64,
    rss: u64,
}

/// Time until a change of one Service takes effect, in seconds.
fn changes(site: &Site, asked: &[u16]) -> Result<f64> {
    let mut times = Vec::new();
    // Changed and restored, so that the next measurement starts from the same state.
    for (service, later) in asked.iter().take(10).flat_map(|service| [(service, true), (service, false)]) {
        // One change at a time: the API server delays events of many changes in a row.
        rest(CALM);
        let start = Instant::now();
        services::change(site.api(), *service, later)?;
        until_changed(site.netns(), *service, later, TIMEOUT)?;
        times.push(start.elapsed());
    }
    Ok(median(&times))
}

/// The same for kube-proxy; `None` if it was not built.
fn kube_proxy(site: &Site, asked: &[u16]) -> Result<Option<Measured>> {
    let Some(program) = find_kube_proxy() else {
        progress("there is no kube-proxy to compare with: `make kubernetes` builds it");
        return Ok(None);
    };
    progress("kube-proxy, from cold");
    let log_file = site.dir().join("kube-proxy.log");
    let mut command = site.netns().command(program);
    command.arg("--kubeconfig").arg(site.dir().join("kubeconfig"));
    command.args(["--proxy-mode=nftables", "--hostname-override=n1", "--cluster-cidr=10.10.0.0/16"]);
    // A namespace cannot set global sysctls.
    command.args(["--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s"]);
    command.args(["--conntrack-tcp-timeout-close-wait=0s", "--healthz-bind-address=127.0.0.1:10256"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log_file)?);
    let start = Instant::now();
    let process = Process::spawn(command)?;
    let log = || fs::read_to_string(&log_file).unwrap_or_default();
    until_reached(site.netns(), asked, TIMEOUT).with_context(log)?;
    let cold = start.elapsed();
    let measured = Measured { cold, change: changes(site, asked)?, rss: process.rss()? };
    drop(process);
    // It does not remove its rules when it ends.
    run(site.netns().command("nft").args(["flush", "ruleset"]), None)?;
    Ok(Some(measured))
}

fn find_kube_proxy() -> Option<PathBuf> {
    let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/antrea-rs/kubernetes");
    let versions = fs::read_dir(cache).ok()?.filter_map(|entry| Some(entry.ok()?.path().join("kube-proxy")));
    versions.filter(|program| program.exists()).max()
}

/// Requests from Pod to Pod, directly and by a Service's address, in turn.
fn datapath(node: &Node) -> Result<()> {
    progress("requests from Pod to Pod, directly and by a Service");
    let plugin = node.antrea()?;
    // A client for each: a direct connection from a port that was just used for the Service would get no answer
    // (docs/services.md), and with so many connections ports are reused.
    let (asks_directly, asks_service, server) = (Sandbox::new(1)?, Sandbox::new(2)?, Sandbox::new(3)?);
    for sandbox in [&asks_directly, &asks_service, &server] {
        node.call(&plugin, "ADD", sandbox)?;
    }
    let address = address_of(server.netns())?;
    let local = node.site().api().local();
    let service: IpAddr = cluster_ip(40_000);
    local.create(
        "v1",
        "services",
        "default",
        json!({
            "metadata": {"name": "pod"}, "spec": {"clusterIP": service, "ports": [{"port": 7, "protocol": "TCP"}]},
        }),
    )?;
    local.create(
        "discovery.k8s.io/v1",
        "endpointslices",
        "default",
        json!({
            "metadata": {"name": "pod-x", "labels": {"kubernetes.io/service-name": "pod"}}, "addressType": "IPv4",
            "ports": [{"port": 7, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "nodeName": "n1"}],
        }),
    )?;
    echo(server.netns(), SocketAddr::new(address, 7))?;
    let ways = [(&asks_directly, SocketAddr::new(address, 7)), (&asks_service, SocketAddr::new(service, 7))];
    for (client, to) in ways {
        until(format!("an echo of {to}"), TIMEOUT, || client.netns().run(|| requests(to, Duration::ZERO)).ok()?.ok())?;
    }
    let mut rates = [[0.0; 2]; 2];
    // In turn, so that other load affects both.
    for _ in 0..3 {
        for ((client, to), rates) in ways.into_iter().zip(&mut rates) {
            let [requests_a_second, connections_a_second] = rates;
            *requests_a_second += client.netns().run(|| requests(to, TIME))?? / 3.0;
            *connections_a_second += client.netns().run(|| connections(to, TIME))?? / 3.0;
        }
    }
    let [direct, balanced] = rates;
    for (name, ours, peer) in [("clusterip-rr", balanced[0], direct[0]), ("clusterip-crr", balanced[1], direct[1])] {
        report(&Figure { name, unit: "/s", ours, peer: Some(peer), goal: Some(Goal::Least(0.85)) });
    }
    Ok(())
}

fn address_of(netns: &Netns) -> Result<IpAddr> {
    let text = netns.ip(["-4", "-br", "addr", "show", "eth0"])?;
    let net = text.split_whitespace().nth(2).context("the Pod has no address")?;
    Ok(net.split('/').next().unwrap_or(net).parse()?)
}

/// Echoes one byte at a time.
fn echo(at: &Netns, address: SocketAddr) -> Result<()> {
    let listener = at.run(|| TcpListener::bind(address))??;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut byte = [0];
                while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
            });
        }
    });
    Ok(())
}

fn exchange(stream: &mut TcpStream) -> Result<()> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    ensure!(byte == [7], "the echo differs");
    Ok(())
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(&to, Duration::from_secs(1)).with_context(|| format!("a connection to {to}"))
}

/// Requests per second on one connection.
fn requests(to: SocketAddr, time: Duration) -> Result<f64> {
    let mut stream = connect(to)?;
    stream.set_nodelay(true)?;
    exchange(&mut stream)?;
    per_second(time, || exchange(&mut stream))
}

/// Connections per second, with one request each.
fn connections(to: SocketAddr, time: Duration) -> Result<f64> {
    per_second(time, || exchange(&mut connect(to)?))
}

fn per_second(time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (start, mut done) = (Instant::now(), 0.0);
    while start.elapsed() < time {
        work()?;
        done += 1.0;
    }
    if time.is_zero() {
        return Ok(0.0);
    }
    if done == 0.0 {
        bail!("nothing was done in {time:?}");
    }
    Ok(done / start.elapsed().as_secs_f64())
}
