//! The programs of two versions in one lab, replaced as an update of a DaemonSet or a Deployment does it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::wait::until;

use crate::lab::{Lab, TIMEOUT};
use crate::policies::outages::follows;

pub(super) const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const PROGRAMS: [&str; 3] = ["antrea-agent", "antrea-cni", "antrea-controller"];

/// One of the two versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    Old,
    New,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }
}

/// The programs of a lab, which all Nodes see in one directory.
pub(super) struct Versions<'a> {
    lab: &'a Lab,
    programs: PathBuf,
}

impl<'a> Versions<'a> {
    /// Makes both versions available in a lab that runs the old one.
    pub(super) fn new(lab: &'a Lab, old: &Path, new: &Path) -> Self {
        let programs = lab.home.path().join("bin");
        for (version, from) in [(Version::Old, old), (Version::New, new)] {
            let to = programs.join(version.to_string());
            fs::create_dir(&to).unwrap();
            for name in PROGRAMS {
                fs::copy(from.join(name), to.join(name)).unwrap();
            }
        }
        let versions = Self { lab, programs };
        for name in ["antrea-agent", "antrea-controller"] {
            let size = |version| fs::metadata(versions.program(version, name)).unwrap().len();
            assert_ne!(size(Version::Old), size(Version::New), "both versions of {name} are the same");
        }
        versions
    }

    fn program(&self, version: Version, name: &str) -> PathBuf {
        self.programs.join(version.to_string()).join(name)
    }

    /// The version of a running process.
    fn of(&self, exe: &Path, name: &str) -> Option<Version> {
        let size = fs::metadata(exe).ok()?.len();
        let is = |version: &Version| fs::metadata(self.program(*version, name)).unwrap().len() == size;
        [Version::Old, Version::New].into_iter().find(is)
    }

    fn agent(&self, node: &str) -> Option<Version> {
        let pid = self.lab.pid(node, "antrea-agent")?;
        self.of(&self.lab.root(node).join(format!("proc/{pid}/exe")), "antrea-agent")
    }

    fn controller(&self, pid: i32) -> Option<Version> {
        self.of(Path::new(&format!("/proc/{pid}/exe")), "antrea-controller")
    }

    /// Ends a controller, which starts again with the other version.
    pub(super) fn replace_controller(&self, number: usize, to: Version) {
        let next = self.programs.join("next");
        fs::copy(self.program(to, "antrea-controller"), &next).unwrap();
        // A running program cannot be written, but replaced.
        fs::rename(next, self.programs.join("antrea-controller")).unwrap();
        let name = format!("POD_NAME=antrea-controller-{}", number + 1);
        let is_it = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == name.as_bytes())
        };
        let running = || self.lab.controllers().into_iter().find(is_it);
        let old = until("the controller runs", TIMEOUT, running).unwrap();
        kill(Pid::from_raw(old), Signal::SIGTERM).unwrap();
        let replaced = || running().filter(|pid| *pid != old && self.controller(*pid) == Some(to));
        until("the controller of the other version", TIMEOUT, replaced).unwrap();
    }

    /// Installs the other version on a Node as an init container does, and ends the agent, which starts again.
    pub(super) fn replace_agent(&self, node: &str, to: Version) {
        let directory = self.programs.join(to.to_string());
        let configuration = self.lab.home.node(node).join("antrea-agent.conf");
        let install = format!(
            "for name in antrea-agent antrea-cni; do cp {0}/$name /usr/local/bin/.$name && mv /usr/local/bin/.$name /usr/local/bin/$name; \
             done && antrea-agent install-cni --config {1}",
            directory.display(),
            configuration.display()
        );
        self.lab.node(node, &["sh", "-ec", &install]).unwrap();
        let old = until("the agent runs", TIMEOUT, || self.lab.pid(node, "antrea-agent")).unwrap();
        self.lab.node(node, &["kill", "-TERM", &old.to_string()]).unwrap();
        let replaced = || (self.lab.pid(node, "antrea-agent")? != old && self.agent(node) == Some(to)).then_some(());
        until(format_args!("the {to} agent of {node}"), TIMEOUT, replaced).unwrap();
    }

    /// Waits until every agent is connected to a controller.
    pub(super) fn until_connected(&self) {
        for node in NODES {
            let connected = || follows(self.lab, node).then_some(());
            until(format_args!("the agent of {node} is connected to a controller"), TIMEOUT, connected).unwrap();
        }
    }

    /// The versions that run, of controllers and of agents.
    pub(super) fn summary(&self) -> String {
        let list = |versions: Vec<Option<Version>>| {
            versions.into_iter().map(|it| it.map_or("?".to_owned(), |it| it.to_string())).collect::<Vec<_>>().join(" ")
        };
        let controllers = self.lab.controllers().into_iter().map(|pid| self.controller(pid)).collect();
        let agents = NODES.iter().map(|node| self.agent(node)).collect();
        format!("controllers {}, agents {}", list(controllers), list(agents))
    }
}
