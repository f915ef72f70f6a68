//! Cleanup after panics, killed test processes, and threads that end before their fixture.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs, thread};

use nix::unistd::gettid;

use crate::wait::{TIMEOUT, until};
use crate::{Ovs, Process, scratch};

/// Set for the copy of this test binary that will be killed.
const VICTIM: &str = "TESTKIT_VICTIM";

/// Whether the process exists and is not a zombie.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn pids(ovs: &Ovs) -> [u32; 2] {
    [ovs.ovsdb_pid().unwrap(), ovs.vswitchd_pid().unwrap()]
}

#[test]
fn a_panic_leaves_no_process_and_no_directory() {
    let mut seen = None;
    let panicked = thread::scope(|scope| {
        let test = scope.spawn(|| {
            let ovs = Ovs::start().unwrap();
            seen = Some((pids(&ovs), ovs.dir().to_owned()));
            panic!("this panic is part of the test");
        });
        test.join().is_err()
    });
    assert!(panicked);
    let (pids, dir) = seen.unwrap();
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still there");
    }
    assert!(!dir.exists());
}

#[test]
fn a_killed_test_process_leaves_no_daemon() {
    if env::var_os(VICTIM).is_some() {
        let ovs = Ovs::start().unwrap();
        let [ovsdb, vswitchd] = pids(&ovs);
        println!("\nvictim {ovsdb} {vswitchd} {}", ovs.dir().display());
        loop {
            thread::park();
        }
    }

    let name = "lifetime_tests::a_killed_test_process_leaves_no_daemon";
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(VICTIM, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut victim = Process::spawn(command).unwrap();
    let output = BufReader::new(victim.child().stdout.take().unwrap());
    let line = output.lines().map(Result::unwrap).find(|line| line.starts_with("victim ")).unwrap();
    let [_, ovsdb, vswitchd, dir] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let pids = [ovsdb, vswitchd].map(|pid| pid.parse().unwrap());
    let dir = PathBuf::from(dir);
    assert!(pids.into_iter().all(runs) && dir.exists());

    victim.kill().unwrap();
    until("the end of the daemons", TIMEOUT, || (!pids.into_iter().any(runs)).then_some(())).unwrap();
    scratch::sweep();
    assert!(!dir.exists(), "the next process removes the directory");
}

#[test]
fn a_shared_sandbox_survives_the_thread_which_made_it() {
    static SHARED: OnceLock<Ovs> = OnceLock::new();
    let shared = || SHARED.get_or_init(|| Ovs::start().unwrap());
    let (thread, before) = thread::spawn(move || (gettid(), pids(shared()))).join().unwrap();
    // A thread can be joined a little before it is gone for the kernel, which sends the death signals in between.
    let task = format!("/proc/self/task/{thread}");
    until("the end of the thread", TIMEOUT, || (!Path::new(&task).exists()).then_some(())).unwrap();
    shared().add_bridge("br0").unwrap();
    assert_eq!(pids(shared()), before);
    assert!(before.into_iter().all(runs));
}
