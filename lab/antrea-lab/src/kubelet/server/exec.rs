//! Runs a command in a container for a client.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use streaming::CHUNK;
use streaming::remote_command::{Input, Outcome, Output, Session, Wants};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

use super::super::pod_table::{ContainerView, Phase};
use super::terminal::{self, Terminal};
use crate::container::Spec;
use crate::nsenter;

/// A command that is to run in a container.
pub(super) struct Process {
    pid: u32,
    env: Vec<(String, String)>,
    directory: Option<String>,
    command: Vec<String>,
}

impl Process {
    /// A command in a container, with the environment of the container. `directory` is that of the Pod.
    pub(super) fn new(directory: &Path, container: &ContainerView, command: Vec<String>) -> Result<Self> {
        let Phase::Running(pid) = container.phase else { bail!("container {} does not run", container.name) };
        let path = directory.join(&container.name).join("spec.json");
        let spec: Spec = serde_json::from_slice(&fs::read(&path).with_context(|| path.display().to_string())?)?;
        Ok(Self { pid, env: spec.env, directory: spec.directory, command })
    }

    /// Runs the command until it ends, or until the client disconnects, which kills it.
    pub(super) async fn run(self, wants: Wants, session: Session) -> Outcome {
        let outcome = if wants.tty { self.in_terminal(session).await } else { self.with_pipes(wants, session).await };
        outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
    }

    fn command(&self) -> Command {
        let mut command = nsenter::container(self.pid, self.directory.as_deref());
        command.args(&self.command).env_clear().envs(self.env.iter().cloned());
        testkit::process::kill_with_parent(&mut command);
        command
    }

    async fn with_pipes(&self, wants: Wants, session: Session) -> Result<Outcome> {
        let Session { input, output } = session;
        let pipe = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        let mut command = self.command();
        command.stdin(pipe(wants.stdin)).stdout(pipe(wants.stdout)).stderr(pipe(wants.stderr));
        let mut group = Group::start(command, || Ok(()))?;
        let stdin = group.child.stdin.take();
        let stdout = copy(group.child.stdout.take(), Output::Stdout, output.clone());
        let stderr = copy(group.child.stderr.take(), Output::Stderr, output);
        tokio::select! {
            (status, (), ()) = async { tokio::join!(group.wait(), stdout, stderr) } => Ok(Outcome::Exited(code(status?))),
            () = feed(stdin, input) => bail!("the client has disconnected"),
        }
    }

    async fn in_terminal(&self, session: Session) -> Result<Outcome> {
        let Session { mut input, output } = session;
        let (terminal, inside) = Terminal::open(self.pid)?;
        let mut command = self.command();
        if !self.env.iter().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        command.stdin(inside.try_clone()?).stdout(inside.try_clone()?).stderr(inside);
        let mut group = Group::start(command, terminal::control)?;
        let show = async {
            loop {
                let mut data = BytesMut::zeroed(CHUNK);
                let length = terminal.read(&mut data).await.unwrap_or(0);
                data.truncate(length);
                if length == 0 || output.send((Output::Stdout, data.freeze())).await.is_err() {
                    return;
                }
            }
        };
        let type_in = async {
            while let Some(input) = input.recv().await {
                match input {
                    // Fails after the end of the command.
                    Input::Stdin(data) => drop(terminal.write_all(&data).await),
                    Input::Resize(size) => terminal.resize(size),
                    // The end of a terminal's input is a character.
                    Input::StdinEnd => {}
                }
            }
        };
        tokio::select! {
            (status, ()) = async { tokio::join!(group.wait(), show) } => Ok(Outcome::Exited(code(status?))),
            () = type_in => bail!("the client has disconnected"),
        }
    }
}

/// A process in a group of its own. Unless the process has ended, the group is killed on drop.
struct Group {
    child: Child,
    leader: Pid,
    ended: bool,
}

impl Group {
    /// Starts a command. `prepare` runs in the new process and must make system calls only.
    fn start(mut command: Command, prepare: fn() -> std::io::Result<()>) -> Result<Self> {
        #[expect(unsafe_code, reason = "between fork and exec; the closure makes two system calls")]
        unsafe {
            command.pre_exec(move || {
                setsid()?;
                prepare()
            });
        }
        let child = tokio::process::Command::from(command).spawn().context("cannot start a process")?;
        let pid = child.id().context("the process has ended already")?;
        Ok(Self { child, leader: Pid::from_raw(pid.cast_signed()), ended: false })
    }

    async fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.ended = true;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            // tokio reaps the leader later.
            let _ = kill(Pid::from_raw(-self.leader.as_raw()), Signal::SIGKILL);
        }
    }
}

/// The exit code of a command, with that of a shell if a signal has ended it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Writes input to a command until the client disconnects.
async fn feed(mut stdin: Option<ChildStdin>, mut input: mpsc::Receiver<Input>) {
    while let Some(input) = input.recv().await {
        match (input, &mut stdin) {
            (Input::Stdin(data), Some(to)) => {
                // The command may have closed its input.
                if to.write_all(&data).await.is_err() {
                    stdin = None;
                }
            }
            (Input::StdinEnd, _) => stdin = None,
            (Input::Stdin(_) | Input::Resize(_), _) => {}
        }
    }
}

/// Sends output of a command to the client.
async fn copy(from: Option<impl AsyncRead + Unpin>, to: Output, output: mpsc::Sender<(Output, Bytes)>) {
    let Some(mut from) = from else { return };
    loop {
        let mut data = BytesMut::with_capacity(CHUNK);
        match from.read_buf(&mut data).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if output.send((to, data.freeze())).await.is_err() {
            return;
        }
    }
}
