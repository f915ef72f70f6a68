//! The parts of `deploy` that can run in a test.

use std::process::{Command, Stdio};

use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Process, Scratch};

/// Starts Open vSwitch twice in the same directories, the second time over the leftovers of a killed one.
#[test]
fn the_image_starts_open_vswitch_whatever_was_left_behind() {
    let (netns, dir) = (Netns::new().unwrap(), Scratch::new().unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/image/antrea-ovs");
    let run = dir.path().join("run");
    let vsctl = |args: &[&str]| {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", run.join("db.sock").display())).arg("--timeout=5").args(args);
        testkit::process::run(&mut command, None).ok()
    };
    for round in 0..2 {
        // As in a container: when the script ends, its child processes are killed.
        let mut command = netns.command("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", script]);
        command.env("OVS_RUNDIR", &run).env("OVS_DBDIR", dir.path().join("db")).env("OVS_LOGDIR", dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut ovs = Process::spawn(command).unwrap();
        let bridge = ["--may-exist", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"];
        until(format!("a bridge is made, round {round}"), TIMEOUT, || vsctl(&bridge)).unwrap();
        ovs.kill().unwrap();
        assert_eq!(vsctl(&["--no-wait", "show"]), None, "ovsdb-server has exited");
    }
}
