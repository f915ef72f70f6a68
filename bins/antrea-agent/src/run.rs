//! Startup, task wiring and shutdown of the agent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use host::ipam::{Pool, Range};
use ipnet::IpNet;
use k8s::{Client, Timeouts, WatchEvent, WatchFilter};
use node::database::{BridgePorts, BridgeSpec, TRANSPORT_BRIDGE, TransportSpec, TunnelPort};
use node::recording::{self, Header};
use node::{Brain, ControlPath, Own, avoid_taken, local_addresses, node_addresses};
use ovs::database::Database;
use ovs::switch::Switch;
use ovs::unixctl::DatapathFeatures;
use pipeline::TransportBridge;
use pipeline::model::{Features, Gateway};
use telemetry::daemon::stop_signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use types::network::{Datapath, Tunnel};
use types::node::Node;

use crate::DAEMON;
use crate::cni::Cni;
use crate::config::Config;
use crate::conntrack::{Conntrack, guard};
use crate::control::{Control, SnapshotFile};
use crate::control_path;
use crate::database::{self, BridgeError, Reconciler};
use crate::engine::{Counters, Engine, Recorder, Rim};
use crate::flow_restore;
use crate::host_reconciler::{self, HostStatus};
use crate::kernel_module;
use crate::rest::Rest;
use crate::services::{self, ServiceTasks};
use crate::sources;
use crate::startup::{Startup, WARN_AFTER, waiting_for};
use crate::takeover;
use crate::transport::Transport;
use crate::tunnels::{self, TunnelStatus};

/// Maximum duration of one watch request. Every Node has an agent: a shorter one would load the API server.
pub(crate) const WATCH_DURATION: Duration = Duration::from_secs(240);

/// At shutdown, how long to wait for the removal of detached veths.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// File beside the CNI socket: the token for the agent's API, readable by root only.
const TOKEN_FILE: &str = "loopback-client-token";
/// Directory beside the CNI socket with the last policy snapshot.
const SNAPSHOT_DIR: &str = "networkpolicy";
/// Directory beside the CNI socket with recorded events.
const RECORDING_DIR: &str = "recording";
/// Maximum number of blocking kernel calls at a time.
const MAX_BLOCKING: usize = 16;

/// Runs the agent until SIGTERM or SIGINT, and logs `notes` first. Flows, routes and Pod interfaces stay in place: Pods keep
/// their network while no agent runs.
pub(crate) fn run(config: &Config, notes: &[String]) -> Result<()> {
    DAEMON.start_log(notes)?;
    let name = node_name()?;
    // One thread is enough, and keeps memory small.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(MAX_BLOCKING).build()?;
    let outcome = runtime.block_on(run_until_stopped(config, &name));
    // The next start repeats kernel calls that are still running.
    runtime.shutdown_background();
    outcome
}

/// The name of this Node: NODE_NAME, or the host name.
fn node_name() -> Result<String> {
    match std::env::var("NODE_NAME") {
        Ok(name) if !name.is_empty() => Ok(name),
        _ => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("NODE_NAME is not set, and the host name cannot be read")?;
            Ok(name.trim().to_ascii_lowercase())
        }
    }
}

/// The namespace of the controller, which is the agent's own.
fn namespace() -> String {
    std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "kube-system".to_owned())
}

async fn run_until_stopped(config: &Config, name: &str) -> Result<()> {
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let started = tokio::select! {
        () = &mut stop => return Ok(()),
        started = start(config, name) => started?,
    };
    let mut outcome = Ok(());
    let cni = started.cni.clone();
    let opened = async {
        match open(&cni, &started.engine, started.host_status).await {
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
            error = started.transport.changed(config, &started.engine) => outcome = Err(error),
            ended = started.bridge => outcome = Err(ended.map_or_else(Into::into, Into::into)),
        }
    };
    started.listener.serve(started.cni, stop).await;
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, cni.wait_for_removals()).await.is_err() {
        warn!("some veths of deleted Pods still exist after {SHUTDOWN_TIMEOUT:?}; the next start removes them");
    }
    info!("agent stopped; flows, routes and Pod interfaces stay in place");
    outcome
}

