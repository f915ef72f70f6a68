//! A Node for tests: a network namespace with Open vSwitch, a Kubernetes API and an agent, and an uplink to a second namespace.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use api::cni::request::Command;
use api::cni::{Attachment, AttachmentId, Call, ContainerId, Error, InterfaceName, Pod, Release};
use apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Ovs, Scratch};

pub(crate) const NODE_IP: &str = "192.168.77.1";
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_antrea-agent");
pub(crate) const SUBNETS: [&str; 2] = ["10.10.1.0/24", "fd10:1::/64"];
pub(crate) const OUTSIDE_IP: &str = "192.168.77.254";

pub(crate) struct Node {
    pub(crate) netns: Netns,
    pub(crate) outside: Netns,
    pub(crate) ovs: Ovs,
    pub(crate) api: ApiServer,
    agent: Option<Process>,
    dir: Scratch,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    /// A Node whose agent is ready.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, &SUBNETS)
    }

    /// A Node with these Pod subnets, whose agent is ready.
    pub(crate) fn start_with(config: &str, subnets: &[&str]) -> Self {
        let mut node = Self::without_agent(config, subnets);
        node.start_agent();
        node.wait_ready();
        node
    }

    pub(crate) fn without_agent(config: &str, subnets: &[&str]) -> Self {
        Self::made(config, subnets, false)
    }

    /// A Node whose agent is ready, and reaches the API at [`OUTSIDE_IP`].
    pub(crate) fn with_api_outside(config: &str) -> Self {
        let mut node = Self::made(config, &SUBNETS, true);
        node.start_agent();
        node.wait_ready();
        node
    }

    fn made(config: &str, subnets: &[&str], api_outside: bool) -> Self {
        let (netns, outside) = (Netns::new().unwrap(), Netns::new().unwrap());
        testkit::netns::veth_pair(&netns, "eth0", &outside, "eth0").unwrap();
        for (side, v4, v6) in [(&netns, NODE_IP, "fd77::1"), (&outside, OUTSIDE_IP, "fd77::fe")] {
            side.link_up("lo").unwrap();
            side.add_address("eth0", &format!("{v4}/24")).unwrap();
            side.add_address("eth0", &format!("{v6}/64")).unwrap();
            side.link_up("eth0").unwrap();
        }
        let ovs = Ovs::start_in(&netns).unwrap();
        let dir = Scratch::new().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // A socket stays in the network namespace in which it was created.
        let outside_options = || Options {
            listen: format!("{OUTSIDE_IP}:0").parse().unwrap(),
            names: vec![OUTSIDE_IP.to_owned()],
            ..Options::default()
        };
        let (place, options) = if api_outside { (&outside, outside_options()) } else { (&netns, Options::default()) };
        let start = || runtime.block_on(ApiServer::start(options)).unwrap();
        let api = place.run(start).unwrap();
        fs::write(dir.path().join("kubeconfig"), account(&api, dir.path())).unwrap();
        let spec = subnets.first().map(|first| json!({"podCIDR": first, "podCIDRs": subnets}));
        let node = json!({"metadata": {"name": "n1"}, "spec": spec.unwrap_or_else(|| json!({}))});
        api.local().create("v1", "nodes", "", node).unwrap();
        let addresses = json!({"status": {"addresses": [
            {"type": "InternalIP", "address": NODE_IP}, {"type": "InternalIP", "address": "fd77::1"},
        ]}});
        api.local().patch("v1", "nodes", "", "n1", "status", apiserver::Patch::Merge, &addresses).unwrap();
        let node = Self { netns, outside, ovs, api, agent: None, dir, runtime };
        node.configure(config);
        node
    }

    /// Writes the configuration for the next start of the agent.
    pub(crate) fn configure(&self, config: &str) {
        let dir = self.dir.path();
        let text = format!(
            "ovsRunDir: {}\ncniSocket: {}\nipamDir: {}\nclientConnection: {{kubeconfig: {}}}\n{config}\n",
            self.ovs.dir().display(),
            dir.join("cni.sock").display(),
            dir.join("ipam").display(),
            dir.join("kubeconfig").display(),
        );
        fs::write(dir.join("antrea-agent.conf"), text).unwrap();
    }

    pub(crate) fn start_agent(&mut self) {
        self.start_agent_by(self.netns.command(PROGRAM));
    }

    /// Starts the agent by a command that ends with the program.
    pub(crate) fn start_agent_by(&mut self, mut command: std::process::Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("agent.log")).unwrap();
        command.arg("--config").arg(self.dir.path().join("antrea-agent.conf"));
        command.env("NODE_NAME", "n1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.agent = Some(Process::spawn(command).unwrap());
    }

    pub(crate) fn kill_agent(&mut self) {
        self.agent.take().unwrap().kill().unwrap();
    }

    /// Waits until the agent has exited with an error.
    pub(crate) fn wait_ended(&mut self) {
        let agent = self.agent.as_mut().unwrap();
        let status = until("the agent ends", TIMEOUT, || agent.ended().unwrap()).unwrap();
        assert!(!status.success());
    }

    /// Sends SIGTERM, and waits until the agent has exited.
    pub(crate) fn stop_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        testkit::process::run(std::process::Command::new("kill").arg(agent.pid().to_string()), None).unwrap();
        let status = until("the agent to stop", TIMEOUT, || agent.ended().unwrap()).unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// The log of the agent since its first start.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Path of a file beside the CNI socket.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until the agent's log contains a text.
    pub(crate) fn wait_log(&self, text: &str) {
        let logged = || self.log().contains(text).then_some(());
        until(format!("the log contains `{text}`"), TIMEOUT, logged)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    pub(crate) fn wait_ready(&self) {
        let ready = || self.cni(&Command::Status).is_ok().then_some(());
        until(format!("the agent is ready; its log: {}", self.log()), TIMEOUT, ready).unwrap_or_else(|error| {
            panic!("{error}\n{}", self.log());
        });
    }

    pub(crate) fn cni(&self, command: &Command) -> Result<Option<Attachment>, Error> {
        let socket = self.dir.path().join("cni.sock");
        self.runtime.block_on(api::cni::client::call(&socket, command, Duration::from_secs(60)))
    }

    /// Attaches a Pod with this name.
    pub(crate) fn add(&self, name: &str) -> PodNet {
        let netns = Netns::new().unwrap();
        netns.link_up("lo").unwrap();
        let attachment = self.cni(&Command::Add(call(name, &netns.path()))).unwrap().unwrap();
        let ips: Vec<IpAddr> = attachment.ips.iter().map(|ip| ip.address.addr()).collect();
        // A single-stack Pod has the same address for both.
        let address = |v4: bool| ips.iter().copied().find(|ip| ip.is_ipv4() == v4).unwrap_or(ips[0]);
        PodNet { name: name.to_owned(), v4: address(true), v6: address(false), netns, attachment }
    }

    pub(crate) fn del(&self, pod: &PodNet) {
        self.cni(&release(&pod.name)).unwrap();
    }

    /// Waits until nothing of Pods is left.
    pub(crate) fn no_traces(&self) {
        let none = || self.traces().is_empty().then_some(());
        until("the end of all Pods", TIMEOUT, none)
            .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", self.traces(), self.log()));
    }

    /// Allocated addresses, veths, ports in OVSDB and nftables chains of Pods.
    pub(crate) fn traces(&self) -> Vec<String> {
        let mut traces: Vec<String> = fs::read_dir(self.dir.path().join("ipam"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.parse::<IpAddr>().is_ok())
            .collect();
        let is_pod = |name: &&str| name.contains('-') && !name.starts_with("antrea-") && !name.starts_with("ovs-");
        let links = self.netns.ip(["-br", "link"]).unwrap();
        let names = links.lines().filter_map(|line| line.split(['@', ' ']).next());
        traces.extend(names.filter(is_pod).map(|name| format!("link {name}")));
        let ports = self.ovs.vsctl(["list-ports", "br-int"]).unwrap();
        traces.extend(ports.lines().filter(is_pod).map(|name| format!("port {name}")));
        let chains = testkit::process::run(self.netns.command("nft").args(["list", "chains", "netdev"]), None).unwrap();
        traces.extend(chains.lines().filter(|line| line.contains("chain ")).map(|line| line.trim().to_owned()));
        traces.sort();
        traces
    }

    /// The flows of the switch, without statistics.
    pub(crate) fn flows(&self) -> Vec<String> {
        let dump = self.ovs.ofctl(["--no-stats", "-O", "OpenFlow15", "dump-flows", "br-int"]).unwrap();
        let mut flows: Vec<String> = dump.lines().filter(|line| line.contains("actions=")).map(str::to_owned).collect();
        flows.sort();
        flows
    }

    /// Status code and body of a GET request to the agent's API.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        let token = fs::read_to_string(self.dir.path().join("loopback-client-token")).unwrap_or_default();
        let mut command = self.netns.command("curl");
        command.args(["-s", "-w", "\n%{http_code}", "-H", &format!("Authorization: Bearer {token}")]);
        let answer = testkit::process::run(command.arg(format!("http://127.0.0.1:10350{path}")), None).unwrap();
        let (body, code) = answer.trim_end().rsplit_once('\n').unwrap_or(("", answer.trim_end()));
        (code.parse().unwrap(), body.to_owned())
    }

    pub(crate) fn ask_json(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask(path).1).unwrap()
    }

    /// The value of a metric; `name` includes its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.ask("/metrics").1;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        line.parse().unwrap()
    }
}

