//! From a policy with thousands of addresses at the API until the switch enforces it, in a lab with real components:
//! API, controller, agent, switch. Compared with `ovs-ofctl`, which installs the same flows in another bridge of the
//! same switch.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use benches::node::program;
use benches::{Figure, Goal, median, progress, report};
use serde_json::{Value, json};
use testkit::process::run;
use testkit::wait::until;
use testkit::{Netns, Scratch};

const SIZES: [(&str, u32); 3] = [("realize-5000", 5_000), ("realize-10000", 10_000), ("realize-15000", 15_000)];
/// Number of measurements; the median counts.
const ROUNDS: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the checks whether the policy is enforced.
const TICK: Duration = Duration::from_millis(2);
/// How late an answer may come when a test needs certainty that there is none: on a busy machine, answers are late.
const LATE: Duration = Duration::from_millis(250);

/// A cluster of one Node, with a client and a server.
struct Cluster {
    dir: Scratch,
    url: String,
    client: Netns,
    address: String,
    _server: Netns,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.lab(&["down"]);
    }
}

fn main() -> Result<()> {
    let cluster = Cluster::start()?;
    let goal = Some(Goal::Ratio(1.5));
    for (name, count) in SIZES {
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            progress(&format!("{count} addresses, round {} of {ROUNDS}", round + 1));
            ours.push(cluster.realize(count, round)?);
            peer.push(cluster.raw(count)?);
            cluster.clear()?;
        }
        let (ours, peer) = (median(&ours), median(&peer));
        report(&Figure { name, unit: "s", ours, peer: Some(peer), goal });
    }
    Ok(())
}

