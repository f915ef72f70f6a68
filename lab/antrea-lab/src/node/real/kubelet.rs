//! kubelet, with the credentials of its Node.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use testkit::process::log_tail as tail;

use super::containerd;
use crate::cgroups;
use crate::kubelet::Credentials;
use crate::node::daemon::{self, Program};
use crate::plan::{DNS, DOMAIN, Node};
use crate::state::{Home, write_private};

/// Starts kubelet, and restarts it whenever it ends.
pub(super) fn start(home: &Home, node: &Node) -> Result<()> {
    let directory = home.node(&node.name);
    let file = directory.join("kubelet.conf");
    let credentials = Credentials::read(&home.kubelet_credentials(&node.name))?;
    let [certificate, key, ca] = ["kubelet.crt", "kubelet.key", "ca.crt"].map(|name| directory.join(name));
    fs::write(&certificate, credentials.certificate)?;
    fs::write(&ca, credentials.ca)?;
    write_private(&key, &credentials.key)?;
    let mut configuration = configuration(home, node);
    configuration["tlsCertFile"] = json!(certificate);
    configuration["tlsPrivateKeyFile"] = json!(key);
    configuration["authentication"]["x509"] = json!({"clientCAFile": ca});
    fs::write(&file, format!("{configuration:#}\n"))?;
    let program = Program {
        name: home.programs().join("kubelet"),
        arguments: vec![
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", home.kubelet_kubeconfig(&node.name).display()),
            format!("--hostname-override={}", node.name),
            format!("--node-ip={},{}", node.ipv4, node.ipv6),
        ],
        environment: Vec::new(),
        log: log(home, node),
    };
    let child = program.start()?;
    tokio::spawn(daemon::supervise(program, child));
    Ok(())
}

/// The last lines of the log, for an error message.
pub(super) fn log_tail(home: &Home, node: &Node) -> String {
    tail(&log(home, node))
}

fn log(home: &Home, node: &Node) -> PathBuf {
    home.node(&node.name).join("real-kubelet.log")
}

fn configuration(home: &Home, node: &Node) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", containerd::SOCKET),
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups::of_node(home, &node.name),
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [DNS],
        "clusterDomain": DOMAIN,
        "resolvConf": "/etc/resolv.conf",
        // The machine's disk and memory are shared by all Nodes, and images cannot be pulled again.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    })
}
