//! Child processes: those in the background never outlive the process that started them, whatever ends it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// How much of a log goes into an error message.
const TAIL_LINES: usize = 20;

/// A running child process: killed and reaped on drop, and killed by the kernel if this process dies first.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`. The child lives until it is dropped or ends by itself, also when the calling thread ends.
    pub fn spawn(command: Command) -> Result<Self> {
        let what = describe(&command);
        let child = spawn_from_the_spawner(command).with_context(|| format!("cannot start `{what}`"))?;
        Ok(Self { child })
    }

    /// Process id, valid until the process is reaped.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Exit status, or `None` while it runs.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS: a zombie?")?;
        Ok(kilobytes.parse::<u64>()? * 1024)
    }

    /// Kills the process (SIGKILL) and waits for its end; does nothing if it ended before.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error here means that the child was reaped elsewhere, and there is nothing left to kill.
        let _ = self.kill();
    }
}

/// Runs a command to its end. Success gives its standard output; failure an error with the command and its output.
pub fn run(command: &mut Command, input: Option<&str>) -> Result<String> {
    let what = describe(command);
    let output = output(command, input).with_context(|| format!("cannot run `{what}`"))?;
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        bail!("`{what}` failed ({}): {}", output.status, String::from_utf8_lossy(&said).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{what}`"))
}

fn output(command: &mut Command, input: Option<&str>) -> Result<Output> {
    let Some(input) = input else { return Ok(command.stdin(Stdio::null()).output()?) };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipe = child.stdin.take();
    thread::scope(|scope| {
        // A tool that fails stops reading; its message says more than the broken pipe.
        scope.spawn(|| pipe.map(|mut pipe| pipe.write_all(input.as_bytes())));
        Ok(child.wait_with_output()?)
    })
}

/// The last lines of a log, for an error message.
pub fn log_tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
}

/// The program and its arguments as one would type them, for messages.
fn describe(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

struct Job {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// The thread which starts all children. The kernel sends the death signal when the *thread* that forked the child
/// ends, so that thread has to last as long as the process.
static SPAWNER: LazyLock<Sender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = channel::<Job>();
    thread::spawn(move || {
        for mut job in queue {
            kill_with_parent(&mut job.command);
            // Sending fails only if the caller is gone, which then drops the child; callers always wait.
            let _ = job.reply.send(job.command.spawn());
        }
    });
    jobs
});

fn spawn_from_the_spawner(command: Command) -> Result<Child> {
    let (reply, answer) = sync_channel(1);
    SPAWNER.send(Job { command, reply }).map_err(|_| anyhow!("the thread which starts children is gone"))?;
    Ok(answer.recv()??)
}

/// Makes the kernel kill the child when the thread that spawns it ends. [`Process::spawn`] does that with a thread that
/// never ends; others call this in their main thread.
pub fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // If the parent died before the line above, no signal will ever come.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    #[expect(
        unsafe_code,
        reason = "the death signal is set between fork and exec; the closure makes system calls only"
    )]
    unsafe {
        command.pre_exec(before_exec);
    }
}