impl Cluster {
    fn start() -> Result<Self> {
        let dir = Scratch::new()?;
        let unused = || Netns::new();
        let mut cluster =
            Self { dir, url: String::new(), client: unused()?, address: String::new(), _server: unused()? };
        cluster.lab(&["up", "--nodes", "1", "--detach"])?;
        let kubeconfig = fs::read_to_string(cluster.home().join("kubeconfig"))?;
        let field = |name: &str| {
            let found = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            found.with_context(|| format!("the kubeconfig has no {name}")).map(str::to_owned)
        };
        cluster.url = field("server")?;
        for (name, file) in [
            ("certificate-authority-data", "ca"),
            ("client-certificate-data", "certificate"),
            ("client-key-data", "key"),
        ] {
            let pem = base64::engine::general_purpose::STANDARD.decode(field(name)?)?;
            fs::write(cluster.dir.path().join(file), pem)?;
        }
        for name in ["client", "server"] {
            let spec = json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "pause"}]});
            let metadata = json!({"name": name, "labels": {"app": name}});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
            cluster.apply("api/v1/namespaces/default/pods", name, &cluster.write(&pod)?)?;
        }
        cluster.apply_policy("deny", &cluster.write_policy("deny", &json!([]))?)?;
        let ip = |name: &str| {
            let pod = cluster.get(&format!("api/v1/namespaces/default/pods/{name}")).ok()?;
            let is_running = pod["status"]["containerStatuses"][0]["ready"] == true;
            pod["status"]["podIP"].as_str().filter(|_| is_running).map(str::to_owned)
        };
        let client = until("the client", TIMEOUT, || ip("client"))?;
        cluster.address = until("the server", TIMEOUT, || ip("server"))?;
        fs::write(cluster.dir.path().join("client-ip"), client)?;
        (cluster.client, cluster._server) = (cluster.netns("client")?, cluster.netns("server")?);
        let echo = cluster._server.run(|| UdpSocket::bind("0.0.0.0:7"))??;
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..length], from);
            }
        });
        cluster.lab(&[
            "node",
            "node-1",
            "--",
            "ovs-vsctl",
            "add-br",
            "br-raw",
            "--",
            "set",
            "bridge",
            "br-raw",
            "datapath_type=netdev",
            "fail_mode=secure",
        ])?;
        until("the server to be isolated", TIMEOUT, || (!cluster.passes(LATE).ok()?).then_some(()))?;
        Ok(cluster)
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("labs/bench")
    }

    /// Runs antrea-lab for this cluster, and returns its output.
    fn lab(&self, arguments: &[&str]) -> Result<String> {
        let (command, rest) = arguments.split_first().context("a command is missing")?;
        let mut lab = Command::new(program("antrea-lab")?);
        lab.args([command, "--name", "bench"]).args(rest).env("ANTREA_LAB_DIR", self.dir.path().join("labs"));
        run(&mut lab, None)
    }

    fn curl(&self, arguments: &[&str], path: &str) -> Result<String> {
        let file = |name: &str| self.dir.path().join(name);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--noproxy", "*", "--cacert"]).arg(file("ca"));
        curl.arg("--cert").arg(file("certificate")).arg("--key").arg(file("key"));
        run(curl.args(arguments).arg(format!("{}/{path}", self.url)), None)
    }

    fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.curl(&[], path)?)?)
    }

    /// Writes an object to a file for [`Cluster::apply`].
    fn write(&self, object: &Value) -> Result<PathBuf> {
        let file = self.dir.path().join("object");
        fs::write(&file, object.to_string())?;
        Ok(file)
    }

    /// Like `kubectl apply --server-side -f file`.
    fn apply(&self, path: &str, name: &str, file: &Path) -> Result<()> {
        let body = format!("@{}", file.display());
        let media = "Content-Type: application/apply-patch+yaml";
        self.curl(
            &["-X", "PATCH", "-H", media, "--data-binary", &body, "-o", "/dev/null"],
            &format!("{path}/{name}?fieldManager=bench&force=true"),
        )?;
        Ok(())
    }

    fn write_policy(&self, name: &str, ingress: &Value) -> Result<PathBuf> {
        let spec =
            json!({"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": ingress});
        let (version, kind) = ("networking.k8s.io/v1", "NetworkPolicy");
        self.write(&json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}))
    }

    fn apply_policy(&self, name: &str, file: &Path) -> Result<()> {
        self.apply("apis/networking.k8s.io/v1/namespaces/default/networkpolicies", name, file)
    }

    fn netns(&self, pod: &str) -> Result<Netns> {
        let node = self.home().join("nodes/node-1");
        let init = fs::read_to_string(node.join("init.pid"))?;
        let init = init.split(' ').next().context("init.pid is empty")?;
        let pid = fs::read_to_string(node.join("pods/default").join(pod).join("c/pid"))?;
        Netns::open(&PathBuf::from(format!("/proc/{init}/root/proc/{}/ns/net", pid.trim())))
    }

    /// Whether the server answers the client in time.
    fn passes(&self, within: Duration) -> Result<bool> {
        let socket = self.client.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        socket.connect((self.address.as_str(), 7))?;
        socket.set_read_timeout(Some(within))?;
        socket.send(b"hello")?;
        Ok(socket.recv(&mut [0; 64]).is_ok())
    }

    /// Time until a policy with this many addresses, the client's among them, is enforced.
    fn realize(&self, count: u32, round: u32) -> Result<Duration> {
        // Addresses that differ between rounds, scattered and without duplicates.
        let block = |n: u32| {
            let scattered = (n + round * 20_000).wrapping_mul(0x9e37_79b1) >> 2 | 0x4000_0000;
            json!({"ipBlock": {"cidr": format!("{}/32", std::net::Ipv4Addr::from(scattered))}})
        };
        let client = fs::read_to_string(self.dir.path().join("client-ip"))?;
        let mut blocks: Vec<Value> = (1..count).map(block).collect();
        blocks.push(json!({"ipBlock": {"cidr": format!("{client}/32")}}));
        // Like the flows for `ovs-ofctl`, the policy is in a file before the measurement starts.
        let file = self.write_policy("large", &json!([{"from": blocks}]))?;
        let left = self.addresses()?;
        ensure!(left < 100, "{left} flows of the previous policy are left, and would allow the client");
        let start = Instant::now();
        self.apply_policy("large", &file)?;
        // No growing pauses, as in other waits: they would be part of the measurement.
        while !self.passes(TICK).is_ok_and(|passes| passes) {
            ensure!(start.elapsed() < TIMEOUT, "the client was not allowed within {} s", TIMEOUT.as_secs());
        }
        let took = start.elapsed();
        let flows = self.addresses()?;
        ensure!(flows >= count as usize, "{flows} flows of {count} addresses are there");
        Ok(took)
    }

    /// Number of flows that match allowed source addresses.
    fn addresses(&self) -> Result<usize> {
        Ok(self.flows()?.lines().filter(|flow| flow.contains("/32") || flow.contains("nw_src=")).count())
    }

    /// The flows of ingress rules.
    fn flows(&self) -> Result<String> {
        self.lab(&[
            "node",
            "node-1",
            "--",
            "ovs-ofctl",
            "-O",
            "OpenFlow15",
            "--no-stats",
            "dump-flows",
            "br-int",
            "table=90",
        ])
    }

    /// The time that `ovs-ofctl` takes for the same flows.
    fn raw(&self, count: u32) -> Result<Duration> {
        let flows = self.flows()?;
        let flows: Vec<&str> = flows.lines().filter(|line| line.contains("actions=")).map(str::trim).collect();
        ensure!(flows.len() > count as usize, "{} flows were listed", flows.len());
        let file = self.home().join("nodes/node-1/raw-flows");
        fs::write(&file, flows.join("\n"))?;
        let path = file.display();
        let script = format!(
            "start=$(date +%s%N); ovs-ofctl -O OpenFlow15 --bundle add-flows br-raw {path} || exit 1; \
             echo $(($(date +%s%N) - start)); ovs-ofctl -O OpenFlow15 del-flows br-raw"
        );
        let output = self.lab(&["node", "node-1", "--", "sh", "-c", &script])?;
        Ok(Duration::from_nanos(output.trim().parse().with_context(|| output.clone())?))
    }

    /// Deletes the large policy, and waits until it is no longer enforced and its flows are removed.
    fn clear(&self) -> Result<()> {
        let path = "apis/networking.k8s.io/v1/namespaces/default/networkpolicies/large";
        self.curl(&["-X", "DELETE", "-o", "/dev/null"], path)?;
        until("the policy to leave the switch", TIMEOUT, || (self.addresses().ok()? < 100).then_some(()))?;
        until("the client to be blocked", TIMEOUT, || (!self.passes(LATE).ok()?).then_some(()))
    }
}
