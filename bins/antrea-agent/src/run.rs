//! From nothing to a Node that works, and until it is told to stop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use host::ipam::{Pool, Range};
use host::uplink::Uplink;
use k8s::{Client, Notice, Only};
use node::{Brain, Own, local_addresses, node_addresses};
use ovs::database::Database;
use ovs::switch::Switch;
use pipeline::model::{Datapath, Gateway};
use tokio::sync::watch;
use tracing::{info, warn};
use types::node::Node;

use crate::bridge::{self, Made, Wanted};
use crate::cni::Cni;
use crate::engine::Engine;
use crate::ports::Ports;
use crate::settings::{DatapathKind, Settings};
use crate::sources;
use crate::upkeep::{self, Upkeep};

/// How long a source may take before the log says what is being waited for.
const IMPATIENCE: Duration = Duration::from_secs(5);

/// Runs the agent until it is told to stop. What it has set up stays: the Node works without it.
pub(crate) async fn run(settings: Settings) -> Result<()> {
    let client = Client::new(settings.kubeconfig.as_deref(), settings.api_server.as_deref()).await?;
    let node = own_node(&client, &settings.node).await?;
    let addresses = local_addresses(&node)?;
    let transport = transport(&settings, &node)?;
    let mtu = settings.pod_mtu(transport.mtu, transport.address.addr());
    info!(node = settings.node, device = transport.device, mtu, "this Node");

    let database = Arc::new(Database::connect(ovs::database::Config::new(settings.ovs_run_dir.join("db.sock"))));
    let datapath = settings.datapath.unwrap_or_else(find_datapath);
    let wanted = Wanted {
        bridge: settings.bridge.clone(),
        datapath: match datapath {
            DatapathKind::System => "system",
            DatapathKind::Netdev => "netdev",
        },
        gateway: settings.gateway.clone(),
        mtu,
        tunnel: settings.has_tunnel().then(|| bridge::Tunnel {
            kind: settings.tunnel.name().to_owned(),
            port: settings.tunnel_port,
            checksum: settings.tunnel_checksum,
        }),
    };
    let made = waiting_for("Open vSwitch", wanted.make(&database)).await?;
    info!(bridge = wanted.bridge, datapath = wanted.datapath, gateway = made.gateway.0, "the bridge is there");

    let own = Arc::new(own(&settings, &node, addresses, &transport, mtu, datapath, made)?);
    let pool = Pool::open(&settings.ipam_dir, ranges(&own)?)?;
    let socket = settings.ovs_run_dir.join(format!("{}.mgmt", settings.bridge));
    let (switch, events) = Switch::start(ovs::switch::Config::new(socket));
    let engine = Engine::start(Brain::new(Own::clone(&own)), switch, events);
    let ports = Ports::new(Arc::clone(&database), &settings.bridge);
    sources::follow(&client, &engine);
    tokio::spawn(ports.clone().follow(engine.clone()));
    let (status, _upkeep) = watch::channel(Upkeep::default());
    tokio::spawn(upkeep::keep(engine.clone(), settings.gateway.clone(), status));

    let cni = Cni::new(own, engine.clone(), ports, pool);
    let stop = stopped()?;
    tokio::pin!(stop);
    let listener = api::cni::Listener::bind(&settings.cni_socket)?;
    tokio::select! {
        () = &mut stop => return Ok(()),
        ready = ready(&engine) => ready?,
    }
    if let Err(error) = cni.collect().await {
        warn!(%error, "what earlier calls have left behind is still there");
    }
    info!(socket = %settings.cni_socket.display(), "ready");
    listener.serve(cni, &mut stop).await;
    info!("stopped; what was set up stays");
    Ok(())
}