/// A kubeconfig for the ServiceAccount and the roles of the agent's manifest.
fn account(api: &ApiServer, dir: &Path) -> String {
    make(api, include_str!("../../../../deploy/kubernetes/antrea-agent.yml"));
    let ca = dir.join("ca.pem");
    fs::write(&ca, api.ca_pem()).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "contexts": [{"name": "agent", "context": {"cluster": "test", "user": "agent"}}],
        "users": [{"name": "agent", "user": {"token": api.token_for("kube-system", "antrea-agent").unwrap()}}],
        "clusters": [{"name": "test", "cluster": {"server": api.url(), "certificate-authority": ca}}],
    })
    .to_string()
}

/// Creates the objects of a manifest in `deploy`.
pub(crate) fn make(api: &ApiServer, manifest: &str) {
    for object in serde_saphyr::from_multiple::<Value>(manifest).unwrap() {
        let plural = match object["kind"].as_str().unwrap() {
            "ServiceAccount" => "serviceaccounts",
            "ClusterRole" => "clusterroles",
            "ClusterRoleBinding" => "clusterrolebindings",
            "Role" => "roles",
            "RoleBinding" => "rolebindings",
            "ConfigMap" => "configmaps",
            "DaemonSet" => "daemonsets",
            other => panic!("a {other} in the manifest"),
        };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let version = object["apiVersion"].as_str().unwrap().to_owned();
        api.local().create(&version, plural, &namespace, object).unwrap();
    }
}

