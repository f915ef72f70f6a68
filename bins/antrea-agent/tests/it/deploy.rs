//! The parts of `deploy` that can run in a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Process, Scratch};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const BRIDGE: [&str; 7] = ["--may-exist", "add-br", "br0", "--", "set", "bridge", "br0"];

/// A Node on which the script of the image runs Open vSwitch.
struct Node {
    netns: Netns,
    dir: Scratch,
}

impl Node {
    fn new() -> Self {
        Self { netns: Netns::new().unwrap(), dir: Scratch::new().unwrap() }
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The script, as in a container: it has temporary files of its own, and its child processes are killed when it ends.
    fn script(&self, temporary: &Path) -> Command {
        let mut command = self.netns.command("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(format!("{DEPLOY}/image/antrea-ovs"));
        command.env("OVS_RUNDIR", self.run_dir()).env("OVS_DBDIR", self.dir.path().join("db"));
        command.env("OVS_LOGDIR", self.dir.path()).env("TMPDIR", temporary);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(&self, temporary: &Path) -> Process {
        Process::spawn(self.script(temporary)).unwrap()
    }

    fn vsctl(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.run_dir().join("db.sock").display())).arg("--timeout=5").args(args);
        testkit::process::run(&mut command, None).ok()
    }

    fn add_bridge(&self) -> Option<String> {
        self.vsctl(&[&BRIDGE[..], &["datapath_type=netdev"]].concat())
    }
}

/// Starts Open vSwitch twice in the same directories, the second time over the leftovers of a killed one.
#[test]
fn the_image_starts_open_vswitch_whatever_was_left_behind() {
    let node = Node::new();
    for round in 0..2 {
        let mut ovs = node.start(node.dir.path());
        until(format!("a bridge is made, round {round}"), TIMEOUT, || node.add_bridge()).unwrap();
        ovs.kill().unwrap();
        until("ovsdb-server exits", TIMEOUT, || node.vsctl(&["--no-wait", "show"]).is_none().then_some(())).unwrap();
    }
}

#[test]
fn a_second_open_vswitch_waits_beside_the_first_and_takes_over() {
    let node = Node::new();
    let (one, other) = (Scratch::new().unwrap(), Scratch::new().unwrap());
    let mut first = node.start(one.path());
    until("a bridge is made", TIMEOUT, || node.add_bridge()).unwrap();
    let _second = node.start(other.path());
    let waiting = other.path().join("antrea-ovs.waiting");
    until("the second waits", TIMEOUT, || waiting.exists().then_some(())).unwrap();
    let probe = |temporary: &Path| node.script(temporary).arg("probe").status().unwrap().success();
    assert!(probe(other.path()), "a new Pod is ready while it waits, or the update would not end the old one");
    assert!(node.vsctl(&["br-exists", "br0"]).is_some(), "the first one works on");

    first.kill().unwrap();
    until("the second takes over", TIMEOUT, || (!waiting.exists()).then_some(())).unwrap();
    until("it has the database of the first", TIMEOUT, || {
        node.vsctl(&["set", "bridge", "br0", "external_ids:by=second"])
    })
    .unwrap();
    until("ovs-vswitchd answers", TIMEOUT, || probe(other.path()).then_some(())).unwrap();
}

/// Antrea's Open vSwitch has no lock of ours, and its database beside the sockets.
#[test]
fn the_open_vswitch_of_antrea_is_awaited_and_its_database_is_taken_over() {
    let node = Node::new();
    let (run, temporary) = (node.run_dir(), Scratch::new().unwrap());
    std::fs::create_dir_all(&run).unwrap();
    let database = run.join("conf.db");
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    testkit::process::run(Command::new("ovsdb-tool").arg("create").arg(&database).arg(schema), None).unwrap();
    let mut server = node.netns.command("ovsdb-server");
    server.arg(&database).arg(format!("--remote=punix:{}", run.join("db.sock").display()));
    server.arg("--unixctl=none").stdout(Stdio::null()).stderr(Stdio::null());
    let mut antrea = Process::spawn(server).unwrap();
    let bridge =
        ["--no-wait", "init", "--", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev"];
    until("the bridge of Antrea", TIMEOUT, || node.vsctl(&bridge)).unwrap();

    let _ours = node.start(temporary.path());
    let waiting = temporary.path().join("antrea-ovs.waiting");
    until("ours waits", TIMEOUT, || waiting.exists().then_some(())).unwrap();
    assert!(node.vsctl(&["--no-wait", "br-exists", "br-int"]).is_some(), "Antrea's works on");
    antrea.kill().unwrap();
    until("ovs-vswitchd has the bridge of Antrea", TIMEOUT, || {
        node.vsctl(&["set", "bridge", "br-int", "external_ids:by=ours"])
    })
    .unwrap();
    assert!(!database.exists(), "it would be taken over again");
}

#[test]
fn the_manifests_have_the_image_of_this_version() {
    let image = format!("antrea-rs:v{}", env!("CARGO_PKG_VERSION"));
    for directory in ["kubernetes", "kubernetes/optional"] {
        for entry in std::fs::read_dir(format!("{DEPLOY}/{directory}")).unwrap() {
            let path = entry.unwrap().path();
            let text = if path.is_file() { std::fs::read_to_string(&path).unwrap() } else { String::new() };
            for line in text.lines().filter_map(|line| line.trim().strip_prefix("image: ")) {
                assert_eq!(line, image, "{}", path.display());
            }
        }
    }
}