/// This Node, as soon as Kubernetes has given it a Pod subnet.
async fn own_node(client: &Client, name: &str) -> Result<Node> {
    let only = Only { fields: format!("metadata.name={name}"), ..Only::default() };
    let mut watch = client.watch::<Node>(&only);
    let mut said = String::new();
    loop {
        let problem = match waiting_for("the Kubernetes API", watch.next()).await {
            Notice::Set(node) => match local_addresses(&node) {
                Ok(_) => return Ok(node),
                Err(problem) => problem.to_string(),
            },
            Notice::Gone(_) => format!("Node {name} is gone"),
            Notice::Synced if said.is_empty() => format!("there is no Node {name}; is NODE_NAME right?"),
            Notice::Synced => continue,
        };
        if problem != said {
            warn!(problem, "waiting until it is as it should be");
            said = problem;
        }
    }
}

/// The device to other Nodes.
fn transport(settings: &Settings, node: &Node) -> Result<Uplink> {
    let addresses = node_addresses(node);
    let Some(address) = addresses.first().copied() else {
        bail!("Node {}: status.addresses: has no InternalIP", settings.node);
    };
    let found = host::uplink::find(address)?;
    found.ok_or_else(|| {
        anyhow!("Node {}: no device of this host has its address {address}; is NODE_NAME right?", settings.node)
    })
}

fn own(
    settings: &Settings,
    node: &Node,
    addresses: pipeline::model::Families<pipeline::model::Address>,
    transport: &Uplink,
    mtu: u32,
    datapath: DatapathKind,
    made: Made,
) -> Result<Own> {
    let mut subnets = vec![transport.address.trunc()];
    for address in node_addresses(node) {
        if let Some(uplink) = host::uplink::find(address)? {
            subnets.push(uplink.address.trunc());
        }
    }
    subnets.sort();
    subnets.dedup();
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    // Nobody answers from ::1 to another device: the kernel has no route_localnet for IPv6.
    let candidates = node_addresses(node).into_iter().chain(loopback.into_iter().filter(IpAddr::is_ipv4));
    let allowed = |ip: &IpAddr| {
        settings.node_port_addresses.is_empty() || settings.node_port_addresses.iter().any(|net| net.contains(ip))
    };
    Ok(Own {
        name: settings.node.clone(),
        mode: settings.mode,
        features: settings.features,
        datapath: match datapath {
            DatapathKind::System => Datapath::System,
            DatapathKind::Netdev => Datapath::Netdev,
        },
        gateway_device: settings.gateway.clone(),
        gateway: Gateway { port: made.gateway, mac: made.mac },
        tunnels: made.tunnel.into_iter().collect(),
        tunnel_port: settings.has_tunnel().then(|| settings.tunnel_port.or(settings.tunnel.udp_port())).flatten(),
        addresses,
        transport_device: transport.device.clone(),
        transport_subnets: subnets,
        mtu,
        no_snat: settings.no_snat,
        node_port_addresses: candidates.filter(allowed).collect(),
        service_cidrs: settings.service_cidrs.clone(),
    })
}

/// The addresses that Pods may have.
fn ranges(own: &Own) -> Result<Vec<Range>> {
    own.families()
        .map(|address| {
            Range::new(address.pod_cidr, None, None, vec![address.gateway, address.snat])
                .with_context(|| format!("Node {}: spec.podCIDRs", own.name))
        })
        .collect()
}

/// The kernel's datapath if it is there.
fn find_datapath() -> DatapathKind {
    if std::path::Path::new("/sys/module/openvswitch").exists() { DatapathKind::System } else { DatapathKind::Netdev }
}

/// Waits until Pods can be attached.
async fn ready(engine: &Engine) -> Result<()> {
    let mut progress = engine.progress();
    let mut said = Vec::new();
    loop {
        let wait = progress.wait_for(|progress| progress.ready);
        match tokio::time::timeout(IMPATIENCE, wait).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(_)) => bail!("the agent is stopping"),
            Err(_) => {
                let missing = engine.look(|brain| brain.unsynced().collect::<Vec<_>>()).await?;
                if missing != said {
                    warn!(?missing, "not ready for Pods yet: waiting for the switch and for these");
                    said = missing;
                }
            }
        }
    }
}

/// Says what is being waited for, if it takes long.
async fn waiting_for<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    let impatient = Instant::now() + IMPATIENCE;
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep_until(impatient.into()) => warn!("waiting for {what}"),
    }
    work.await
}

/// Ends when the agent is told to stop.
fn stopped() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
