//! Chains with the plugins of the CNI project, from Debian.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, veth_pair};

use crate::agent::{ADDRESS, Agent};
use crate::plugin::{antrea, configuration, environment, succeed};

/// Versions that Debian's plugins support too.
const VERSIONS: [&str; 4] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0"];

struct Chain {
    node: Netns,
    /// Each plugin with its program and its configuration, in order.
    plugins: Vec<(String, Value)>,
    netns: String,
}

impl Chain {
    fn new(version: &str, node: &Netns, pod: &Netns, agent: &Agent) -> Self {
        let debian = |name: &str, runtime: Value| {
            let configuration =
                json!({"cniVersion": version, "name": "antrea", "type": name, "runtimeConfig": runtime});
            (format!("/usr/lib/cni/{name}"), configuration)
        };
        let rate = 100_000_000;
        let plugins = vec![
            (antrea().get_program().to_str().unwrap().to_owned(), configuration(version, agent.socket())),
            debian("portmap", json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]})),
            debian(
                "bandwidth",
                json!({"bandwidth": {"ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate}}),
            ),
        ];
        Self { node: node.clone(), plugins, netns: pod.path().to_str().unwrap().to_owned() }
    }

    fn call(&self, command: &str, (program, configuration): &(String, Value), previous: &Value) -> Value {
        let mut configuration = configuration.clone();
        if !previous.is_null() {
            configuration["prevResult"] = previous.clone();
        }
        let plugin: Command = self.node.command(program);
        succeed(plugin, &environment(command, "c1", &self.netns), &configuration)
    }

    /// Each plugin gets the result of the previous one.
    fn add(&self) -> Value {
        self.plugins.iter().fold(Value::Null, |previous, plugin| self.call("ADD", plugin, &previous))
    }

    /// All plugins get the last result. Not portmap 1.1.1, whose CHECK expects IPv6 rules that an IPv4 Pod does not
    /// have.
    fn check(&self, result: &Value) {
        for plugin in self.plugins.iter().filter(|(program, _)| !program.ends_with("portmap")) {
            self.call("CHECK", plugin, result);
        }
    }

    fn del(&self, result: &Value) {
        for plugin in self.plugins.iter().rev() {
            self.call("DEL", plugin, result);
        }
    }
}

/// What the first connection from a client outside of the Node to the host port receives.
fn greeting(client: &Netns) -> Option<String> {
    let address = "192.0.2.1:8080".parse().unwrap();
    let mut stream = client.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(1))).unwrap().ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn portmap_and_bandwidth_work_after_antrea() {
    for version in VERSIONS {
        let (node, pod, client) = (Netns::new().unwrap(), Netns::new().unwrap(), Netns::new().unwrap());
        veth_pair(&node, "uplink", &client, "eth0").unwrap();
        node.add_address("uplink", "192.0.2.1/24").unwrap();
        client.add_address("eth0", "192.0.2.2/24").unwrap();
        node.link_up("uplink").unwrap();
        client.link_up("eth0").unwrap();
        node.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
        let agent = Agent::start(Some(node.clone()));
        let chain = Chain::new(version, &node, &pod, &agent);

        let result = chain.add();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"][0]["address"], ADDRESS);
        assert!(result["interfaces"][2]["name"].as_str().unwrap().starts_with("bwp"), "{result}");

        // Connections to the port of the Node reach the Pod, and its traffic is shaped.
        let listener = pod.run(|| TcpListener::bind("10.10.0.4:80")).unwrap().unwrap();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(b"hello").unwrap());
        assert_eq!(until("a connection to the port", TIMEOUT, || greeting(&client)).unwrap(), "hello");
        server.join().unwrap();
        let shaped =
            testkit::process::run(node.command("tc").args(["qdisc", "show", "dev", "web-0-8ec607"]), None).unwrap();
        assert!(shaped.contains("tbf") && shaped.contains("100Mbit"), "{shaped}");

        if version >= "0.4.0" {
            chain.check(&result);
            assert!(agent.calls().contains(&format!("CHECK c1/eth0 web-0-8ec607 {ADDRESS}")), "{:?}", agent.calls());
        }
        chain.del(&result);
        chain.del(&result);
        let links = node.ip(["-o", "link"]).unwrap();
        assert!(!links.contains("web-0") && !links.contains("bwp"), "{links}");
        let rules = testkit::process::run(node.command("iptables").args(["-t", "nat", "-S"]), None).unwrap();
        assert!(!rules.contains("8080"), "{rules}");
    }
}
