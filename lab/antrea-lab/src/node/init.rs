//! How a process becomes a Node: namespaces, a root file system of its own, and a first process that holds it together.
//!
//! The root file system is the host's, with a layer in memory on top: whatever a Node writes, the host keeps its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, sethostname};

use crate::mounts::{PROGRAM, bind, enter, mount_at, overlay, private_mounts, program, read_only, replace};
use crate::plan::Plan;
use crate::state::Home;
use testkit::process::kill_with_parent;

/// Where the host's root file system is seen in a Node, read-only: Pods' file systems are layers on top of it.
pub(crate) const HOST_ROOT: &str = "/run/lab/host";
/// Where Pods' files are kept in memory.
pub(crate) const PODS: &str = "/run/lab/pods";

/// What a Node does not inherit from the host, as it would on a machine of its own.
const ITS_OWN: [&str; 6] =
    ["/etc/cni/net.d", "/etc/openvswitch", "/opt/cni/bin", "/var/lib/cni", "/var/log/openvswitch", "/var/log/antrea"];

/// Becomes the Node, and returns when that ends. The caller is in the Node's network namespace and has one thread.
pub(crate) fn become_node(home: &Home, name: &str) -> Result<()> {
    let lab = home.read()?.context("there is no lab")?;
    let spaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(spaces).context("cannot make namespaces")?;
    #[expect(unsafe_code, reason = "this process has one thread, so the child may do anything")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            home.write_node_pid(name, child.as_raw().cast_unsigned())?;
            match waitpid(child, None)? {
                WaitStatus::Exited(_, 0) => Ok(()),
                status => bail!("{name} ended: {status:?}"),
            }
        }
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            build_root(home, name, &lab.plan).with_context(|| format!("cannot make the file system of {name}"))?;
            sethostname(name)?;
            let mut kubelet = Command::new(PROGRAM);
            kubelet.args(["internal", "kubelet", "--home"]).arg(home.path()).args(["--node", name]);
            kubelet.current_dir("/").env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
            kill_with_parent(&mut kubelet);
            let kubelet = kubelet.spawn().context("cannot start the kubelet")?.id();
            reap_until(kubelet.cast_signed())
        }
    }
}

/// Waits for all processes that end here, as a first process must, until that one does.
fn reap_until(pid: i32) -> Result<()> {
    loop {
        match waitpid(None, None)? {
            WaitStatus::Exited(ended, 0) if ended.as_raw() == pid => return Ok(()),
            status if status.pid().is_some_and(|ended| ended.as_raw() == pid) => bail!("the kubelet ended: {status:?}"),
            _ => {}
        }
    }
}

/// Where a Node finds the names of all.
pub(crate) const HOSTS: &str = "/etc/hosts";

/// The names and addresses of all Nodes.
pub(crate) fn hosts(plan: &Plan) -> String {
    let hosts = plan.nodes.iter().map(|node| format!("{} {}\n{} {}\n", node.ipv4, node.name, node.ipv6, node.name));
    format!("127.0.0.1 localhost\n::1 localhost\n{}", hosts.collect::<String>())
}

fn build_root(home: &Home, name: &str, plan: &Plan) -> Result<()> {
    private_mounts()?;
    let layers = home.node(name).join("fs");
    fs::create_dir_all(&layers)?;
    mount_at(Some("tmpfs"), &layers, Some("tmpfs"), MsFlags::empty(), "mode=755")?;
    let root = overlay(Path::new("/"), &layers)?;

    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    mount_at(Some("proc"), &inside("/proc"), Some("proc"), MsFlags::empty(), "")?;
    mount_at(Some("sysfs"), &inside("/sys"), Some("sysfs"), MsFlags::empty(), "")?;
    bind(Path::new("/dev"), &inside("/dev"), MsFlags::MS_REC)?;
    for memory in ["/run", "/tmp"] {
        mount_at(Some("tmpfs"), &inside(memory), Some("tmpfs"), MsFlags::empty(), "mode=755")?;
    }
    for directory in [HOST_ROOT, PODS, "/run/netns", "/run/openvswitch", "/run/antrea", "/run/lock"] {
        fs::create_dir_all(inside(directory))?;
    }
    bind(Path::new("/"), &inside(HOST_ROOT), MsFlags::empty())?;
    read_only(&inside(HOST_ROOT))?;
    for directory in ITS_OWN {
        let directory = inside(directory);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
    }
    // What belongs to others, above all what the administrator shows to the API, is not for this Node.
    for of_lab in [home.node(name), home.programs()].iter().filter(|path| path.exists()) {
        let seen = root.join(of_lab.strip_prefix("/").unwrap_or(of_lab));
        fs::create_dir_all(&seen)?;
        bind(of_lab, &seen, MsFlags::empty())?;
    }
    program(&root)?;
    fs::write(inside("/etc/hostname"), format!("{name}\n"))?;
    replace(&inside("/etc/resolv.conf"), "# A Node of the lab asks nobody.\n")?;
    replace(&inside(HOSTS), &hosts(plan))?;
    enter(&root)
}
