//! A lab leaves nothing behind, however it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::wait::until;

use crate::lab::{Lab, TIMEOUT, output, program, script, server};

/// Everything below a process: pids with their start times, and the namespaces that are not ours.
struct Traces {
    processes: BTreeSet<(u32, String)>,
    namespaces: BTreeSet<String>,
}

fn traces(root: u32) -> Traces {
    let mut parents = BTreeMap::<u32, Vec<u32>>::new();
    for pid in pids() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.entry(parent.unwrap_or_default()).or_default().push(pid);
    }
    let (mut all, mut open) = (Vec::new(), vec![root]);
    while let Some(pid) = open.pop() {
        all.push(pid);
        open.extend(parents.get(&pid).into_iter().flatten());
    }
    let ours: BTreeSet<_> = spaces(std::process::id()).collect();
    let namespaces = all.iter().flat_map(|pid| spaces(*pid)).filter(|space| !ours.contains(space)).collect();
    Traces { processes: all.into_iter().filter_map(|pid| Some((pid, start(pid)?))).collect(), namespaces }
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn start(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned())
}

fn spaces(pid: u32) -> impl Iterator<Item = String> {
    let links = ["net", "mnt", "pid", "uts", "ipc"].map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    links.into_iter().filter_map(|link| Some(link.ok()?.to_string_lossy().into_owned()))
}

impl Traces {
    /// Waits until nothing is left: the kernel removes namespaces of killed processes asynchronously.
    fn until_gone(&self, base: &Path) {
        let mut left = Vec::new();
        let gone = || {
            left = self.left(base);
            left.is_empty().then_some(())
        };
        let waited = until("nothing is left", TIMEOUT, gone);
        waited.unwrap_or_else(|error| panic!("{error}: {left:?}"));
    }

    /// The traces that are still there.
    fn left(&self, base: &Path) -> Vec<String> {
        let running = self.processes.iter().filter(|(pid, since)| start(*pid).as_ref() == Some(since));
        let named = running.map(|(pid, _)| {
            let name = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&name).replace('\0', " "))
        });
        // One without a command line has ended, and waits for its parent, which may be this test.
        let mut left: Vec<_> =
            named.filter(|(_, name)| !name.is_empty()).map(|(pid, name)| format!("process {pid} {name}")).collect();
        for pid in pids() {
            left.extend(spaces(pid).filter(|space| self.namespaces.contains(space)));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(base.to_str().unwrap())).map(ToOwned::to_owned));
        if base.exists() {
            left.push(format!("{} is there", base.display()));
        }
        left
    }
}

/// A lab with a Pod that runs, and one that crashes.
fn busy(name: &'static str) -> (Lab, Traces) {
    let lab = Lab::start(name, 1);
    let api = lab.api();
    api.pod("web", server("node-1"));
    api.pod("sleeper", script("node-1", "sleep 1000 & sleep 1000"));
    api.until_ready("web");
    api.until_ready("sleeper");
    let traces = traces(lab.supervisor());
    // The supervisor, the Node's, the switch's and the Pods' processes; the Node's and the Pods' namespaces.
    assert!(traces.processes.len() > 10 && traces.namespaces.len() > 10, "{:?}", traces.processes);
    (lab, traces)
}

#[test]
fn down_leaves_nothing_and_a_second_down_has_nothing_to_do() {
    let (lab, traces) = busy("downed");
    assert_eq!(output(&lab.run("down", [""; 0])).unwrap(), "the lab `downed` is gone\n");
    traces.until_gone(lab.base());
    assert_eq!(output(&lab.run("down", [""; 0])).unwrap(), "there is no lab `downed`\n");
    assert!(output(&lab.run("status", [""; 0])).unwrap_err().contains("there is no lab `downed`"));
}

#[test]
fn ctrl_c_leaves_nothing() {
    let (mut lab, traces) = busy("interrupted");
    kill(Pid::from_raw(lab.process.pid().cast_signed()), Signal::SIGINT).unwrap();
    let status = until("the end of `up`", TIMEOUT, || lab.process.ended().unwrap()).unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    traces.until_gone(lab.base());
}

