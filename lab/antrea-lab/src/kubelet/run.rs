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

use super::surroundings::{Surroundings, expand};
use crate::container::{KILL, Report, Spec};
use crate::mounts::PROGRAM;
use crate::node::init::HOST_ROOT;
use crate::state::write_whole;

/// All that a start needs.
pub(crate) struct Start {
    pub(crate) surroundings: Surroundings,
    pub(crate) container: core::Container,
    pub(crate) command: Vec<String>,
    /// Where the container's own file system is kept, in memory.
    pub(crate) layers: PathBuf,
    /// Where its log is, and who it is.
    pub(crate) directory: PathBuf,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) restarts: u32,
}

/// A container that runs.
pub(crate) struct Begun {
    /// Its first process, as the Node numbers it.
    pub(crate) pid: u32,
    /// The process that takes signals for it.
    pub(crate) keeper: u32,
    child: Child,
    layers: PathBuf,
    pid_file: PathBuf,
}

impl Start {
    /// Starts it, or gives the reason in one word and in many.
    pub(crate) async fn begin(self) -> Result<Begun, (&'static str, anyhow::Error)> {
        let spec = self.spec().await.map_err(|error| ("CreateContainerConfigError", error))?;
        self.launch(&spec).await.map_err(|error| ("RunContainerError", error))
    }

    async fn spec(&self) -> Result<Spec> {
        let env = self.surroundings.env(&self.container).await?;
        let mounts = self.surroundings.mounts(&self.container).await?;
        let known = env.iter().cloned().collect();
        Ok(Spec {
            command: self.command.iter().map(|word| expand(word, &known)).collect(),
            env,
            directory: self.container.working_dir.clone().filter(|directory| !directory.is_empty()),
            hostname: self.surroundings.hostname(),
            netns: self.netns.clone(),
            lower: HOST_ROOT.into(),
            layers: self.layers.clone(),
            mounts,
            log: self.directory.join(format!("{}.log", self.restarts)),
        })
    }

    async fn launch(&self, spec: &Spec) -> Result<Begun> {
        for directory in [&self.directory, &self.layers] {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut keeper = std::process::Command::new(PROGRAM);
        keeper.args(["internal", "container"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        testkit::process::kill_with_parent(&mut keeper);
        let mut child = Command::from(keeper).spawn().context("cannot start a process")?;
        let text = serde_json::to_vec(spec)?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        stdin.write_all(&text).await?;
        drop(stdin);
        let stdout = child.stdout.take().context("no standard output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        let report: Report = serde_json::from_str(&line).with_context(|| format!("the container said {line:?}"))?;
        match report {
            Report::Failed(why) => {
                let _ = child.wait().await;
                Err(anyhow!(why))
            }
            Report::Started(pid) => {
                // For those who want to look inside: who it is, and what its surroundings are.
                write_whole(&self.directory.join("spec.json"), &text)?;
                let pid_file = self.directory.join("pid");
                write_whole(&pid_file, pid.to_string().as_bytes())?;
                let keeper = child.id().context("it has ended already")?;
                Ok(Begun { pid, keeper, child, layers: self.layers.clone(), pid_file })
            }
        }
    }
}

impl Begun {
    /// Waits for the end; gives the exit code.
    pub(crate) async fn end(mut self) -> i32 {
        let status = self.child.wait().await;
        // Nobody is in there any more.
        let removed = [fs::remove_file(&self.pid_file), fs::remove_dir_all(&self.layers)];
        for error in removed.into_iter().filter_map(Result::err) {
            tracing::debug!("after the end of a container: {error}");
        }
        status.ok().and_then(|status| status.code()).unwrap_or(137)
    }
}

/// Asks a container to end.
pub(crate) fn terminate(keeper: u32) {
    // It may have ended a moment ago.
    let _ = send(Pid::from_raw(keeper.cast_signed()), Signal::SIGTERM);
}

/// Ends a container.
pub(crate) fn kill(keeper: u32) {
    let _ = send(Pid::from_raw(keeper.cast_signed()), KILL);
}
