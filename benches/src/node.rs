//! A Node to measure: a namespace with an Open vSwitch of its own, a Kubernetes API, and the agent as it is released.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apiserver::{ApiServer, Options, Patch};
use serde_json::{Value, json};
use testkit::process::{Process, run};
use testkit::wait::{PATIENCE, until};
use testkit::{Netns, Ovs, Scratch, veth_pair};

const NODE_IP: &str = "192.168.77.1";

/// A Node without an agent yet: a namespace with Open vSwitch, and a Kubernetes API in it.
pub struct Site {
    // The order is the order of the end.
    ovs: Ovs,
    _api_runtime: tokio::runtime::Runtime,
    api: ApiServer,
    netns: Netns,
    outside: Netns,
    dir: Scratch,
}

/// A Node with an agent that is ready for Pods. It is gone on drop, with all that belongs to it.
pub struct Node {
    agent: Process,
    site: Site,
}

/// A CNI plugin with its network configuration, as a container runtime knows it.
#[derive(Clone, Debug)]
pub struct Plugin {
    program: PathBuf,
    configuration: String,
}

/// A sandbox of a Pod, as a container runtime makes it.
#[derive(Debug)]
pub struct Sandbox {
    container: String,
    pod: String,
    netns: Netns,
}

impl Site {
    /// A Node with room for some 250 Pods, beside that many other Nodes.
    pub fn new(peers: u16) -> Result<Self> {
        let (netns, outside) = (Netns::new()?, Netns::new()?);
        veth_pair(&netns, "eth0", &outside, "eth0")?;
        netns.add_address("eth0", &format!("{NODE_IP}/16"))?;
        netns.link_up("eth0")?;
        outside.link_up("eth0")?;
        let ovs = Ovs::start_in(&netns)?;
        let dir = Scratch::new()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // A socket belongs to the namespace in which it was made, wherever it is used.
        let api = netns.run(|| runtime.block_on(ApiServer::start(Options::default())))??;
        api.write_kubeconfig(&dir.path().join("kubeconfig"))?;
        add_node(&api, "n1", "10.10.1.0/24", NODE_IP)?;
        for number in 1..=peers {
            let [high, low] = number.to_be_bytes();
            add_node(
                &api,
                &format!("peer-{number}"),
                &format!("10.{}.{low}.0/24", 20 + high),
                &format!("192.168.{}.{low}", 78 + high),
            )?;
        }
        Ok(Self { ovs, _api_runtime: runtime, api, netns, outside, dir })
    }

    /// Its Kubernetes API.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Its own network.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// What is at the other end of its `eth0`.
    pub fn outside(&self) -> &Netns {
        &self.outside
    }

    /// A directory that is gone with it; there is a `kubeconfig`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the agent, with these further lines of configuration; it need not be ready yet.
    pub fn start(self, further: &str) -> Result<Node> {
        let dir = self.dir.path();
        let text = format!(
            "ovsRunDir: {}\ncniSocket: {}\nipamDir: {}\nclientConnection: {{kubeconfig: {}}}\n{further}",
            self.ovs.dir().display(),
            dir.join("cni.sock").display(),
            dir.join("ipam").display(),
            dir.join("kubeconfig").display(),
        );
        fs::write(dir.join("antrea-agent.conf"), text)?;
        let agent = start_agent(&self.netns, dir)?;
        Ok(Node { agent, site: self })
    }
}

impl Node {
    /// Starts a Node with room for some 250 Pods, beside that many other Nodes.
    pub fn start(peers: u16) -> Result<Self> {
        let node = Site::new(peers)?.start("")?;
        node.wait_ready(peers)?;
        Ok(node)
    }

    /// All of it but the agent.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The plugin antrea-cni, which asks this Node's agent.
    pub fn antrea(&self) -> Result<Plugin> {
        let configuration = json!({"cniVersion": "1.0.0", "name": "antrea", "type": "antrea", "socket": self.site.dir.path().join("cni.sock")});
        Ok(Plugin { program: program("antrea-cni")?, configuration: configuration.to_string() })
    }

