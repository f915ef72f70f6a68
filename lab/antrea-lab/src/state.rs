//! The directory of a lab: the state of its supervisor, and the paths of its files.
//!
//! A lab is alive while a process with the recorded id and start time runs. All other processes of the lab end with that
//! one, so the directory is the only thing that a crashed lab leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cgroups;
use crate::plan::Plan;

/// How long the kernel may take to end the processes of a Node.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// State of a lab, which its supervisor writes to `lab.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    pub(crate) plan: Plan,
    /// The supervisor's process id.
    pub pid: u32,
    /// Start time of the supervisor, in clock ticks since boot.
    pub(crate) started: u64,
    /// Network namespaces of the underlay (router, outside, ...): names and paths.
    pub namespaces: Vec<(String, PathBuf)>,
    /// Whether all Nodes are ready.
    pub ready: bool,
}

/// The directory of one lab, and the paths below it.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    /// The directory of the lab `name`, which need not exist.
    pub(crate) fn of(name: &str) -> Self {
        // For tests, and for machines without /run.
        let base = std::env::var_os("ANTREA_LAB_DIR").map_or_else(|| PathBuf::from("/run/antrea-lab"), PathBuf::from);
        Self(base.join(name))
    }

    /// The lab whose directory is `path`.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Path of the lab's directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The administrator's kubeconfig, for use on the host.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// The kubeconfig of a Node's kubelet, for use inside the Node.
    pub fn kubelet_kubeconfig(&self, node: &str) -> PathBuf {
        self.node(node).join("kubelet.kubeconfig")
    }

    /// The certificates of the server of a Node's kubelet.
    pub(crate) fn kubelet_credentials(&self, node: &str) -> PathBuf {
        self.node(node).join("kubelet-server.json")
    }

    /// Directory of the programs that Nodes run.
    pub(crate) fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// Directory of the image archives that Nodes import.
    pub(crate) fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// Unix socket on which the supervisor accepts requests.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("supervisor.sock")
    }

    /// The kubeconfig of a program that runs on a Node with this ServiceAccount.
    pub fn kubeconfig_of(&self, account: &str, node: &str) -> PathBuf {
        self.node(node).join(format!("{account}.kubeconfig"))
    }

    /// The token of that ServiceAccount on a Node.
    pub fn token_of(&self, account: &str, node: &str) -> PathBuf {
        self.node(node).join(format!("{account}.token"))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// Directory of a Node's files; it has the same path inside the Node.
    pub fn node(&self, node: &str) -> PathBuf {
        self.0.join("nodes").join(node)
    }

    /// Directory of the recordings of a Node's agent.
    pub fn recording(&self, node: &str) -> PathBuf {
        self.node(node).join("recording")
    }

    /// Records the Node's init process.
    pub(crate) fn write_node_pid(&self, node: &str, pid: u32) -> Result<()> {
        let started = start_time(pid).context("the init process of the Node has ended")?;
        write_whole(&self.node(node).join("init.pid"), format!("{pid} {started}").as_bytes())
    }

    /// Process id of the Node's init process; `None` if it does not run.
    pub fn node_pid(&self, node: &str) -> Option<u32> {
        let text = fs::read_to_string(self.node(node).join("init.pid")).ok()?;
        let (pid, since) = text.split_once(' ')?;
        let (pid, since) = (pid.parse().ok()?, since.parse().ok()?);
        (start_time(pid) == Some(since)).then_some(pid)
    }

    /// Init processes of all running Nodes.
    pub(crate) fn node_pids(&self) -> Vec<u32> {
        let nodes = fs::read_dir(self.0.join("nodes")).into_iter().flatten();
        nodes.filter_map(|node| self.node_pid(node.ok()?.file_name().to_str()?)).collect()
    }

    /// Directory of the files of a Pod on a Node.
    pub fn pod(&self, node: &str, namespace: &str, pod: &str) -> PathBuf {
        self.node(node).join("pods").join(namespace).join(pod)
    }

    /// The recorded state; `None` if there is no lab.
    pub fn read(&self) -> Result<Option<Lab>> {
        let path = self.0.join("lab.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let lab = serde_json::from_slice(&text);
        lab.map(Some).with_context(|| format!("{} is damaged: `antrea-lab down` removes it", path.display()))
    }

    /// Records the state; readers see the old or the new one.
    pub(crate) fn write(&self, lab: &Lab) -> Result<()> {
        write_whole(&self.0.join("lab.json"), &serde_json::to_vec_pretty(lab)?)
    }

    /// The state of a running lab; an error says how to start one.
    pub(crate) fn alive(&self) -> Result<Lab> {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self.read()? {
            Some(lab) if lab.is_alive() => Ok(lab),
            Some(_) => bail!("the lab `{name}` has crashed: `antrea-lab up --name {name}` starts it again"),
            None => bail!("there is no lab `{name}`: `antrea-lab up --name {name}` starts it"),
        }
    }

    /// Removes the directory and remaining processes of a lab that is not alive. Returns whether there were any.
    pub(crate) fn remove(&self) -> Result<bool> {
        self.end_nodes();
        cgroups::remove(self)?;
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
    /// Kills the init process of every Node, which ends all its processes, and waits for their end.
    pub(crate) fn end_nodes(&self) {
        end(|| self.node_pids());
    }

    /// Like [`Home::end_nodes`], for one Node.
    pub(crate) fn end_node(&self, node: &str) {
        end(|| self.node_pid(node).into_iter().collect());
    }
}

/// Kills processes until none is left, or until the timeout.
fn end(left: impl Fn() -> Vec<u32>) {
    let deadline = Instant::now() + KILL_TIMEOUT;
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
    /// Whether the recorded supervisor still runs.
    pub(crate) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// Start time of a process, in clock ticks since boot; `None` if it does not run.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces and parentheses.
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

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_has_no_start_time() {
        let me = std::process::id();
        let start = start_time(me).unwrap();
        assert_eq!(start_time(me), Some(start));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(start_time(pid), None);
    }
}