/// An agent whose tasks run, before its initial sync.
struct Started {
    listener: api::cni::Listener,
    cni: Cni,
    engine: Engine,
    host_status: watch::Receiver<HostStatus>,
    transport: Transport,
    /// Ends when the bridge was deleted and created again, or cannot be repaired.
    bridge: JoinHandle<BridgeError>,
}

async fn start(config: &Config, name: &str) -> Result<Started> {
    let token = config.cni_socket.with_file_name(TOKEN_FILE);
    let server = telemetry::server::Server::bind(config.api_port, &token).await?;
    let (startup, probes) = Startup::new();
    tokio::spawn(server.serve(probes));
    let client =
        Client::new(config.client_connection.kubeconfig.as_deref(), config.kube_api_server_override.as_deref()).await?;
    let client = client.with_timeouts(Timeouts { renew: WATCH_DURATION, ..Timeouts::default() });
    let control_path = control_path::detect(config, &client, namespace()).await;
    control_path::remove_stale_routes(&control_path).await;
    let node = own_node(&client, name, &startup).await?;
    let mut addresses = local_addresses(&node)?;
    avoid_taken(&mut addresses, &takeover::pod_addresses(config)?);
    let transport = Transport::find(config, &node)?;
    transport.publish(&client, &node).await?;
    let mtu = config.pod_mtu(transport.mtu, transport.address);
    info!(node = name, device = transport.device, mtu, "found the Node object and its transport interface");

    let sysctls = config.host_proc_path_prefix.join("proc/sys");
    if sysctls.is_dir() {
        host::sysctl::use_directory(sysctls);
    }
    let database = Arc::new(Database::connect(ovs::database::Config::new(config.ovs_run_dir.join("db.sock"))));
    let datapath = config.ovs_datapath_type.unwrap_or_else(kernel_module::detect);
    if datapath == Datapath::Netdev && config.has_tunnel() && config.tunnel_type == Tunnel::Stt {
        bail!(
            "tunnelType: stt needs the kernel datapath, and this Node has no openvswitch module; use geneve, vxlan or gre"
        );
    }
    let is_in_userspace = datapath == Datapath::Netdev && config.has_tunnel();
    let tunnel_problem = match is_in_userspace {
        true => {
            let bridge =
                startup.waiting_for("Open vSwitch", database::foreign_bridge(&database, &transport.device)).await?;
            transport.tunnel_problem(bridge.as_deref())
        }
        false => None,
    };
    let uplink = transport.device.clone();
    let spec = BridgeSpec {
        bridge: config.ovs_bridge.clone(),
        datapath: datapath.ovs_type().to_owned(),
        gateway: config.host_gateway.clone(),
        mtu,
        tunnel: config.has_tunnel().then(|| TunnelPort {
            kind: config.tunnel_type.ovs_type().to_owned(),
            port: config.tunnel_port,
            checksum: config.tunnel_csum,
            // In userspace the routes of ovs-vswitchd determine it, and with it they would have to be the kernel's.
            local: transport.tunnel_source().filter(|_| !is_in_userspace),
        }),
        transport: (is_in_userspace && tunnel_problem.is_none()).then_some(TransportSpec { uplink }),
    };
    let bridge_ports = startup.waiting_for("Open vSwitch", database::set_up(&spec, &database)).await?;
    let conntrack = Conntrack::new(config.ovs_run_dir.clone(), datapath);
    let features = conntrack.features(&config.ovs_bridge).await;
    info!(bridge = spec.bridge, datapath = spec.datapath, gateway = bridge_ports.gateway.0, "bridge is set up");
    takeover::adopt_pods(&spec.bridge, datapath, &database).await?;

    let facts = Facts {
        name,
        node: &node,
        addresses,
        transport: &transport,
        mtu,
        datapath,
        features,
        bridge_ports,
        control_path,
        tunnel_problem,
    };
    let own = Arc::new(own(config, facts)?);
    own.check()?;
    let pool = Pool::open(&config.ipam_dir, ranges(&own)?)?;
    let socket = config.ovs_run_dir.join(format!("{}.mgmt", config.ovs_bridge));
    let inbox = Arc::new(services::Inbox::default());
    let (switch, events) =
        Switch::start(ovs::switch::Config { packets: Some(inbox.sink()), ..ovs::switch::Config::new(socket) });
    let counters = Arc::new(Counters::default());
    let (engine, worker) = Engine::new(Brain::new(Own::clone(&own)));
    let cni = Cni::new(engine.clone(), pool, conntrack.clone(), &config.host_proc_path_prefix);
    let snapshot_file = SnapshotFile::new(config.cni_socket.with_file_name(SNAPSHOT_DIR));
    let control = Control::start(client.clone(), engine.clone(), name, namespace(), snapshot_file);
    let recorder = config.event_recording.enable.then(|| {
        let header = Header {
            format: recording::FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            own: Own::clone(&own),
            bridge: spec.clone(),
        };
        let limit = u64::from(config.event_recording.max_size_mb) << 20;
        Recorder::start(&config.cni_socket.with_file_name(RECORDING_DIR), &header, limit)
    });
    let recorder = recorder.transpose().context("cannot record events")?;
    let (cni_effects, counted) = (cni.clone(), Arc::clone(&counters));
    let rim = Rim { switch: switch.clone(), control, cni: cni_effects, counters: counted, recorder };
    worker.start(rim, events);

    let (status, host_status) = watch::channel(HostStatus::default());
    let tasks = ServiceTasks { config, own: &own, switch, inbox, host_status: host_status.clone() };
    services::start(&engine, tasks);
    let last_answer = sources::follow(&client, &engine);
    let mut devices = vec![config.host_gateway.clone()];
    let (tunnel_changes, tunnel_status) = watch::channel(TunnelStatus::default());
    if own.transport_bridge.is_some() {
        devices.extend([TRANSPORT_BRIDGE.to_owned(), transport.device.clone()]);
        let (engine, run_dir, device) = (engine.clone(), config.ovs_run_dir.clone(), transport.device.clone());
        tokio::spawn(async move { tunnels::run(engine, run_dir, &device, tunnel_changes).await });
    }
    tokio::spawn(host_reconciler::run(engine.clone(), devices, status));
    let (tables, tracked) = watch::channel(guard::Tables::default());
    tokio::spawn(guard::run(engine.clone(), conntrack, Arc::clone(&own), tables));

    let (database_changes, database_status) = watch::channel(reconcile::Status::default());
    startup.finish(Rest {
        engine: engine.clone(),
        has_metrics: config.enable_prometheus_metrics,
        counters,
        host_status: host_status.clone(),
        tunnel_status,
        last_answer,
        tracked,
        database_status,
        database: database.status(),
    });

    tokio::spawn(flow_restore::run(Arc::clone(&database), engine.clone()));
    let listener = api::cni::Listener::bind(&config.cni_socket)?;
    let reconciler =
        Reconciler { spec, database, engine: engine.clone(), ports: bridge_ports, status: database_changes };
    Ok(Started { listener, cni, engine, host_status, transport, bridge: tokio::spawn(reconciler.run()) })
}

