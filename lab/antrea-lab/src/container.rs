//! A container: namespaces, a root file system, and a command that runs in them.
//!
//! Three processes. The *monitor* is the kubelet's child; it reports the start, forwards signals, and exits with the exit code
//! of the command. The *init* process of the container reaps orphans and forwards signals, so that SIGTERM also ends commands
//! that are not written to run as PID 1. The command is the third. When one of them dies, the kernel kills those below it.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdout, execvpe, fork, pipe2, sethostname, setsid, write};
use serde::{Deserialize, Serialize};

use crate::container_log::{Source, record};
use crate::mounts::{bind, enter, mount_at, overlay, private_mounts, program, read_only};

/// Signal to the monitor: kill the container.
pub(crate) const KILL: Signal = Signal::SIGUSR1;

/// The command of a container, its environment and its file system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: Option<String>,
    pub(crate) hostname: String,
    /// Path of the Pod's network namespace; `None` for the Node's network.
    pub(crate) netns: Option<PathBuf>,
    /// The file system below the container's own layer.
    pub(crate) lower: PathBuf,
    /// Directory of the container's own layer.
    pub(crate) layers: PathBuf,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) log: PathBuf,
}

/// A file or directory of the Node that is mounted in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) from: PathBuf,
    pub(crate) to: String,
    pub(crate) read_only: bool,
}

/// The message of the monitor to the kubelet after the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Report {
    /// The command runs. Contains the PID of the init process in the PID namespace of the Node.
    Started(u32),
    /// The command could not be started, with the reason.
    Failed(String),
}

/// Runs the container that standard input describes. Returns the exit code of its command.
pub(crate) fn run() -> Result<i32> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let spec: Spec = serde_json::from_str(&text).context("cannot parse the container spec on standard input")?;
    let report = |report: &Report| {
        let line = serde_json::to_string(report).unwrap_or_default();
        // The kubelet may have ended.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    match monitor(&spec, |pid| report(&Report::Started(pid))) {
        Ok(code) => Ok(code),
        Err(error) => {
            report(&Report::Failed(format!("{error:#}")));
            Ok(128)
        }
    }
}

fn monitor(spec: &Spec, started: impl FnOnce(u32)) -> Result<i32> {
    let log = OpenOptions::new().create(true).append(true).open(&spec.log);
    let log = log.with_context(|| format!("cannot write {}", spec.log.display()))?;
    if let Some(netns) = &spec.netns {
        let file = fs::File::open(netns).with_context(|| format!("cannot open {}", netns.display()))?;
        setns(file, CloneFlags::CLONE_NEWNET)?;
    }
    let spaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(spaces).context("cannot make namespaces")?;
    // Blocked signals are received one by one with sigwait.
    let signals = signals();
    signals.thread_block()?;
    // exec closes the pipe, which reports success.
    let (errors, report_to) = pipe2(OFlag::O_CLOEXEC)?;
    let ((stdout, to_stdout), (stderr, to_stderr)) = (pipe2(OFlag::O_CLOEXEC)?, pipe2(OFlag::O_CLOEXEC)?);
    let outputs = Outputs { stdout: to_stdout, stderr: to_stderr };
    #[expect(unsafe_code, reason = "this process has one thread, so the child may do anything")]
    match unsafe { fork() }? {
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            drop((errors, stdout, stderr));
            let code = init(spec, &outputs, report_to);
            std::process::exit(code)
        }
        ForkResult::Parent { child } => {
            drop((report_to, outputs));
            // A process whose children are in another PID namespace cannot have threads.
            setns(fs::File::open("/proc/self/ns/pid")?, CloneFlags::CLONE_NEWPID)?;
            // All processes of the container end with its init process, and with them their outputs.
            std::thread::scope(|scope| {
                scope.spawn(|| record(fs::File::from(stdout), Source::Stdout, &log));
                scope.spawn(|| record(fs::File::from(stderr), Source::Stderr, &log));
                let mut failure = String::new();
                fs::File::from(errors).read_to_string(&mut failure)?;
                if failure.is_empty() {
                    started(child.as_raw().cast_unsigned());
                } else {
                    let _ = waitpid(child, None);
                    anyhow::bail!(failure);
                }
                relay(&signals, child)
            })
        }
    }
}

/// Where the command writes its output; the monitor writes it to the log.
struct Outputs {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Forwards signals until the child has ended, and reaps all other children. Returns the child's exit code.
fn relay(signals: &SigSet, child: Pid) -> Result<i32> {
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => loop {
                match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(pid, code)) if pid == child => return Ok(code),
                    Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return Ok(128 + signal as i32),
                    Ok(WaitStatus::StillAlive) | Err(_) => break,
                    Ok(_) => {}
                }
            },
            signal => {
                let signal = if signal == KILL { Signal::SIGKILL } else { signal };
                // It may have ended a moment ago.
                let _ = kill(child, signal);
            }
        }
    }
}

fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    let all = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, KILL];
    all.into_iter().for_each(|signal| signals.add(signal));
    signals
}

/// The init process of the container. It writes an error to `report_to`, or closes it when the command runs.
fn init(spec: &Spec, outputs: &Outputs, report_to: OwnedFd) -> i32 {
    let started = build_root(spec).and_then(|()| start(spec, outputs, &report_to));
    match started {
        Ok(command) => {
            drop(report_to);
            relay(&signals(), command).unwrap_or(128)
        }
        Err(error) => {
            let _ = fs::File::from(report_to).write_all(format!("{error:#}").as_bytes());
            128
        }
    }
}

fn start(spec: &Spec, outputs: &Outputs, report_to: &OwnedFd) -> Result<Pid> {
    sethostname(&spec.hostname)?;
    let directory = spec.directory.as_deref().unwrap_or("/");
    let words = |texts: &[String]| -> Result<Vec<CString>> {
        texts.iter().map(|text| CString::new(text.as_str()).context("a NUL in the command")).collect()
    };
    let command = words(&spec.command)?;
    let program = command.first().context("there is no command")?;
    let env: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let env = words(&env)?;
    #[expect(unsafe_code, reason = "this process has one thread, so the child may do anything")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let failed = (|| -> Result<std::convert::Infallible> {
                setsid()?;
                set_pdeathsig(Signal::SIGKILL)?;
                dup2_stdout(&outputs.stdout)?;
                dup2_stderr(&outputs.stderr)?;
                chdir(directory).with_context(|| format!("cannot use the directory {directory}"))?;
                #[expect(unsafe_code, reason = "resets the handler to the default; Rust programs ignore this signal")]
                unsafe {
                    signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
                }
                signals().thread_unblock()?;
                Ok(execvpe(program, &command, &env)?)
            })();
            let Err(error) = failed;
            let text = format!("cannot run {:?}: {error:#}", spec.command);
            let _ = write(&outputs.stderr, format!("{text}\n").as_bytes());
            let _ = write(report_to, text.as_bytes());
            std::process::exit(127)
        }
    }
}

fn build_root(spec: &Spec) -> Result<()> {
    private_mounts()?;
    let root = overlay(&spec.lower, &spec.layers)?;
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    mount_at(Some("proc"), &inside("/proc"), Some("proc"), MsFlags::empty(), "")?;
    mount_at(Some("sysfs"), &inside("/sys"), Some("sysfs"), MsFlags::MS_RDONLY, "")?;
    for memory in ["/run", "/tmp", "/dev"] {
        let mode = if memory == "/tmp" { "mode=1777" } else { "mode=755" };
        mount_at(Some("tmpfs"), &inside(memory), Some("tmpfs"), MsFlags::empty(), mode)?;
    }
    for device in ["null", "zero", "full", "random", "urandom", "tty"] {
        let device = inside("/dev").join(device);
        fs::write(&device, "")?;
        bind(Path::new("/dev").join(device.file_name().unwrap_or_default()).as_path(), &device, MsFlags::empty())?;
    }
    for directory in ["/dev/pts", "/dev/shm"] {
        fs::create_dir(inside(directory))?;
    }
    mount_at(Some("devpts"), &inside("/dev/pts"), Some("devpts"), MsFlags::empty(), "newinstance,ptmxmode=0666")?;
    mount_at(Some("tmpfs"), &inside("/dev/shm"), Some("tmpfs"), MsFlags::empty(), "mode=1777")?;
    let links = [("pts/ptmx", "ptmx"), ("/proc/self/fd", "fd"), ("/proc/self/fd/0", "stdin")];
    for (to, name) in links.into_iter().chain([("/proc/self/fd/1", "stdout"), ("/proc/self/fd/2", "stderr")]) {
        std::os::unix::fs::symlink(to, inside("/dev").join(name))?;
    }
    program(&root)?;
    for mount in &spec.mounts {
        show(mount, &root)?;
    }
    enter(&root)
}

fn show(mount: &Mount, root: &Path) -> Result<()> {
    // On Debian, /var/run is a link to /run, which is outside of the new root.
    let to = mount.to.strip_prefix("/var/run/").map_or_else(|| mount.to.clone(), |rest| format!("/run/{rest}"));
    let to = root.join(to.trim_start_matches('/'));
    if mount.from.is_dir() {
        fs::create_dir_all(&to)?;
    } else {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        // Another link may point outside of the new root as well.
        if to.symlink_metadata().is_ok_and(|file| file.is_symlink()) {
            fs::remove_file(&to)?;
        }
        if !to.exists() {
            fs::write(&to, "")?;
        }
    }
    bind(&mount.from, &to, MsFlags::MS_REC)?;
    if mount.read_only { read_only(&to) } else { Ok(()) }
}
