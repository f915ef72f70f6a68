//! `antrea-agent cleanup`: a Node is afterwards as it was before the installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::Scratch;
use testkit::ovs::in_kernel;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, PROGRAM};

/// Directories of a Node that the fixture does not have.
struct Machine(Scratch);

impl Machine {
    /// With plugins of the image, and a plugin and a network configuration of another program.
    fn new() -> Self {
        let machine = Self(Scratch::new().unwrap());
        for name in ["image", "bin", "net.d"] {
            fs::create_dir(machine.path(name)).unwrap();
        }
        for name in ["bandwidth", "loopback", "portmap"] {
            fs::write(machine.path("image").join(name), format!("our {name}")).unwrap();
        }
        fs::write(machine.path("bin/portmap"), "that of the Node").unwrap();
        fs::write(machine.path("net.d/99-other.conflist"), "{}").unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command of the agent in the Node's namespace, with these directories.
    fn agent(&self, node: &Node, command: &str, more: &[&str]) -> Result<String, String> {
        let mut agent = node.netns.command(PROGRAM);
        agent.arg(command).arg("--config").arg(node.file("antrea-agent.conf"));
        for (flag, name) in [("--bin-dir", "bin"), ("--conf-dir", "net.d"), ("--chained", "image")] {
            agent.arg(flag).arg(self.path(name));
        }
        let output = agent.args(more).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stdout) + &text(&output.stderr))
        }
    }

    fn install(&self, node: &Node) {
        let plugin = self.path("antrea-cni");
        fs::write(&plugin, "our plugin").unwrap();
        self.agent(node, "install-cni", &["--plugin", plugin.to_str().unwrap()]).unwrap();
        fs::create_dir_all(self.path("run/openvswitch")).unwrap();
        fs::create_dir_all(self.path("state/openvswitch")).unwrap();
        fs::write(self.path("state/openvswitch/conf.db"), "").unwrap();
        fs::write(self.path("run/policies"), "").unwrap();
    }

    fn clean(&self, node: &Node, more: &[&str]) -> Result<String, String> {
        let (run, state) = (self.path("run"), self.path("state"));
        let directories = ["--run-dir", run.to_str().unwrap(), "--state-dir", state.to_str().unwrap()];
        self.agent(node, "cleanup", &[&directories, more].concat())
    }

    /// Everything that an installation may change, as text.
    fn state(&self, node: &Node) -> String {
        let mut state = String::new();
        for arguments in [
            &["-br", "link"][..],
            &["-br", "address", "show", "scope", "global"],
            &["route", "show", "table", "all"],
            &["-6", "route", "show", "table", "all"],
            &["rule"],
            &["-6", "rule"],
            &["neigh", "show", "nud", "permanent"],
            &["-6", "neigh", "show", "nud", "permanent"],
        ] {
            // The kernel adds link-local routes by itself, some time after a device is up.
            let listing = node.netns.ip(arguments).unwrap();
            let listing = listing.lines().filter(|line| !line.contains("fe80:") && !line.contains("ff00::/8"));
            state += &format!("# ip {}\n{}\n", arguments.join(" "), listing.collect::<Vec<_>>().join("\n"));
        }
        state += &run(node.netns.command("nft").args(["list", "ruleset"]), None).unwrap();
        state += &node.ovs.vsctl(["list-br"]).unwrap();
        for directory in [self.path("bin"), self.path("net.d"), self.path("run"), self.path("state"), node.file("ipam")]
        {
            let find = ["-printf", "%y %m %p\n"];
            state += &run(Command::new("find").arg(&directory).args(find), None).unwrap_or_default();
        }
        state
    }
}