/// Waits until Pods can be attached, and then accepts CNI calls.
async fn open(cni: &Cni, engine: &Engine, mut host_status: watch::Receiver<HostStatus>) -> Result<()> {
    ready(engine).await?;
    // No Pod is attached before the nftables rules protect the host.
    let protected = host_status.wait_for(|host_status| host_status.has_firewall);
    waiting_for("nftables rules; no Pod is attached before", protected).await.context("the agent is stopping")?;
    tokio::spawn(takeover::remove_rules());
    if let Err(error) = cni.collect_garbage().await {
        warn!(%error, "cannot clean up after earlier CNI calls; the agent tries again at its next start");
    }
    cni.open().await;
    Ok(())
}

/// Waits until the Node object has a podCIDR and addresses.
async fn own_node(client: &Client, name: &str, startup: &Startup) -> Result<Node> {
    let only = WatchFilter { fields: format!("metadata.name={name}"), ..WatchFilter::default() };
    let mut watch = client.watch::<Node>(&only);
    let mut logged = String::new();
    let mut missing = format!(
        "the Kubernetes API at {}; without kube-proxy, kubeAPIServerOverride must be set",
        client.server_host()
    );
    loop {
        let problem = match startup.waiting_for(&missing, watch.next()).await {
            WatchEvent::Applied(node) => match local_addresses(&node) {
                Ok(_) => return Ok(node),
                Err(problem) => problem.to_string(),
            },
            WatchEvent::Deleted(_) => format!("Node {name} was deleted"),
            WatchEvent::Synced if logged.is_empty() => format!("Node {name} not found; is NODE_NAME right?"),
            WatchEvent::Synced => continue,
        };
        if problem != logged {
            warn!(problem, "waiting for a valid Node object");
            missing = format!("a valid Node object: {problem}");
            logged = problem;
        }
    }
}

