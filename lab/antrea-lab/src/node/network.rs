//! Who connects the Pods of a Node: the one seam between the lab and what is tried out in it.
//!
//! The lab does what the operating system of a Node does. A network gets its programs, its configuration and a kubeconfig,
//! and is ready when its CNI configuration is there and, if it has a daemon, that answers.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::json;
use testkit::process::run;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::daemon::{self, Pauses, Program};
use super::kube_proxy;
use crate::plan::{Mode, Network, Node, POD_NETS, Plan, SERVICE_NETS, Services};
use crate::state::Home;

/// Where CNI configurations are.
pub(crate) const CONFIGURATIONS: &str = "/etc/cni/net.d";
/// Where CNI plugins are.
pub(crate) const PLUGINS: &str = "/opt/cni/bin";
/// Where Debian has its plugins.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";
/// Where an administrator puts programs.
const PROGRAMS: &str = "/usr/local/bin";
/// The agents' account.
const AGENT: &str = "antrea-agent";
/// Where antrea-agent listens for antrea-cni.
const CNI_SOCKET: &str = "/run/antrea/cni.sock";
const PATIENCE: Duration = Duration::from_secs(60);

/// Sets the network up; returns when Pods can be connected.
pub(crate) async fn start(home: &Home, plan: &Plan, node: &Node) -> Result<()> {
    link_plugins(Path::new(DEBIAN_PLUGINS))?;
    match plan.network {
        Network::Antrea => {
            antrea(home, plan, node).await?;
            if plan.has_kube_proxy() { kube_proxy::start(home, node) } else { Ok(()) }
        }
        Network::Bridge => bridge(plan, node),
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

/// What a Node's administrator does: puts the programs in place, starts the agent, installs the plugin.
async fn antrea(home: &Home, plan: &Plan, node: &Node) -> Result<()> {
    let programs = home.programs();
    for name in ["antrea-agent", "antrea-cni"] {
        let to = Path::new(PROGRAMS).join(name);
        fs::copy(programs.join(name), &to).with_context(|| format!("cannot install {}", to.display()))?;
    }
    let directory = home.node(&node.name);
    let configuration = directory.join("antrea-agent.conf");
    fs::write(&configuration, agent_configuration(home, plan, node))?;
    let agent = Program {
        name: Path::new(PROGRAMS).join("antrea-agent"),
        arguments: vec!["--config".into(), configuration.display().to_string()],
        environment: vec![("NODE_NAME".into(), node.name.clone())],
        log: directory.join("antrea-agent.log"),
    };
    let (deadline, mut pauses) = (Instant::now() + PATIENCE, Pauses::default());
    // It is bound to the Node, so it comes after the API knows the Node.
    while !home.token_of(AGENT, &node.name).exists() {
        if Instant::now() > deadline {
            bail!("the Kubernetes API gives no token for the agent of {}", node.name);
        }
        tokio::time::sleep_until(Instant::now() + pauses.next()).await;
    }
    let mut child = agent.start()?;
    while UnixStream::connect(CNI_SOCKET).await.is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("antrea-agent ended with {status}: {}", agent.log_tail());
        }
        if Instant::now() > deadline {
            bail!("antrea-agent does not answer at {CNI_SOCKET}: {}", agent.log_tail());
        }
        tokio::time::sleep_until(Instant::now() + pauses.next()).await;
    }
    let mut install = std::process::Command::new(&agent.name);
    run(install.arg("install-cni").arg("--config").arg(&configuration), None)?;
    tokio::spawn(daemon::keep(agent, child, async || Ok(())));
    Ok(())
}

/// Antrea's configuration file, which is YAML; JSON is that too.
fn agent_configuration(home: &Home, plan: &Plan, node: &Node) -> String {
    let mode = match plan.mode {
        Mode::Encap => "encap",
        Mode::NoEncap => "noEncap",
        Mode::Hybrid => "hybrid",
    };
    let configuration = json!({
        "trafficEncapMode": mode,
        "tunnelType": plan.tunnel,
        "serviceCIDR": SERVICE_NETS[0],
        "serviceCIDRv6": SERVICE_NETS[1],
        "ovsDatapathType": "netdev",
        "antreaProxy": match plan.services {
            Services::Antrea => json!({"proxyAll": true}),
            Services::Both => json!({}),
            Services::KubeProxy => json!({"enable": false}),
        },
        "clientConnection": {"kubeconfig": home.kubeconfig_of(AGENT, &node.name)},
    });
    format!("{configuration:#}\n")
}

/// Debian's `bridge` on every Node, and routes between them.
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

/// Leads the way to those who have joined since the old plan, and to those who have left no more.
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