/// A Pod that is attached to the Node.
pub(crate) struct PodNet {
    pub(crate) name: String,
    pub(crate) netns: Netns,
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
    pub(crate) attachment: Attachment,
}

pub(crate) fn id(name: &str) -> AttachmentId {
    AttachmentId {
        container: ContainerId::new(format!("container-of-{name}")).unwrap(),
        ifname: InterfaceName::new("eth0").unwrap(),
    }
}

pub(crate) fn call(name: &str, netns: &Path) -> Call {
    Call {
        id: id(name),
        network: "antrea".to_owned(),
        netns: netns.display().to_string(),
        pod: Pod::new("default", name, "").unwrap(),
        mtu: None,
        previous: None,
    }
}

pub(crate) fn release(name: &str) -> Command {
    Command::Del(Release { id: id(name), netns: None, pod: Some(Pod::new("default", name, "").unwrap()) })
}

/// Whether a ping is answered within ten seconds.
pub(crate) fn reaches(from: &Netns, to: IpAddr) -> bool {
    let ping = || {
        let mut command = from.command("ping");
        command.args(["-c1", "-W1", &to.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success().then_some(())
    };
    until(format!("{to} is reached"), Duration::from_secs(10), ping).is_ok()
}

pub(crate) fn nowhere() -> PathBuf {
    PathBuf::from("/var/run/netns/that-is-gone")
}