    /// Debian's `bridge` with `host-local`, giving a Pod what antrea-cni gives it: an address, a gateway, a way out.
    pub fn bridge(&self) -> Plugin {
        let configuration = json!({
            "cniVersion": "1.0.0", "name": "peer", "type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1450,
            "ipam": {
                "type": "host-local",
                "dataDir": self.site.dir.path().join("peer"),
                "ranges": [[{"subnet": "10.99.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        Plugin { program: "/usr/lib/cni/bridge".into(), configuration: configuration.to_string() }
    }

    /// Calls a plugin as a container runtime does; how long it took, from the start of the process to its end.
    pub fn call(&self, plugin: &Plugin, command: &str, sandbox: &Sandbox) -> Result<Duration> {
        let mut child = self.site.netns.command(&plugin.program);
        let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", sandbox.pod);
        child.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_PATH", "/usr/lib/cni");
        child.env("CNI_COMMAND", command).env("CNI_CONTAINERID", &sandbox.container).env("CNI_IFNAME", "eth0");
        child.env("CNI_NETNS", sandbox.netns.path()).env("CNI_ARGS", arguments);
        let start = Instant::now();
        let told = run(&mut child, Some(&plugin.configuration));
        let took = start.elapsed();
        told.with_context(|| format!("{command} of {}; the agent's log:\n{}", sandbox.pod, self.log()))?;
        Ok(took)
    }

    /// Waits until the kernel has removed what a sandbox had, so that it does not slow down the next call.
    pub fn settle(&self, sandbox: &Sandbox) -> Result<()> {
        let device = format!("{}-", sandbox.pod);
        let gone = || (!self.site.netns.ip(["-br", "link"]).ok()?.contains(&device)).then_some(());
        until(format!("the end of device {device}*"), PATIENCE, gone)
    }

    /// The memory that the agent holds, in bytes.
    pub fn agent_rss(&self) -> Result<u64> {
        self.agent.rss()
    }

    /// The processor's time that the agent has used since its start, and the programs that it has run.
    pub fn agent_cpu(&self) -> Result<Duration> {
        // A tick is 10 ms for whoever reads this file, on every machine.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.agent.pid()))?;
        // The second field is the program's name in brackets; of those behind it, user and system time are the 12th and 13th, and
        // those of the children that have ended follow.
        let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has no name in brackets")?;
        let times = fields.split(' ').skip(11).take(4).map(str::parse::<u32>);
        Ok(TICK * times.sum::<Result<u32, _>>()?)
    }

    /// What is left of Pods: addresses, devices, ports.
    pub fn traces(&self) -> Result<Vec<String>> {
        let mut traces = Vec::new();
        for entry in fs::read_dir(self.site.dir.path().join("ipam"))? {
            traces
                .extend(entry?.file_name().into_string().ok().filter(|name| name.parse::<std::net::IpAddr>().is_ok()));
        }
        let links = self.site.netns.ip(["-br", "link"])?;
        traces.extend(links.lines().filter(|line| line.starts_with("pod-")).map(str::to_owned));
        let ports = self.site.ovs.vsctl(["list-ports", "br-int"])?;
        traces.extend(ports.lines().filter(|line| line.starts_with("pod-")).map(str::to_owned));
        Ok(traces)
    }

    /// What the agent has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.site.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Waits until Pods can be attached, and all other Nodes are reached.
    pub fn wait_ready(&self, peers: u16) -> Result<()> {
        let routes = || self.site.netns.ip(["route", "show", "dev", "antrea-gw0"]).ok();
        let ready = || (self.log().contains(" ready") && routes()?.lines().count() > usize::from(peers)).then_some(());
        until("the agent to be ready", PATIENCE, ready).with_context(|| self.log())
    }
}

impl Sandbox {
    /// A fresh one, which the runtime gives a long and random id.
    pub fn new(number: usize) -> Result<Self> {
        let pod = format!("pod-{number}");
        Ok(Self { container: format!("{number:064x}"), pod, netns: Netns::new()? })
    }

    /// Its network.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }
}

/// A program that was built with this one.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.exists(), "{} is missing; `cargo build --release -p {name}` makes it", path.display());
    Ok(path)
}

fn start_agent(netns: &Netns, dir: &Path) -> Result<Process> {
    let log = fs::File::create(dir.join("agent.log"))?;
    let mut command: Command = netns.command(program("antrea-agent")?);
    command.arg("--config").arg(dir.join("antrea-agent.conf")).env("NODE_NAME", "n1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process::spawn(command)
}

fn add_node(api: &ApiServer, name: &str, pod_cidr: &str, ip: &str) -> Result<()> {
    let local = api.local();
    local.create("v1", "nodes", "", like_a_kubelets(name, pod_cidr))?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}]}});
    local.patch("v1", "nodes", "", name, "status", Patch::Merge, &status)?;
    Ok(())
}

/// A Node with the labels and annotations that a kubelet and a cloud give it.
fn like_a_kubelets(name: &str, pod_cidr: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "standard-8", "topology.kubernetes.io/zone": "zone-1",
                "topology.kubernetes.io/region": "region-1",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
    })
}