/// What [`start`] has detected about this Node.
struct Facts<'a> {
    name: &'a str,
    node: &'a Node,
    addresses: pipeline::model::Families<pipeline::model::Address>,
    transport: &'a Transport,
    mtu: u32,
    datapath: Datapath,
    features: DatapathFeatures,
    bridge_ports: BridgePorts,
    control_path: ControlPath,
    tunnel_problem: Option<String>,
}

fn own(config: &Config, facts: Facts<'_>) -> Result<Own> {
    let Facts { name, node, addresses, transport, mtu, datapath, features, bridge_ports, .. } = facts;
    // Without ::1: IPv6 has no route_localnet, so the kernel does not reply from it on another device.
    let candidates = node_addresses(node).into_iter().chain([IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    let allowed = |ip: &IpAddr| {
        let allowed = &config.antrea_proxy.node_port_addresses;
        allowed.is_empty() || allowed.iter().any(|net| net.contains(ip))
    };
    Ok(Own {
        name: name.to_owned(),
        mode: config.traffic_encap_mode,
        features: Features {
            antrea_proxy: config.antrea_proxy.enable,
            proxy_all: config.antrea_proxy.proxy_all,
            antrea_policy: true,
        },
        datapath,
        all_zero_snat: features.all_zero_snat,
        gateway_device: config.host_gateway.clone(),
        gateway: Gateway { port: bridge_ports.gateway, mac: bridge_ports.mac },
        tunnels: bridge_ports.tunnel.into_iter().collect(),
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
        control_path: facts.control_path,
        transport_bridge: transport_bridge(config, transport, &bridge_ports),
        tunnel_problem: facts.tunnel_problem,
    })
}

fn transport_bridge(config: &Config, transport: &Transport, ports: &BridgePorts) -> Option<TransportBridge> {
    let (Some(uplink), IpAddr::V4(address)) = (ports.uplink, transport.address) else { return None };
    Some(TransportBridge { uplink, address, tunnel: config.tunnel_packets() })
}

/// The address ranges for Pods.
fn ranges(own: &Own) -> Result<Vec<Range>> {
    own.families()
        .map(|address| {
            Range::new(address.pod_cidr, None, None, vec![address.gateway, address.snat])
                .with_context(|| format!("Node {}: spec.podCIDRs", own.name))
        })
        .collect()
}

/// Waits for the initial sync, and logs the sources that are missing.
async fn ready(engine: &Engine) -> Result<()> {
    let mut progress = engine.progress();
    let mut logged = Vec::new();
    loop {
        let wait = progress.wait_for(|progress| progress.ready);
        match tokio::time::timeout(WARN_AFTER, wait).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(_)) => bail!("the agent is stopping"),
            Err(_) => {
                let missing = engine.read(|brain| brain.unsynced().collect::<Vec<_>>()).await;
                if missing != logged {
                    warn!(?missing, "not ready for Pods: waiting for the switch and for the initial sync of sources");
                    logged = missing;
                }
            }
        }
    }
}