#[test]
fn all_processes_end_with_a_killed_supervisor_and_down_removes_its_directory() {
    let (lab, traces) = busy("killed");
    kill(Pid::from_raw(lab.supervisor().cast_signed()), Signal::SIGKILL).unwrap();
    let gone = || traces.left(lab.base()).iter().all(|left| !left.starts_with("process")).then_some(());
    until("the end of all processes", TIMEOUT, gone).unwrap();
    assert!(output(&lab.run("status", [""; 0])).unwrap_err().contains("has crashed"));
    assert_eq!(output(&lab.run("down", [""; 0])).unwrap(), "removed what was left of the lab `killed`\n");
    traces.until_gone(lab.base());
}

#[test]
fn a_lab_ends_even_if_its_directory_was_removed() {
    let (lab, traces) = busy("lost");
    let supervisor = Pid::from_raw(lab.supervisor().cast_signed());
    fs::remove_dir_all(lab.base()).unwrap();
    kill(supervisor, Signal::SIGTERM).unwrap();
    traces.until_gone(lab.base());
}

#[test]
fn a_killed_up_ends_the_lab_and_the_next_up_cleans() {
    let (mut lab, traces) = busy("orphaned");
    lab.process.kill().unwrap();
    let gone = || traces.left(lab.base()).is_empty().then_some(());
    until("the end of the lab", TIMEOUT, gone).unwrap_or_else(|error| panic!("{error}: {:?}", traces.left(lab.base())));
    // The leftovers of a lab that could not clean up do not prevent the next `up`.
    fs::create_dir_all(lab.home.node("node-1")).unwrap();
    fs::write(lab.home.path().join("lab.json"), "half a fi").unwrap();
    let arguments = ["--detach", "--network", "bridge", "--nodes", "1"];
    let up = output(&lab.run("up", arguments)).unwrap();
    assert!(up.starts_with("removed what is left of a lab `orphaned` that has crashed"), "{up}");
    let again = output(&lab.run("up", arguments)).unwrap_err();
    assert!(again.contains("is up already"), "{again}");
    output(&lab.run("down", [""; 0])).unwrap();
    assert!(!lab.base().exists());
}

#[test]
fn two_labs_with_the_same_names_and_addresses_are_isolated() {
    let (one, other) = std::thread::scope(|scope| {
        let start = |name| scope.spawn(move || Lab::start(name, 1));
        let (one, other) = (start("one"), start("other"));
        (one.join().unwrap(), other.join().unwrap())
    });
    for lab in [&one, &other] {
        let api = lab.api();
        api.pod("web", server("node-1"));
        api.until_ready("web");
    }
    one.api().pod("only-here", script("node-1", "exec sleep 1000"));
    let address = one.api().until_ready("only-here").remove(0);
    one.node("node-1", &["ping", "-n", "-c", "1", "-w", "5", &address]).unwrap();
    other.node("node-1", &["ping", "-n", "-c", "1", "-W", "0.5", &address]).unwrap_err();
    assert!(other.api().get("only-here").is_none());
    output(&one.run("down", [""; 0])).unwrap();
    // The other one does not notice.
    other.exec("web", &["true"]).unwrap();
    other.api().until_ready("web");
}

#[test]
fn an_invalid_option_is_an_error_with_the_allowed_values() {
    let scratch = testkit::Scratch::new().unwrap();
    let run = |arguments: &[&str]| output(&program(scratch.path()).args(arguments).output().unwrap()).unwrap_err();
    assert!(run(&["up", "--name", "../x"]).contains("lower-case letters, digits and hyphens"));
    assert!(run(&["up", "--nodes", "0"]).contains("1..=200"));
    assert!(run(&["up", "--record", "--network", "bridge"]).contains("it needs `--network antrea`"));
    let unsafe_mode = run(&["up", "--network", "antrea", "--services", "kube-proxy", "--mode", "noencap"]);
    assert!(unsafe_mode.contains("needs `--mode encap`"), "{unsafe_mode}");
    assert_eq!(fs::read_dir(scratch.path()).map(Iterator::count).unwrap_or_default(), 0);
}
