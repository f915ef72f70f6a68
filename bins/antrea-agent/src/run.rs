//! From nothing to a Node that works, and until it is told to stop.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use host::ipam::{Pool, Range};
use ipnet::IpNet;
use k8s::{Client, Notice, Only, Patience};
use node::{Brain, Own, local_addresses, node_addresses};
use ovs::database::Database;
use ovs::switch::Switch;
use pipeline::model::{Datapath, Features, Gateway, Mode};
use tokio::sync::watch;
use tracing::{info, warn};
use types::node::Node;

use crate::bridge::{self, BridgeError, Made, Wanted};
use crate::cni::Cni;
use crate::config::{self, Config, EncapMode};
use crate::control::{Control, Memory};
use crate::engine::{Counters, Engine};
use crate::ports::Ports;
use crate::rest::Rest;
use crate::services::{self, Surroundings};
use crate::sources;
use crate::transport::Transport;
use crate::upkeep::{self, Upkeep};

/// How long a source may take before the log says what is being waited for.
const IMPATIENCE: Duration = Duration::from_secs(5);

/// How often a watch is asked for anew. There is an agent on every Node: more often would be a load for the API server.
const RENEW: Duration = Duration::from_secs(240);

/// How long the kernel may take at the end to remove what was detached.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file beside the CNI socket that lets root ask the agent questions.
const TOKEN: &str = "loopback-client-token";
/// The directory beside the CNI socket with what the controller said last.
const MEMORY: &str = "networkpolicy";
/// Calls that wait for the kernel at a time.
const BLOCKING: usize = 16;

/// Runs the agent until it is told to stop; `notes` are for its log. What it has set up stays: the Node works without it.
pub(crate) fn run(config: &Config, notes: &[String]) -> Result<()> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    telemetry::log::init(&filter, telemetry::log::Format::Text)?;
    for note in notes {
        info!("{note}");
    }
    let name = node_name()?;
    // One thread is enough, and small.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
    let outcome = runtime.block_on(work(config, &name));
    // What still waits for the kernel is nothing that the next start would miss.
    runtime.shutdown_background();
    outcome
}

/// The name of this Node: what NODE_NAME says, or the host's.
fn node_name() -> Result<String> {
    match std::env::var("NODE_NAME") {
        Ok(name) if !name.is_empty() => Ok(name),
        _ => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("the name of the host")?;
            Ok(name.trim().to_ascii_lowercase())
        }
    }
}

/// Where the controller is: in the agent's own namespace.
fn namespace() -> String {
    std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "kube-system".to_owned())
}

async fn work(config: &Config, name: &str) -> Result<()> {
    let stop = stopped()?;
    tokio::pin!(stop);
    let started = tokio::select! {
        () = &mut stop => return Ok(()),
        started = start(config, name) => started?,
    };
    let mut outcome = Ok(());
    let cni = started.cni.clone();
    let opened = async {
        match open(&cni, &started.engine).await {
            Ok(()) => {
                info!(socket = %config.cni_socket.display(), "ready");
                std::future::pending().await
            }
            Err(error) => error,
        }
    };
    let stop = async {
        tokio::select! {
            () = stop => {}
            error = opened => outcome = Err(error),
            error = started.bridge => outcome = Err(error.into()),
        }
    };
    started.listener.serve(started.cni, stop).await;
    if tokio::time::timeout(PATIENCE, cni.settled()).await.is_err() {
        warn!("the kernel has not removed all devices of Pods within {PATIENCE:?}; the next start will see to it");
    }
    info!("stopped; what was set up stays");
    outcome
}

/// An agent that attaches Pods as soon as it is told everything.
struct Started {
    listener: api::cni::Listener,
    cni: Cni,
    engine: Engine,
    /// Ends when the bridge is another one.
    bridge: Pin<Box<dyn Future<Output = BridgeError>>>,
}

