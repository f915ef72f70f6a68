//! Processes and network namespaces.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// A network namespace. It lives as long as this value, its clones, or a process inside.
#[derive(Clone, Debug)]
pub(crate) struct Netns(Arc<File>);

impl Netns {
    /// Makes an empty namespace.
    pub(crate) fn new() -> Result<Self> {
        // The thread takes the namespace as its own, hands over the file that stands for it, and ends.
        let make = || -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        };
        let file = in_a_thread(make).context("cannot make a network namespace")?;
        Ok(Self(Arc::new(file)))
    }

    /// Runs `work` in a thread inside. Sockets made there stay in the namespace wherever they are used later.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_a_thread(|| {
            setns(&*self.0, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// A command that will run inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.0);
        let enter = move || Ok(setns(&*namespace, CloneFlags::CLONE_NEWNET)?);
        #[expect(unsafe_code, reason = "the child enters between fork and exec; the closure makes one system call")]
        unsafe {
            command.pre_exec(enter);
        }
        command
    }

    /// A path for as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Carries out lines of `ip`, all or up to the first that fails.
    pub(crate) fn ip(&self, lines: &[String]) -> Result<()> {
        feed(self.command("ip").args(["-batch", "-"]), &lines.join("\n")).map(drop)
    }

    /// Sets kernel parameters of this namespace, such as `net.ipv4.ip_forward`.
    pub(crate) fn sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| sysctls(settings))
    }
}

/// Sets kernel parameters, such as `net.ipv4.ip_forward`, where this thread is.
pub(crate) fn sysctls(settings: &[(&str, &str)]) -> Result<()> {
    settings.iter().try_for_each(|(name, value)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        std::fs::write(&path, value).with_context(|| format!("cannot set {name}={value}"))
    })
}

fn in_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|_| Err(anyhow!("a thread in a namespace has panicked")))
    })
}

/// The kernel kills the child when the thread that starts it ends. That is to be the main one.
pub(crate) fn die_with_parent(command: &mut Command) {
    #[expect(unsafe_code, reason = "the child asks between fork and exec; the closure makes one system call")]
    unsafe {
        command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
    }
}

/// Runs a command to its end and gives what it prints.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    feed(command, "")
}

/// Runs a command to its end with `input` to read, and gives what it prints.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<String> {
    let what = describe(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{what}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why it has failed.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let fed = if input.is_empty() { String::new() } else { format!("\nwhich was to read:\n{input}") };
        bail!("`{what}` ended with {}: {}{fed}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(std::ffi::OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// This program's own file.
pub(crate) fn myself() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the program's own file")
}

/// The end of a log, for an error message.
pub(crate) fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
}
