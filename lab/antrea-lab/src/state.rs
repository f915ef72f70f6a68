//! The directory of a lab: who runs it, and where its files are.
//!
//! A lab is alive when the process that is written down runs, and is the one that was written down: it has the same start
//! time. Whatever ends that process ends all others of the lab, so a directory without it is all that is left of a lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// How long the kernel may take to end the processes of a Node.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the supervisor writes down about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lab {
    pub(crate) plan: Plan,
    /// The supervisor's process id.
    pub(crate) pid: u32,
    /// When the supervisor started, in ticks since the machine did.
    pub(crate) started: u64,
    /// The namespaces that are no Nodes: their names, and paths that lead into them.
    pub(crate) namespaces: Vec<(String, PathBuf)>,
    /// Whether everything is up.
    pub(crate) ready: bool,
}

/// The directory of a lab.
#[derive(Clone, Debug)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// The directory of the lab of that name, whether it is there or not.
    pub(crate) fn of(name: &str) -> Self {
        // For tests, and for those who have no /run.
        let base = std::env::var_os("ANTREA_LAB_DIR").map_or_else(|| PathBuf::from("/run/antrea-lab"), PathBuf::from);
        Self(base.join(name))
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The administrator's kubeconfig, for use on the host.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// The kubeconfig of a Node's kubelet.
    pub(crate) fn kubelet_kubeconfig(&self, node: &str) -> PathBuf {
        self.node(node).join("kubelet.kubeconfig")
    }

    /// The programs that Nodes run.
    pub(crate) fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// Where the supervisor takes requests.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("supervisor.sock")
    }

    /// The kubeconfig of a program with an account, on a Node.
    pub(crate) fn kubeconfig_of(&self, account: &str, node: &str) -> PathBuf {
        self.node(node).join(format!("{account}.kubeconfig"))
    }

    /// The token that it shows.
    pub(crate) fn token_of(&self, account: &str, node: &str) -> PathBuf {
        self.node(node).join(format!("{account}.token"))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// The files of a Node; they have the same path in the Node.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.0.join("nodes").join(node)
    }

    /// Writes down who is the Node's first process.
    pub(crate) fn write_node_pid(&self, node: &str, pid: u32) -> Result<()> {
        let started = started(pid).context("the Node's first process has ended")?;
        write_whole(&self.node(node).join("init.pid"), format!("{pid} {started}").as_bytes())
    }

    /// The Node's first process; nothing if it does not run.
    pub(crate) fn node_pid(&self, node: &str) -> Option<u32> {
        let text = fs::read_to_string(self.node(node).join("init.pid")).ok()?;
        let (pid, since) = text.split_once(' ')?;
        let (pid, since) = (pid.parse().ok()?, since.parse().ok()?);
        (started(pid) == Some(since)).then_some(pid)
    }

    /// The first processes of all Nodes that run.
    pub(crate) fn node_pids(&self) -> Vec<u32> {
        let nodes = fs::read_dir(self.0.join("nodes")).into_iter().flatten();
        nodes.filter_map(|node| self.node_pid(node.ok()?.file_name().to_str()?)).collect()
    }

    /// The files of a Pod on a Node.
    pub(crate) fn pod(&self, node: &str, namespace: &str, pod: &str) -> PathBuf {
        self.node(node).join("pods").join(namespace).join(pod)
    }

    /// What the supervisor has written down; nothing if there is no lab.
    pub(crate) fn read(&self) -> Result<Option<Lab>> {
        let path = self.0.join("lab.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let lab = serde_json::from_slice(&text);
        lab.map(Some).with_context(|| format!("{} is damaged: `antrea-lab down` removes it", path.display()))
    }

    /// Writes it down, whole or not at all.
    pub(crate) fn write(&self, lab: &Lab) -> Result<()> {
        write_whole(&self.0.join("lab.json"), &serde_json::to_vec_pretty(lab)?)
    }

    /// The lab, which must be there and alive.
    pub(crate) fn alive(&self) -> Result<Lab> {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self.read()? {
            Some(lab) if lab.is_alive() => Ok(lab),
            Some(_) => bail!("the lab `{name}` has crashed: `antrea-lab up --name {name}` starts it anew"),
            None => bail!("there is no lab `{name}`: `antrea-lab up --name {name}` starts it"),
        }
    }

    /// Removes what a lab that is not alive has left. Tells whether there was anything.
    pub(crate) fn remove(&self) -> Result<bool> {
        self.end_nodes();
        match fs::remove_dir_all(&self.0) {
            Ok(()) => {
                // The directory of all labs goes with the last one.
                let _ = self.0.parent().map(fs::remove_dir);
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot remove {}", self.0.display())),
        }
    }
}

impl Home {
    /// Kills the first process of every Node, which takes all others of it along, and waits until they are gone.
    pub(crate) fn end_nodes(&self) {
        end(|| self.node_pids());
    }

    /// The same for one Node.
    pub(crate) fn end_node(&self, node: &str) {
        end(|| self.node_pid(node).into_iter().collect());
    }
}

/// Kills processes until none is left, or patience.
fn end(left: impl Fn() -> Vec<u32>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = left();
        if left.is_empty() || Instant::now() > deadline {
            break;
        }
        for pid in left {
            // It may have ended a moment ago.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

impl Lab {
    /// Whether the process that is written down still runs.
    pub(crate) fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// When a process started, in ticks since the machine did; nothing if it does not run.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie has ended already.
    (*fields.first()? != "Z").then_some(())?;
    fields.get(19)?.parse().ok()
}

/// Writes a file so that readers see the old one or the new one.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let me = std::process::id();
        let start = started(me).unwrap();
        assert_eq!(started(me), Some(start));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(started(pid), None);
    }
}