async fn start(config: &Config, name: &str) -> Result<Started> {
    let client =
        Client::new(config.client_connection.kubeconfig.as_deref(), config.kube_api_server_override.as_deref()).await?;
    let client = client.with_patience(Patience { renew: RENEW, ..Patience::default() });
    let node = own_node(&client, name).await?;
    let addresses = local_addresses(&node)?;
    let transport = Transport::find(config, &node)?;
    transport.tell(&client, &node).await?;
    let mtu = config.pod_mtu(transport.mtu, transport.address);
    info!(node = name, device = transport.device, mtu, "this Node");

    let database = Arc::new(Database::connect(ovs::database::Config::new(config.ovs_run_dir.join("db.sock"))));
    let datapath = config.ovs_datapath_type.unwrap_or_else(find_datapath);
    if datapath == config::Datapath::Netdev && config.has_tunnel() && config.tunnel_type == config::Tunnel::Stt {
        bail!("tunnelType: stt needs the kernel's datapath, and this Node has none; geneve, vxlan and gre work here");
    }
    let wanted = Wanted {
        bridge: config.ovs_bridge.clone(),
        datapath: match datapath {
            config::Datapath::System => "system",
            config::Datapath::Netdev => "netdev",
        },
        gateway: config.host_gateway.clone(),
        mtu,
        tunnel: config.has_tunnel().then(|| bridge::Tunnel {
            kind: config.tunnel_type.name().to_owned(),
            port: config.tunnel_port,
            checksum: config.tunnel_csum,
        }),
    };
    let made = waiting_for("Open vSwitch", wanted.make(&database)).await?;
    info!(bridge = wanted.bridge, datapath = wanted.datapath, gateway = made.gateway.0, "the bridge is there");

    let facts = Facts { name, node: &node, addresses, transport: &transport, mtu, datapath, made };
    let own = Arc::new(own(config, facts)?);
    let pool = Pool::open(&config.ipam_dir, ranges(&own)?)?;
    let socket = config.ovs_run_dir.join(format!("{}.mgmt", config.ovs_bridge));
    let (switch, events) = Switch::start(ovs::switch::Config::new(socket));
    let counters = Arc::new(Counters::default());
    let (packets, sent_to_us) = services::packets();
    let brain = Brain::new(Own::clone(&own));
    let engine = Engine::start(brain, switch.clone(), events, Arc::clone(&counters), packets);
    let (status, upkeep) = watch::channel(Upkeep::default());
    let around = Surroundings { config, own: &own, switch, packets: sent_to_us, upkeep: upkeep.clone() };
    services::start(&engine, around);
    let ports = Ports::new(Arc::clone(&database), &config.ovs_bridge);
    sources::follow(&client, &engine);
    let bridge_repairs = Arc::new(AtomicU64::new(0));
    tokio::spawn(ports.clone().follow(engine.clone(), Arc::clone(&bridge_repairs)));
    tokio::spawn(upkeep::keep(engine.clone(), config.host_gateway.clone(), status));

    let (followed, controller) = watch::channel(None);
    let control = Control {
        client,
        engine: engine.clone(),
        node: name.to_owned(),
        namespace: namespace(),
        memory: Memory::new(config.cni_socket.with_file_name(MEMORY)),
        followed,
    };
    tokio::spawn(control.run());

    let token = config.cni_socket.with_file_name(TOKEN);
    let server = telemetry::server::Server::bind(config.api_port, &token).await?;
    tokio::spawn(server.serve(Rest {
        engine: engine.clone(),
        has_metrics: config.enable_prometheus_metrics,
        counters,
        upkeep,
        bridge_repairs: Arc::clone(&bridge_repairs),
        database: database.status(),
        controller,
    }));

    let cni = Cni::new(own, engine.clone(), ports, pool, &config.host_proc_path_prefix);
    let listener = api::cni::Listener::bind(&config.cni_socket)?;
    let bridge = async move { wanted.keep(&database, made, &bridge_repairs).await };
    Ok(Started { listener, cni, engine, bridge: Box::pin(bridge) })
}

/// Waits until Pods can be attached, and lets runtimes in.
async fn open(cni: &Cni, engine: &Engine) -> Result<()> {
    ready(engine).await?;
    if let Err(error) = cni.collect().await {
        warn!(%error, "what earlier calls have left behind is still there");
    }
    cni.open();
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

/// What was found out about this Node.
struct Facts<'a> {
    name: &'a str,
    node: &'a Node,
    addresses: pipeline::model::Families<pipeline::model::Address>,
    transport: &'a Transport,
    mtu: u32,
    datapath: config::Datapath,
    made: Made,
}

fn own(config: &Config, facts: Facts<'_>) -> Result<Own> {
    let Facts { name, node, addresses, transport, mtu, datapath, made } = facts;
    // Not ::1: nobody answers from it to another device, as the kernel has no route_localnet for IPv6.
    let candidates = node_addresses(node).into_iter().chain([IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    let allowed = |ip: &IpAddr| {
        let allowed = &config.antrea_proxy.node_port_addresses;
        allowed.is_empty() || allowed.iter().any(|net| net.contains(ip))
    };
    Ok(Own {
        name: name.to_owned(),
        mode: match config.traffic_encap_mode {
            EncapMode::Encap => Mode::Encap,
            EncapMode::NoEncap => Mode::NoEncap,
            EncapMode::Hybrid => Mode::Hybrid,
        },
        features: Features {
            antrea_proxy: config.antrea_proxy.enable,
            proxy_all: config.antrea_proxy.proxy_all,
            antrea_policy: true,
        },
        datapath: match datapath {
            config::Datapath::System => Datapath::System,
            config::Datapath::Netdev => Datapath::Netdev,
        },
        gateway_device: config.host_gateway.clone(),
        gateway: Gateway { port: made.gateway, mac: made.mac },
        tunnels: made.tunnel.into_iter().collect(),
        tunnel_port: config.tunnel_udp_port(),
        addresses,
        transport_device: transport.device.clone(),
        transport_subnets: transport.subnets.clone(),
        mtu,
        no_snat: config.no_snat,
        node_port_addresses: candidates.filter(allowed).collect(),
        service_cidrs: [IpNet::from(config.service_cidr)]
            .into_iter()
            .chain(config.service_cidr_v6.map(IpNet::from))
            .collect(),
        serving: config.antrea_proxy.serving(),
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
fn find_datapath() -> config::Datapath {
    if std::path::Path::new("/sys/module/openvswitch").exists() {
        config::Datapath::System
    } else {
        config::Datapath::Netdev
    }
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
