//! The network of a Node: the only module that depends on the network under test.
//!
//! The lab acts as the operating system of a Node. A network gets its programs, its configuration and a kubeconfig, and is
//! ready when its CNI configuration exists and its daemon, if it has one, accepts connections.

use std::fs::{self, DirBuilder};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::json;
use testkit::process::run;
use testkit::wait::scaled;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::daemon::{self, Backoff, Program};
use super::kube_proxy;
use crate::plan::{Network, Node, POD_NETS, Plan, SERVICE_NETS, Services};
use crate::state::Home;

/// Directory of CNI configurations.
pub(crate) const CONFIGURATIONS: &str = "/etc/cni/net.d";
/// Directory of CNI plugins.
pub(crate) const PLUGINS: &str = "/opt/cni/bin";
/// Directory of the CNI plugins of Debian.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";
/// Directory for programs that are not part of the distribution.
const PROGRAMS: &str = "/usr/local/bin";
/// ServiceAccount of the agents.
const AGENT: &str = "antrea-agent";
/// Socket on which antrea-agent accepts calls of antrea-cni.
const CNI_SOCKET: &str = "/run/antrea/cni.sock";
/// Directory to which antrea-agent writes its recordings.
const RECORDING: &str = "/run/antrea/recording";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the network. Returns when Pods can be connected.
pub(crate) async fn start(home: &Home, plan: &Plan, node: &Node) -> Result<()> {
    link_plugins(Path::new(DEBIAN_PLUGINS))?;
    match plan.network {
        Network::Antrea => {
            antrea(home, plan, node).await?;
            if plan.has_kube_proxy() { kube_proxy::start(home, node) } else { Ok(()) }
        }
        Network::Bridge => bridge(plan, node),
        Network::None => bail!("there is no network for the lab's kubelet"),
    }
}

fn link_plugins(from: &Path) -> Result<()> {
    let Ok(plugins) = fs::read_dir(from) else { return Ok(()) };
    for plugin in plugins {
        let plugin = plugin?;
        symlink(plugin.path(), Path::new(PLUGINS).join(plugin.file_name()))?;
    }
    Ok(())
}

/// Installs the programs, starts the agent, and installs the CNI plugin.
async fn antrea(home: &Home, plan: &Plan, node: &Node) -> Result<()> {
    let programs = home.programs();
    for name in ["antrea-agent", "antrea-cni"] {
        let to = Path::new(PROGRAMS).join(name);
        fs::copy(programs.join(name), &to).with_context(|| format!("cannot install {}", to.display()))?;
    }
    let directory = home.node(&node.name);
    let configuration = directory.join("antrea-agent.conf");
    fs::write(&configuration, agent_configuration(home, plan, node))?;
    if plan.record {
        link_recording(&home.recording(&node.name))?;
    }
    let agent = Program {
        name: Path::new(PROGRAMS).join("antrea-agent"),
        arguments: vec!["--config".into(), configuration.display().to_string()],
        environment: vec![("NODE_NAME".into(), node.name.clone())],
        log: directory.join("antrea-agent.log"),
    };
    let (deadline, mut backoff) = (Instant::now() + scaled(START_TIMEOUT), Backoff::default());
    // The token is bound to the Node, so it is issued after the Node object exists.
    while !home.token_of(AGENT, &node.name).exists() {
        if Instant::now() > deadline {
            bail!("no token for the agent of {} after {START_TIMEOUT:?}", node.name);
        }
        tokio::time::sleep_until(Instant::now() + backoff.next()).await;
    }
    let mut child = agent.start()?;
    while UnixStream::connect(CNI_SOCKET).await.is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("antrea-agent ended with {status}: {}", agent.log_tail());
        }
        if Instant::now() > deadline {
            bail!("antrea-agent does not answer at {CNI_SOCKET}: {}", agent.log_tail());
        }
        tokio::time::sleep_until(Instant::now() + backoff.next()).await;
    }
    let mut install = std::process::Command::new(&agent.name);
    run(install.arg("install-cni").arg("--config").arg(&configuration), None)?;
    tokio::spawn(daemon::supervise(agent, child));
    Ok(())
}

/// Makes the agent write its recordings to a directory of the lab, where they are visible outside of the Node and survive it.
fn link_recording(directory: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(directory)?;
    symlink(directory, RECORDING).with_context(|| format!("cannot create {RECORDING}"))
}

/// The configuration file of the agent, as JSON, which is valid YAML.
fn agent_configuration(home: &Home, plan: &Plan, node: &Node) -> String {
    let configuration = json!({
        "trafficEncapMode": plan.mode,
        "tunnelType": plan.tunnel,
        "serviceCIDR": SERVICE_NETS[0],
        "serviceCIDRv6": SERVICE_NETS[1],
        "ovsDatapathType": plan.datapath.ovs_type(),
        "antreaProxy": match plan.services {
            Services::Antrea => json!({"proxyAll": true}),
            Services::Both => json!({}),
            Services::KubeProxy => json!({"enable": false}),
        },
        "eventRecording": {"enable": plan.record},
        "clientConnection": {"kubeconfig": home.kubeconfig_of(AGENT, &node.name)},
    });
    format!("{configuration:#}\n")
}

/// Configures Debian's `bridge` plugin, and routes to the other Nodes.
fn bridge(plan: &Plan, node: &Node) -> Result<()> {
    let needed: PathBuf = Path::new(DEBIAN_PLUGINS).join("bridge");
    if !needed.exists() {
        bail!("{} is missing: apt-get install containernetworking-plugins", needed.display());
    }
    let ranges: Vec<_> = node.pod_cidrs.iter().map(|net| json!([{"subnet": net}])).collect();
    let plugin = json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "ranges": ranges},
    });
    routes(node, &Plan { nodes: Vec::new(), ..plan.clone() }, plan)?;
    let masquerade = format!(
        "table inet lab {{
        chain postrouting {{
            type nat hook postrouting priority 100;
            ip saddr {} ip daddr != {} masquerade
            ip6 saddr {} ip6 daddr != {} masquerade
        }}
        }}",
        node.pod_cidrs[0], POD_NETS[0], node.pod_cidrs[1], POD_NETS[1]
    );
    run(std::process::Command::new("nft").args(["-f", "-"]), Some(&masquerade))?;
    configure("10-bridge.conflist", &json!({"cniVersion": "0.4.0", "name": "lab", "plugins": [plugin]}))
}

/// Adds routes to Nodes that joined since the old plan, and removes those to Nodes that left.
pub(super) fn routes(node: &Node, old: &Plan, new: &Plan) -> Result<()> {
    let near = |plan: &Plan, but: &Plan| -> Vec<(IpNet, IpAddr)> {
        let fresh = plan.near(node).filter(|peer| !but.nodes.contains(peer));
        fresh.flat_map(|peer| peer.pod_cidrs.map(|net| (net, peer.address_for(&net)))).collect()
    };
    let gone = near(old, new).into_iter().map(|(net, via)| format!("route del {net} via {via}"));
    let come = near(new, old).into_iter().map(|(net, via)| format!("route replace {net} via {via}"));
    let lines: Vec<String> = gone.chain(come).collect();
    run(std::process::Command::new("ip").args(["-batch", "-"]), Some(&lines.join("\n"))).map(drop)
}

fn configure(name: &str, conflist: &serde_json::Value) -> Result<()> {
    let path = Path::new(CONFIGURATIONS).join(name);
    fs::write(&path, format!("{conflist:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}
