//! What a user sees when an installation goes wrong. The table of it is in docs/troubleshooting.md; `make codegen` writes it.

use std::fmt::Write as _;

use serde_json::json;
use testkit::wait::until;

use super::real_kubelet::{MANIFESTS, ROLLOUT};
use crate::documentation;
use crate::lab::Lab;

const LOG: &str = "-n kube-system logs daemonset/antrea-agent";
const INSTALL_LOG: &str = "-n kube-system logs daemonset/antrea-agent -c install-cni";
const DESCRIBE: &str = "-n kube-system describe pod -l component=antrea-agent";
const APPLY: &str = "apply -f deploy/kubernetes/";

/// A mistake, and what it looks like.
struct Trouble {
    what: &'static str,
    /// Readiness and status in `kubectl get pods`: one of these, as the Pod may alternate.
    status: &'static [&'static str],
    /// The arguments of kubectl that show the cause.
    command: &'static str,
    /// Where the line that is shown begins.
    begins: &'static str,
    fix: &'static str,
}

const NO_CONFIG: Trouble = Trouble {
    what: "The ConfigMap `antrea-config` is missing",
    status: &["0/1 Init:0/1"],
    command: DESCRIBE,
    begins: "MountVolume.SetUp failed",
    fix: "Apply `antrea-agent.yml`, which contains it. The Pod starts within two minutes.",
};
const UNKNOWN_KEY: Trouble = Trouble {
    what: "The configuration has an unknown key",
    status: &["0/1 Init:Error", "0/1 Init:CrashLoopBackOff"],
    command: INSTALL_LOG,
    begins: "/etc/antrea/antrea-agent.conf: ",
    fix: "Correct the ConfigMap. The next attempt uses it; `kubectl -n kube-system delete pod -l component=antrea-agent` does not wait for it.",
};
const FULL_DISK: Trouble = Trouble {
    what: "A disk of the Node is full",
    status: &["0/1 Init:Error", "0/1 Init:CrashLoopBackOff"],
    command: INSTALL_LOG,
    begins: "/host/opt/cni/bin/antrea: ",
    fix: "Free space. Nothing is half-written: files are replaced atomically.",
};
const NO_API: Trouble = Trouble {
    what: "The API server cannot be reached",
    status: &["0/1 Running"],
    command: LOG,
    begins: "waiting for the Kubernetes API",
    fix: "Correct `kubeAPIServerOverride`, or the route to that address. Running Pods keep their network and their policies meanwhile.",
};
const NO_SWITCH: Trouble = Trouble {
    what: "Wrong order: the agent runs before Open vSwitch",
    status: &["0/1 Running"],
    command: LOG,
    begins: "waiting for Open vSwitch",
    fix: "Apply `antrea-ovs.yml`. The agent goes on by itself.",
};
const NO_CONTROLLER: Trouble = Trouble {
    what: "Wrong order: agents run in a cluster without a controller",
    status: &["1/1 Running"],
    command: LOG,
    begins: "antrea-controller is not deployed",
    fix: "Apply `antrea-controller.yml`. From then on policies are enforced, also while no controller runs.",
};
const NO_MODULE: Trouble = Trouble {
    what: "The Node has no openvswitch module",
    status: &["1/1 Running"],
    command: INSTALL_LOG,
    begins: "datapath: userspace",
    fix: "Nothing: the userspace datapath works, with less throughput. Install the module and restart the Pods `antrea-ovs` and `antrea-agent` to use it.",
};
const TWICE: Trouble = Trouble {
    what: "The manifests are applied a second time",
    status: &["1/1 Running"],
    command: APPLY,
    begins: "daemonset.apps/antrea-agent ",
    fix: "Nothing.",
};

/// Makes one mistake after the other in a cluster without a network plugin, and ends with a working installation.
pub(super) fn check(lab: &Lab) {
    let mut table = Table { lab, text: String::new() };
    let manifest = |name: &str| format!("{MANIFESTS}/antrea-{name}.yml");
    let agent = std::fs::read_to_string(manifest("agent")).unwrap();
    let without_config: Vec<_> = agent.split("\n---\n").filter(|part| !part.contains("kind: ConfigMap")).collect();
    lab.kubectl(&["apply", "-f", "-"], Some(&without_config.join("\n---\n"))).unwrap();
    table.add(&NO_CONFIG);

    table.restart_agent_with("trafficEncapMod: encap");
    table.add(&UNKNOWN_KEY);

    lab.node("node-1", &["mount", "-t", "tmpfs", "-o", "size=64k", "full", "/opt/cni/bin"]).unwrap();
    table.restart_agent_with("trafficEncapMode: encap");
    table.add(&FULL_DISK);
    lab.node("node-1", &["umount", "/opt/cni/bin"]).unwrap();

    table.restart_agent_with("kubeAPIServerOverride: https://192.168.1.99:6443");
    table.add(&NO_API);

    lab.kubectl(&["apply", "-f", &manifest("agent")], None).unwrap();
    table.restart_agent();
    table.add(&NO_SWITCH);
    lab.kubectl(&["apply", "-f", &manifest("ovs")], None).unwrap();
    table.add(&NO_CONTROLLER);
    lab.kubectl(&["apply", "-f", &manifest("controller")], None).unwrap();
    lab.until_installed();
    table.add(&NO_MODULE);
    table.add(&TWICE);
    documentation::compare("troubleshooting.md", &table.page());
}

struct Table<'a> {
    lab: &'a Lab,
    text: String,
}

impl Table<'_> {
    fn restart_agent_with(&self, configuration: &str) {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "antrea-config", "namespace": "kube-system"},
            "data": {"antrea-agent.conf": configuration},
        });
        self.lab.kubectl(&["apply", "-f", "-"], Some(&config.to_string())).unwrap();
        self.restart_agent();
    }

    fn restart_agent(&self) {
        let agents = ["-n", "kube-system", "delete", "pod", "-l", "component=antrea-agent", "--grace-period=1"];
        self.lab.kubectl(&agents, None).unwrap();
    }

    /// Waits for a status and for a line, and adds them to the table.
    fn add(&mut self, trouble: &Trouble) {
        let pods = ["-n", "kube-system", "get", "pods", "-l", "component=antrea-agent", "--no-headers"];
        let statuses = trouble.status.join("` or `");
        until(format!("the status `{statuses}` because: {}", trouble.what), ROLLOUT, || {
            let pods = self.lab.kubectl(&pods, None).ok()?;
            let status: Vec<_> = pods.split_whitespace().skip(1).take(2).collect();
            trouble.status.contains(&&*status.join(" ")).then_some(())
        })
        .unwrap();
        let command = trouble.command.replace("deploy/kubernetes/", MANIFESTS);
        let arguments: Vec<_> = command.split_whitespace().collect();
        let line = until(format!("the line `{}...`", trouble.begins), ROLLOUT, || {
            let output = self.lab.kubectl(&arguments, None).ok()?;
            let found = output.lines().find_map(|line| Some(&line[line.find(trouble.begins)?..]))?;
            Some(found.to_owned())
        })
        .unwrap();
        // The rest is of this kernel.
        let line = line.split(": modprobe").next().unwrap();
        let Trouble { what, command, fix, .. } = trouble;
        let _ = writeln!(self.text, "| {what} | `{statuses}` | `kubectl {command}` | `{line}` | {fix} |");
    }

    fn page(&self) -> String {
        let head =
            "| what | status of the agent's Pod | command | shows | what to do |\n| --- | --- | --- | --- | --- |\n";
        format!("{head}{}", self.text)
    }
}
