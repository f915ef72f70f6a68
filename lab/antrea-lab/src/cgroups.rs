//! Control groups of Nodes with a real kubelet: one per Node, below one per lab, in every hierarchy of the machine.
//!
//! The processes of a Node are in its group `system`; kubelet creates `kubepods` beside it. Cgroup v2 requires that: a group
//! with controllers for its children has no processes of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::state::Home;

const MOUNT: &str = "/sys/fs/cgroup";
/// How long the kernel may take to end the processes of a group.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A cgroup v1 cpuset has no CPUs and no memory until they are written, and then accepts no process.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// Path of the control group of a Node, as kubelet's `cgroupRoot` needs it.
pub(crate) fn of_node(home: &Home, node: &str) -> String {
    format!("/{}/{node}", of_lab(home))
}

/// Name of the control group of a lab. Derived from its directory, since labs in different directories may have equal names.
fn of_lab(home: &Home) -> String {
    format!("antrea-lab{}", home.path().to_string_lossy().replace('/', "-"))
}

/// Moves this process to the control group of a Node, which is created.
pub(crate) fn enter(home: &Home, node: &str) -> Result<()> {
    let groups = [of_lab(home), node.to_owned(), "system".to_owned()];
    for hierarchy in hierarchies() {
        let mut group = hierarchy.clone();
        for name in &groups {
            prepare_parent(&group).with_context(|| format!("cannot enable controllers in {}", group.display()))?;
            let parent = group.clone();
            group.push(name);
            create(&group, &parent).with_context(|| format!("cannot create the control group {}", group.display()))?;
        }
        // 0 is the writer itself, in any PID namespace.
        fs::write(group.join("cgroup.procs"), "0").with_context(|| format!("cannot enter {}", group.display()))?;
    }
    Ok(())
}

/// Removes the control groups of a lab whose processes have ended.
pub(crate) fn remove(home: &Home) -> Result<()> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    for group in hierarchies().into_iter().map(|hierarchy| hierarchy.join(of_lab(home))) {
        while let Err(error) = remove_tree(&group) {
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("cannot remove the control group {}", group.display()));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Roots of the hierarchies: one of cgroup v2, or one per controller of v1.
fn hierarchies() -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return vec![mount.to_owned()];
    }
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    // Links are other names of the same hierarchy.
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

/// Lets children of a cgroup v2 group use all its controllers.
fn prepare_parent(group: &Path) -> io::Result<()> {
    let Ok(controllers) = fs::read_to_string(group.join("cgroup.controllers")) else { return Ok(()) };
    let all: Vec<_> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
    if all.is_empty() { Ok(()) } else { fs::write(group.join("cgroup.subtree_control"), all.join(" ")) }
}

fn create(group: &Path, parent: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    for file in CPUSET.iter().filter(|_| !group.join("cgroup.controllers").exists()) {
        if group.join(file).exists() {
            fs::write(group.join(file), fs::read(parent.join(file))?)?;
        }
    }
    Ok(())
}

/// Removes a group and those below it. Their files cannot be removed, and need not be.
fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_lab_are_removed_with_those_below() {
        let home = Home::at(format!("/tmp/cgroups-test-{}", std::process::id()).into());
        let hierarchies = hierarchies();
        assert!(!hierarchies.is_empty());
        for hierarchy in &hierarchies {
            fs::create_dir_all(hierarchy.join(of_lab(&home)).join("node-1/kubepods")).unwrap();
        }
        remove(&home).unwrap();
        for hierarchy in &hierarchies {
            assert!(!hierarchy.join(of_lab(&home)).exists(), "{}", hierarchy.display());
        }
        remove(&home).unwrap();
    }
}