/// Lines of one state that the other does not have.
fn assert_same(found: &str, expected: &str, why: &str) {
    let missing = |from: &str, of: &str| -> Vec<String> {
        of.lines().filter(|line| !from.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    assert_eq!((missing(expected, found), missing(found, expected)), (Vec::new(), Vec::new()), "{why}");
}

/// Objects of other programs that resemble ours.
fn add_foreign(node: &Node) {
    for arguments in [
        &["link", "add", "br-other", "type", "bridge"][..],
        &["route", "add", "10.99.0.0/16", "via", "192.168.77.254"],
        &["route", "add", "10.98.0.0/16", "via", "192.168.77.254", "proto", "166"],
        &["rule", "add", "priority", "77", "fwmark", "0x7", "table", "77"],
        &["neigh", "add", "192.168.77.200", "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"],
    ] {
        node.netns.ip(arguments).unwrap();
    }
    let table = "add table inet antrea-of-others; add chain inet antrea-of-others c";
    run(node.netns.command("nft").arg(table), None).unwrap();
    let datapath = if in_kernel() { "datapath_type=system" } else { "datapath_type=netdev" };
    node.ovs.vsctl(["add-br", "br-foreign", "--", "set", "bridge", "br-foreign", datapath]).unwrap();
    // Sysctls stay, and a Node usually forwards packets before the installation, too.
    node.netns.sysctls(&[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")]).unwrap();
}

#[test]
fn a_cleaned_node_is_as_it_was_before_the_installation() {
    let (mut node, machine) =
        (Node::without_agent("trafficEncapMode: hybrid", &crate::fixture::SUBNETS), Machine::new());
    add_foreign(&node);
    let before = machine.state(&node);
    let peer = serde_json::json!({"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.2"}]}});
    node.api.local().create("v1", "nodes", "", peer).unwrap();
    machine.install(&node);
    node.start_agent();
    node.wait_ready();
    let pod = node.add("one");
    let veth = pod.attachment.host().unwrap().name.clone();
    let is_up = || node.netns.ip(["-br", "link", "show", &veth]).unwrap().contains(" UP ").then_some(());
    until("the veth is up", TIMEOUT, is_up).unwrap();
    let running = machine.state(&node);
    let listed = machine.clean(&node, &["--dry-run"]).unwrap();
    assert!(listed.contains("would be refused: an agent runs") && listed.contains("would remove: "), "{listed}");
    let refused = machine.clean(&node, &[]).unwrap_err();
    assert!(
        refused.contains("an agent runs on this Node") && refused.contains("kubectl delete -f deploy/kubernetes/"),
        "{refused}"
    );
    assert_same(&machine.state(&node), &running, "a refused cleanup changes nothing");
    node.stop_agent();
    // Another one does not know that the uplink is promiscuous only because of Open vSwitch.
    node.ovs.kill_vswitchd().unwrap();
    node.ovs.start_vswitchd().unwrap();

    // Of features that this configuration does not use; a running agent would remove them.
    node.netns
        .ip(["rule", "add", "priority", "78", "iif", "eth0", "fwmark", "0x8/0x8", "table", "78", "protocol", "167"])
        .unwrap();
    let neighbour = ["neigh", "add", "192.168.77.201", "lladdr", "02:00:00:00:00:02", "dev", "eth0", "protocol", "167"];
    node.netns.ip(neighbour).unwrap();
    let running = machine.state(&node);
    let planned = machine.clean(&node, &["--dry-run"]).unwrap();
    assert_same(&machine.state(&node), &running, "a dry run changes nothing");
    let removed = machine.clean(&node, &[]).unwrap();
    // Tunnels of the kernel's datapath need no transport bridge.
    let userspace = ["bridge antrea-phy0", "promiscuous mode of device eth0"].map(str::to_owned);
    for expected in userspace.into_iter().filter(|_| !in_kernel()).chain([
        "bridge br-int".to_owned(),
        format!("Pod interface {veth}: Pod default/one has no network without it"),
        "route to ".to_owned(),
        "IPv4 policy routing rule 78".to_owned(),
        "neighbour 192.168.77.201 on eth0".to_owned(),
        "nftables table inet antrea".to_owned(),
        machine.path("bin/antrea").display().to_string(),
        machine.path("bin/loopback").display().to_string(),
        machine.path("net.d/10-antrea.conflist").display().to_string(),
        machine.path("state").display().to_string(),
        node.file("ipam").display().to_string(),
    ]) {
        assert!(planned.contains(&format!("would remove: {expected}")), "{expected}: {planned}");
        assert!(removed.contains(&format!("removed: {expected}")), "{expected}: {removed}");
    }
    assert!(removed.contains("bin/portmap: differs from the plugin that antrea-rs installs"), "{removed}");
    assert_same(&machine.state(&node), &before, &removed);
    let again = machine.clean(&node, &[]).unwrap();
    assert!(again.contains("nothing to remove") && !again.contains("removed:"), "{again}");
}

#[test]
fn a_node_whose_switch_is_gone_is_cleaned_and_what_cannot_be_removed_is_named() {
    let (mut node, machine) = (Node::start(""), Machine::new());
    machine.install(&node);
    let pod = node.add("one");
    node.stop_agent();
    // As in the cluster: the database stays, the daemons end.
    fs::copy(node.ovs.dir().join("conf.db"), machine.path("state/openvswitch/conf.db")).unwrap();
    node.ovs.kill_vswitchd().unwrap();
    node.ovs.kill_ovsdb().unwrap();
    let links = node.netns.ip(["-br", "link"]).unwrap();
    let left = if in_kernel() { ["ovs-system", "genev_sys_6081"] } else { ["ovs-netdev", "PROMISC"] };
    assert!(left.iter().all(|what| links.contains(what)), "{links}");
    // A directory that cannot be removed: a mount point.
    let mount = |command: &str, path: &Path| {
        let mut mount = Command::new(command);
        if command == "mount" {
            mount.args(["-t", "tmpfs", "tmpfs"]);
        }
        run(mount.arg(path), None).unwrap();
    };
    mount("mount", &machine.path("run"));
    let outcome = machine.clean(&node, &[]);
    mount("umount", &machine.path("run"));
    let error = outcome.unwrap_err();
    assert!(error.contains("1 of ") && error.contains("could not be removed"), "{error}");
    assert!(error.contains(&format!("{}: cannot remove it", machine.path("run").display())), "{error}");
    let veth = pod.attachment.host().unwrap().name.clone();
    assert!(error.contains(&format!("removed: Pod interface {veth}: Pod default/one")), "{error}");
    let links = node.netns.ip(["-br", "link"]).unwrap();
    for gone in ["antrea", "ovs-", "br-int", "genev_sys", "PROMISC", veth.as_str()] {
        assert!(!links.contains(gone), "{gone}: {links}");
    }

    machine.clean(&node, &[]).unwrap();
    assert!(!machine.path("run").exists() && !machine.path("state").exists() && !node.file("ipam").exists());
    assert!(machine.clean(&node, &[]).unwrap().contains("nothing to remove"));
}
