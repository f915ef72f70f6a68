//! The init process of a Node: creates its namespaces and root file system, starts the kubelet, and reaps orphans.
//!
//! The root file system is an overlay on the host's, with the upper layer in memory, so a Node never changes files of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, sethostname};

use crate::cgroups;
use crate::mounts::{PROGRAM, bind, enter, mount_at, overlay, private_mounts, program, read_only, replace};
use crate::plan::{Kubelet, Plan};
use crate::state::Home;
use testkit::process::kill_with_parent;

/// Read-only mount of the host's root file system in a Node; the lower layer of the Pods' file systems.
pub(crate) const HOST_ROOT: &str = "/run/lab/host";
/// Directory of the Pods' files, in memory.
pub(crate) const PODS: &str = "/run/lab/pods";

/// Directories that are empty in a new Node, whatever the host has there.
const EMPTY_DIRECTORIES: [&str; 6] =
    ["/etc/cni/net.d", "/etc/openvswitch", "/opt/cni/bin", "/var/lib/cni", "/var/log/openvswitch", "/var/log/antrea"];

/// Runs the Node until it ends. The caller is in the Node's network namespace and has one thread.
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
            if lab.plan.kubelet == Kubelet::Real {
                cgroups::enter(home, name)?;
            }
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

/// Reaps all child processes until `pid` ends.
fn reap_until(pid: i32) -> Result<()> {
    loop {
        match waitpid(None, None)? {
            WaitStatus::Exited(ended, 0) if ended.as_raw() == pid => return Ok(()),
            status if status.pid().is_some_and(|ended| ended.as_raw() == pid) => bail!("the kubelet ended: {status:?}"),
            _ => {}
        }
    }
}

/// The file with the names of all Nodes.
pub(crate) const HOSTS: &str = "/etc/hosts";

/// Content of `/etc/hosts`: names and addresses of all Nodes.
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
    if plan.kubelet == Kubelet::Real {
        prepare_for_kubelet(&inside, &layers)?;
    }
    bind(Path::new("/dev"), &inside("/dev"), MsFlags::MS_REC)?;
    for memory in ["/run", "/tmp"] {
        mount_at(Some("tmpfs"), &inside(memory), Some("tmpfs"), MsFlags::empty(), "mode=755")?;
    }
    for directory in [HOST_ROOT, PODS, "/run/netns", "/run/openvswitch", "/run/antrea", "/run/lock"] {
        fs::create_dir_all(inside(directory))?;
    }
    bind(Path::new("/"), &inside(HOST_ROOT), MsFlags::empty())?;
    read_only(&inside(HOST_ROOT))?;
    for directory in EMPTY_DIRECTORIES {
        let directory = inside(directory);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
    }
    // Files of other Nodes, and the credentials of the administrator, are not visible in this Node.
    for of_lab in [home.node(name), home.programs(), home.images()].iter().filter(|path| path.exists()) {
        let seen = root.join(of_lab.strip_prefix("/").unwrap_or(of_lab));
        fs::create_dir_all(&seen)?;
        bind(of_lab, &seen, MsFlags::empty())?;
    }
    program(&root)?;
    fs::write(inside("/etc/hostname"), format!("{name}\n"))?;
    replace(&inside("/etc/resolv.conf"), "# Nodes of the lab have no DNS server.\n")?;
    replace(&inside(HOSTS), &hosts(plan))?;
    enter(&root)?;
    if plan.kubelet == Kubelet::Real {
        // Mounts of containers and namespaces of Pods are visible in containers that ask for it, as under systemd.
        mount_at(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_SHARED, "")?;
    }
    Ok(())
}

/// Directories in which containers have their file systems: an overlay cannot have its upper layer on the Node's overlay.
const OF_CONTAINERS: [&str; 2] = ["/var/lib/containerd", "/var/lib/kubelet"];

/// Kernel parameters that kubelet would set for the whole machine. It finds the values that it wants, and leaves them alone.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

fn prepare_for_kubelet(inside: &impl Fn(&str) -> PathBuf, layers: &Path) -> Result<()> {
    bind(Path::new("/sys/fs/cgroup"), &inside("/sys/fs/cgroup"), MsFlags::MS_REC)?;
    for directory in OF_CONTAINERS.map(inside) {
        fs::create_dir_all(&directory)?;
        mount_at(Some("tmpfs"), &directory, Some("tmpfs"), MsFlags::empty(), "mode=711")?;
    }
    for (name, value) in KUBELET_SYSCTLS {
        let file = layers.join(name.replace('/', "."));
        fs::write(&file, format!("{value}\n"))?;
        bind(&file, &inside("/proc/sys").join(name), MsFlags::empty())?;
    }
    Ok(())
}
