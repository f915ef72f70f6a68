//! Jumps of the wall clock of an agent, and of the controller, by libfaketime: the clock of this machine is not changed.
//!
//! Each jump meets the running program, which then is killed and starts with the wrong time. Certificates may not be valid
//! meanwhile; policies stay enforced, and everything works again soon after the clock is right.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::wait::until;

use super::attack::Attacker::NodeProcess;
use super::attack::{Attack, Effect};
use super::field::{Field, Mode};
use super::floods::closed;
use crate::lab::TIMEOUT;
use crate::policies::outages::{DeniedSender, follows};

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("an agent's clock jumps", NodeProcess, agent).long(),
    Attack::steps("the controller's clock jumps", NodeProcess, controller).long(),
];

/// Offsets from the right time.
const JUMPS: &[&str] = &["+1d", "-1d", "+10y", "-10y"];
const RIGHT: &str = "+0";
/// Forbidden packets during a wrong time: they take longer than the interval at which certificates and the CA are checked.
const PROBES: usize = 1500;
/// Time until everything works again: the CA may be replaced, in passes of 15 s.
const RECOVERY: Duration = Duration::from_secs(100);
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Clocks have nothing to do with tunnels: all jumps are tried in one mode.
fn jumps(f: &Field) -> &'static [&'static str] {
    if f.mode == Mode::Encap { JUMPS } else { &JUMPS[..1] }
}

/// A program with a clock of its own, while this value lives.
struct Clock {
    program: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Replaces a program by a script that starts it with libfaketime; `None` if that is not installed. Paths are seen from
    /// `root`.
    fn of(root: &Path, program: &str, file: &str) -> Option<Self> {
        let libraries = std::fs::read_dir("/usr/lib").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let library = libraries.map(|path| path.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())?;
        let outside = |path: &str| root.join(path.trim_start_matches('/'));
        let clock = Self { program: outside(program), file: outside(file) };
        clock.set(RIGHT);
        std::fs::create_dir_all(clock.real().parent().unwrap()).unwrap();
        std::fs::rename(&clock.program, clock.real()).unwrap();
        let (directory, name) = program.rsplit_once('/').unwrap();
        // libfaketime leaves files in /dev/shm when its process is killed.
        let script = format!(
            "#!/bin/sh\n[ -n \"$OWN\" ] || OWN=1 exec unshare --mount \"$0\" \"$@\"\nmount -t tmpfs tmpfs /dev/shm\n\
             export FAKETIME_TIMESTAMP_FILE={file} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n\
             LD_PRELOAD={} exec {directory}/real/{name} \"$@\"\n",
            library.display()
        );
        let new = clock.program.with_extension("new");
        std::fs::write(&new, script).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &clock.program).unwrap();
        Some(clock)
    }

    fn real(&self) -> PathBuf {
        self.program.with_file_name("real").join(self.program.file_name().unwrap())
    }

    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, offset).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.set(RIGHT);
        let _ = std::fs::rename(self.real(), &self.program);
    }
}

/// Whether libfaketime is loaded, as seen from `root`.
fn is_faked(root: &Path, pid: impl Display) -> bool {
    let maps = std::fs::read_to_string(root.join(format!("proc/{pid}/maps")));
    maps.is_ok_and(|maps| maps.contains("libfaketime"))
}

/// Restarts the program with a clock of its own, lets the clock jump, and restarts the program before the clock is right again.
fn jump(f: &Field, clock: &Clock, restart: impl Fn(), works: impl Fn() -> bool) -> Effect {
    let safe = f.pod("safe-1");
    let denied = DeniedSender::start(&f.pod("evil").netns, &safe.netns, &safe.host.v4.to_string());
    let (mut forbidden, mut notes) = (0, Vec::new());
    let working = |limit: Duration| until("policies", limit, || (works() && f.policies_work()).then_some(())).is_ok();
    let probed = || {
        let enough = denied.sender() + PROBES;
        until("forbidden packets", TIMEOUT, || (denied.sender() >= enough).then_some(())).unwrap();
    };
    restart();
    assert!(working(RECOVERY), "does not work with libfaketime");
    let mut check = |notes: &mut Vec<String>, what: &str, holds: bool| {
        if !holds {
            notes.push(what.to_owned());
        }
        forbidden += closed(f, 1).forbidden + usize::from(!holds);
    };
    let mut slowest = Duration::ZERO;
    for offset in jumps(f) {
        clock.set(offset);
        probed();
        // The streams of agents go on, whatever the time.
        check(&mut notes, &format!("{offset}: policies no longer work"), f.policies_work());
        restart();
        probed();
        check(&mut notes, "", true);
        clock.set(RIGHT);
        let begun = Instant::now();
        let recovers = working(RECOVERY);
        slowest = slowest.max(begun.elapsed());
        check(&mut notes, &format!("{offset}: does not recover"), recovers);
    }
    let (sent, received) = denied.end();
    notes.push(format!("recovered within {:.0} s", slowest.as_secs_f32()));
    Effect::new(sent, forbidden + received, notes.join(", "))
}

fn skipped() -> Effect {
    Effect::new(0, 0, "skipped: libfaketime is missing (scripts/setup red-team)")
}

fn agent(f: &Field, _: usize) -> Effect {
    let root = f.lab.root("node-1");
    let Some(clock) = Clock::of(&root, "/usr/local/bin/antrea-agent", "/run/clock") else { return skipped() };
    let restart = || {
        crate::endurance::kill(&f.lab, "node-1", "antrea-agent");
        let faked = || is_faked(&root, f.lab.pid("node-1", "antrea-agent")?).then_some(());
        until("the agent has libfaketime", TIMEOUT, faked).unwrap();
        until("the agent", TIMEOUT, || f.agent_lives("node-1").then_some(())).unwrap();
    };
    let effect = jump(f, &clock, restart, || follows(&f.lab, "node-1"));
    drop(clock);
    crate::endurance::kill(&f.lab, "node-1", "antrea-agent");
    until("the agent", TIMEOUT, || follows(&f.lab, "node-1").then_some(())).unwrap();
    effect
}

fn controller(f: &Field, _: usize) -> Effect {
    let home = f.lab.home.path();
    let (program, file) = (home.join("bin/antrea-controller"), home.join("clock"));
    let root = Path::new("/");
    let Some(clock) = Clock::of(root, program.to_str().unwrap(), file.to_str().unwrap()) else { return skipped() };
    let end = || {
        let before = f.lab.controllers();
        before.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
        before
    };
    let restart = || {
        let before = end();
        let faked = || f.lab.controllers().iter().any(|pid| !before.contains(pid) && is_faked(root, pid)).then_some(());
        until("the controller has libfaketime", TIMEOUT, faked).unwrap();
    };
    let follow = || NODES.iter().all(|node| follows(&f.lab, node));
    let mut effect = jump(f, &clock, restart, follow);
    let lease = f.api.object("kube-system", "coordination.k8s.io/v1", "Lease", "antrea-controller").unwrap();
    effect.note += &format!(", {} changes of the leader", lease["spec"]["leaseTransitions"]);
    drop(clock);
    end();
    until("agents follow the controller", RECOVERY, || follow().then_some(())).unwrap();
    effect
}
