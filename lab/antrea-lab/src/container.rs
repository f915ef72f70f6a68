//! A container: a process that makes namespaces, a root file system and a first process in them, and runs a command there.
//!
//! Three processes. The *keeper* is the kubelet's child; it reports, passes signals on, and ends as the command ends. The
//! *first* process of the container waits for orphans, as a first process must, and passes signals on, so that a command
//! that does not expect to be the first process ends when it is told to. The command is the third. When any of them dies,
//! so do those below it.

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

use crate::mounts::{bind, enter, mount_at, overlay, private_mounts, program, read_only};

/// Tells the keeper to kill the container.
pub(crate) const KILL: Signal = Signal::SIGUSR1;

/// What to run, and in what surroundings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: Option<String>,
    pub(crate) hostname: String,
    /// The Pod's network; without one, the Node's.
    pub(crate) netns: Option<PathBuf>,
    /// The file system below the container's own layer.
    pub(crate) lower: PathBuf,
    /// Where the container's own layer is kept.
    pub(crate) layers: PathBuf,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) log: PathBuf,
}

/// A file or directory of the Node, shown in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) from: PathBuf,
    pub(crate) to: String,
    pub(crate) read_only: bool,
}

/// What the keeper tells the kubelet, once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Report {
    /// The command runs; the first process of the container, as the Node numbers it.
    Started(u32),
    /// It does not, and why.
    Failed(String),
}

/// Runs the container that standard input describes. Gives the exit code of its command.
pub(crate) fn run() -> Result<i32> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let spec: Spec = serde_json::from_str(&text).context("cannot read what to run")?;
    let report = |report: &Report| {
        let line = serde_json::to_string(report).unwrap_or_default();
        // Nobody may be left to listen.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    match keep(&spec, |pid| report(&Report::Started(pid))) {
        Ok(code) => Ok(code),
        Err(error) => {
            report(&Report::Failed(format!("{error:#}")));
            Ok(128)
        }
    }
}

fn keep(spec: &Spec, started: impl FnOnce(u32)) -> Result<i32> {
    let log = OpenOptions::new().create(true).append(true).open(&spec.log);
    let log: OwnedFd = log.with_context(|| format!("cannot write {}", spec.log.display()))?.into();
    if let Some(netns) = &spec.netns {
        let file = fs::File::open(netns).with_context(|| format!("cannot open {}", netns.display()))?;
        setns(file, CloneFlags::CLONE_NEWNET)?;
    }
    let spaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(spaces).context("cannot make namespaces")?;
    // Signals are taken one by one, when we are ready for them.
    let signals = signals();
    signals.thread_block()?;
    // It closes when the command is executed.
    let (news, tell) = pipe2(OFlag::O_CLOEXEC)?;
    #[expect(unsafe_code, reason = "this process has one thread, so the child may do anything")]
    match unsafe { fork() }? {
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            drop(news);
            let code = first(spec, &log, tell);
            std::process::exit(code)
        }
        ForkResult::Parent { child } => {
            drop(tell);
            let mut failure = String::new();
            fs::File::from(news).read_to_string(&mut failure)?;
            if failure.is_empty() {
                started(child.as_raw().cast_unsigned());
            } else {
                let _ = waitpid(child, None);
                anyhow::bail!(failure);
            }
            relay(&signals, child)
        }
    }
}

/// Passes signals on until the child has ended; waits for all others too. Gives the child's exit code.
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

/// The first process of the container. Closing `tell` says that the command runs; what is written to it, why not.
fn first(spec: &Spec, log: &OwnedFd, tell: OwnedFd) -> i32 {
    let started = build_root(spec).and_then(|()| start(spec, log, &tell));
    match started {
        Ok(command) => {
            drop(tell);
            relay(&signals(), command).unwrap_or(128)
        }
        Err(error) => {
            let _ = fs::File::from(tell).write_all(format!("{error:#}").as_bytes());
            128
        }
    }
}

fn start(spec: &Spec, log: &OwnedFd, tell: &OwnedFd) -> Result<Pid> {
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
                dup2_stdout(log)?;
                dup2_stderr(log)?;
                chdir(directory).with_context(|| format!("cannot use the directory {directory}"))?;
                #[expect(unsafe_code, reason = "the default is no handler of ours; Rust's programs ignore this signal")]
                unsafe {
                    signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
                }
                signals().thread_unblock()?;
                Ok(execvpe(program, &command, &env)?)
            })();
            let Err(error) = failed;
            let text = format!("cannot run {:?}: {error:#}", spec.command);
            let _ = write(log, format!("{text}\n").as_bytes());
            let _ = write(tell, text.as_bytes());
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
    // On Debian, /var/run is a link to /run, which would lead out of the new root.
    let to = mount.to.strip_prefix("/var/run/").map_or_else(|| mount.to.clone(), |rest| format!("/run/{rest}"));
    let to = root.join(to.trim_start_matches('/'));
    if mount.from.is_dir() {
        fs::create_dir_all(&to)?;
    } else {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        // A link may lead out of the new root as well.
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
