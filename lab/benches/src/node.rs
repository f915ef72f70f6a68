//! A Node to measure: a namespace with an Open vSwitch of its own, a Kubernetes API, and the agent as it is released.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apiserver::{ApiServer, Options, Patch};
use serde_json::{Value, json};
use testkit::process::{Process, run};
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Ovs, Scratch, veth_pair};

const NODE_IP: &str = "192.168.77.1";

/// A Node without an agent: a namespace with Open vSwitch and a Kubernetes API.
pub struct Site {
    // Fields are dropped in this order.
    ovs: Ovs,
    _api_runtime: tokio::runtime::Runtime,
    api: ApiServer,
    netns: Netns,
    outside: Netns,
    dir: Scratch,
}

/// A Node with an agent that is ready for Pods. Drop removes it with everything that belongs to it.
pub struct Node {
    agent: Process,
    site: Site,
}

/// A CNI plugin with its network configuration.
#[derive(Clone, Debug)]
pub struct Plugin {
    program: PathBuf,
    configuration: String,
}

/// A sandbox of a Pod, as a container runtime creates it.
#[derive(Debug)]
pub struct Sandbox {
    container: String,
    pod: String,
    netns: Netns,
}

impl Site {
    /// Creates a Node with addresses for some 250 Pods, and objects for this many other Nodes.
    pub fn new(peers: u16) -> Result<Self> {
        let (netns, outside) = (Netns::new()?, Netns::new()?);
        veth_pair(&netns, "eth0", &outside, "eth0")?;
        netns.add_address("eth0", &format!("{NODE_IP}/16"))?;
        netns.link_up("eth0")?;
        outside.link_up("eth0")?;
        let ovs = Ovs::start_in(&netns)?;
        let dir = Scratch::new()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // A socket belongs to the namespace in which it was created.
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

    /// The Kubernetes API of the Node.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// The network namespace of the Node.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The network namespace at the other end of its `eth0`.
    pub fn outside(&self) -> &Netns {
        &self.outside
    }

    /// A directory with a `kubeconfig`, removed on drop.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the agent with additional lines of configuration, without waiting for it.
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
    /// Starts a Node with addresses for some 250 Pods, and objects for this many other Nodes.
    pub fn start(peers: u16) -> Result<Self> {
        let node = Site::new(peers)?.start("")?;
        node.wait_ready(peers)?;
        Ok(node)
    }

    /// Everything but the agent.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The plugin antrea-cni, which calls the agent of this Node.
    pub fn antrea(&self) -> Result<Plugin> {
        let configuration = json!({"cniVersion": "1.0.0", "name": "antrea", "type": "antrea", "socket": self.site.dir.path().join("cni.sock")});
        Ok(Plugin { program: program("antrea-cni")?, configuration: configuration.to_string() })
    }

    /// Debian's `bridge` with `host-local`, which gives a Pod the same as antrea-cni: an address, a gateway, a default
    /// route.
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

    /// Calls a plugin as a container runtime does. Returns the time from the start of the process to its end.
    pub fn call(&self, plugin: &Plugin, command: &str, sandbox: &Sandbox) -> Result<Duration> {
        let mut child = self.site.netns.command(&plugin.program);
        let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", sandbox.pod);
        child.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_PATH", "/usr/lib/cni");
        child.env("CNI_COMMAND", command).env("CNI_CONTAINERID", &sandbox.container).env("CNI_IFNAME", "eth0");
        child.env("CNI_NETNS", sandbox.netns.path()).env("CNI_ARGS", arguments);
        let start = Instant::now();
        let result = run(&mut child, Some(&plugin.configuration));
        let took = start.elapsed();
        result.with_context(|| format!("{command} of {}; the agent's log:\n{}", sandbox.pod, self.log()))?;
        Ok(took)
    }

    /// Waits until the kernel has removed the devices of a sandbox, so that they do not slow down the next call.
    pub fn settle(&self, sandbox: &Sandbox) -> Result<()> {
        let device = format!("{}-", sandbox.pod);
        let gone = || (!self.site.netns.ip(["-br", "link"]).ok()?.contains(&device)).then_some(());
        until(format!("the end of device {device}*"), TIMEOUT, gone)
    }

    /// Resident memory of the agent, in bytes.
    pub fn agent_rss(&self) -> Result<u64> {
        self.agent.rss()
    }

    /// CPU time of the agent and of its ended children since its start.
    pub fn agent_cpu(&self) -> Result<Duration> {
        // A tick in this file is 10 ms on every machine.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.agent.pid()))?;
        // The second field is the name of the program in brackets. After it, user and system time are the 12th and 13th
        // field; those of ended children follow.
        let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has no name in brackets")?;
        let times = fields.split(' ').skip(11).take(4).map(str::parse::<u32>);
        Ok(TICK * times.sum::<Result<u32, _>>()?)
    }

    /// Remains of Pods: addresses, devices, ports.
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

    /// The log of the agent so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.site.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Waits until Pods can be attached, and all other Nodes have routes.
    pub fn wait_ready(&self, peers: u16) -> Result<()> {
        let routes = || self.site.netns.ip(["route", "show", "dev", "antrea-gw0"]).ok();
        let ready = || (self.log().contains(" ready") && routes()?.lines().count() > usize::from(peers)).then_some(());
        until("the agent to be ready", TIMEOUT, ready).with_context(|| self.log())
    }
}

impl Sandbox {
    /// Creates a sandbox with a long and random id, as runtimes do.
    pub fn new(number: usize) -> Result<Self> {
        let pod = format!("pod-{number}");
        Ok(Self { container: format!("{number:064x}"), pod, netns: Netns::new()? })
    }

    /// The network namespace of the sandbox.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }
}

/// Path of a program that was built with this one.
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
    local.create("v1", "nodes", "", node_object(name, pod_cidr))?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}]}});
    local.patch("v1", "nodes", "", name, "status", Patch::Merge, &status)?;
    Ok(())
}

/// A Node with the labels and annotations of a kubelet and a cloud provider.
fn node_object(name: &str, pod_cidr: &str) -> Value {
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
