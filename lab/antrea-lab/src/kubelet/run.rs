//! Starts a container and waits for its end.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1 as core;
use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::container_env::{ContainerEnv, expand};
use crate::container::{KILL, Report, Spec};
use crate::mounts::PROGRAM;
use crate::node::init::HOST_ROOT;
use crate::state::write_whole;

/// Everything that is needed to start a container.
pub(crate) struct Start {
    pub(crate) env: ContainerEnv,
    pub(crate) container: core::Container,
    pub(crate) command: Vec<String>,
    /// Directory of the container's own file system layer, in memory.
    pub(crate) layers: PathBuf,
    /// Directory of the log, PID and spec.
    pub(crate) directory: PathBuf,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) restarts: u32,
}

pub(crate) struct RunningContainer {
    /// PID of its init process in the PID namespace of the Node.
    pub(crate) pid: u32,
    /// PID of its monitor, which forwards signals.
    pub(crate) monitor: u32,
    child: Child,
    layers: PathBuf,
    pid_file: PathBuf,
}

impl Start {
    /// Starts the container. An error has the reason for the status, and the details.
    pub(crate) async fn begin(self) -> Result<RunningContainer, (&'static str, anyhow::Error)> {
        let spec = self.spec().await.map_err(|error| ("CreateContainerConfigError", error))?;
        self.launch(&spec).await.map_err(|error| ("RunContainerError", error))
    }

    async fn spec(&self) -> Result<Spec> {
        let env = self.env.env(&self.container).await?;
        let mounts = self.env.mounts(&self.container).await?;
        let known = env.iter().cloned().collect();
        Ok(Spec {
            command: self.command.iter().map(|word| expand(word, &known)).collect(),
            env,
            directory: self.container.working_dir.clone().filter(|directory| !directory.is_empty()),
            hostname: self.env.hostname(),
            netns: self.netns.clone(),
            lower: HOST_ROOT.into(),
            layers: self.layers.clone(),
            mounts,
            log: self.directory.join(format!("{}.log", self.restarts)),
        })
    }

    async fn launch(&self, spec: &Spec) -> Result<RunningContainer> {
        for directory in [&self.directory, &self.layers] {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut monitor = std::process::Command::new(PROGRAM);
        monitor.args(["internal", "container"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        testkit::process::kill_with_parent(&mut monitor);
        let mut child = Command::from(monitor).spawn().context("cannot start a process")?;
        let text = serde_json::to_vec(spec)?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        stdin.write_all(&text).await?;
        drop(stdin);
        let stdout = child.stdout.take().context("no standard output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        let report: Report = serde_json::from_str(&line)
            .with_context(|| format!("unexpected message of the container monitor: {line:?}"))?;
        match report {
            Report::Failed(why) => {
                let _ = child.wait().await;
                Err(anyhow!(why))
            }
            Report::Started(pid) => {
                // For `antrea-lab exec`: the PID, and the environment.
                write_whole(&self.directory.join("spec.json"), &text)?;
                let pid_file = self.directory.join("pid");
                write_whole(&pid_file, pid.to_string().as_bytes())?;
                let monitor = child.id().context("it has ended already")?;
                Ok(RunningContainer { pid, monitor, child, layers: self.layers.clone(), pid_file })
            }
        }
    }
}

impl RunningContainer {
    /// Waits for the end, and returns the exit code.
    pub(crate) async fn end(mut self) -> i32 {
        let status = self.child.wait().await;
        // No process uses them any more.
        let removed = [fs::remove_file(&self.pid_file), fs::remove_dir_all(&self.layers)];
        for error in removed.into_iter().filter_map(Result::err) {
            tracing::debug!("cannot clean up after a container: {error}");
        }
        status.ok().and_then(|status| status.code()).unwrap_or(137)
    }
}

/// Sends SIGTERM to a container.
pub(crate) fn terminate(monitor: u32) {
    // It may have ended a moment ago.
    let _ = send(Pid::from_raw(monitor.cast_signed()), Signal::SIGTERM);
}

/// Kills a container with SIGKILL.
pub(crate) fn kill(monitor: u32) {
    let _ = send(Pid::from_raw(monitor.cast_signed()), KILL);
}
