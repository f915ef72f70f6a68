//! Returns a Node to its state before the installation: removes what agent, `install-cni` and Open vSwitch have left on it.
//!
//! Everything is found by a mark of ours, so it also works without the configuration of the agent that ran here. Foreign objects
//! stay. So do two sysctls and the kernel module, which other programs may use by now.

mod files;
mod switch;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use host::{Kernel, Leftover};

use crate::config::Config;
use files::Files;
use switch::Switch;

/// The directories of a Node that antrea-rs writes to.
pub(crate) struct Cleanup<'a> {
    pub(crate) config: &'a Config,
    /// Directory with the chained plugins of the image.
    pub(crate) chained: Option<&'a Path>,
    pub(crate) bin_dir: &'a Path,
    pub(crate) conf_dir: &'a Path,
    /// Directory of sockets: those of the agent, and those of the DaemonSet antrea-ovs in `openvswitch`.
    pub(crate) run_dir: &'a Path,
    /// Directory of the database of the DaemonSet antrea-ovs.
    pub(crate) state_dir: &'a Path,
}

/// An object that antrea-rs has created and that is to be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Path(PathBuf),
    Switch(switch::Item),
    Kernel(Leftover),
}

impl Cleanup<'_> {
    /// Removes everything, or with `dry_run` only lists it. Fails with a list of what could not be removed.
    pub(crate) fn run(&self, dry_run: bool, output: &mut impl Write) -> Result<()> {
        match self.running() {
            Some(running) if dry_run => writeln!(output, "would be refused: {running}")?,
            Some(running) => bail!("{running}"),
            None => {}
        }
        let switch = Switch::find(self.config, self.state_dir);
        let mut kernel = Kernel::open()?;
        let (items, foreign) = self.items(&switch, &mut kernel)?;
        for line in foreign {
            writeln!(output, "left alone: {line}")?;
        }
        let mut failures = Vec::new();
        for item in &items {
            let name = self.describe(item, &switch);
            if dry_run {
                writeln!(output, "would remove: {name}")?;
                continue;
            }
            match self.remove(item, &switch, &mut kernel) {
                Ok(()) => writeln!(output, "removed: {name}")?,
                Err(error) => {
                    writeln!(output, "not removed: {name}")?;
                    failures.push(format!("{name}: {error:#}"));
                }
            }
        }
        if items.is_empty() {
            writeln!(output, "nothing to remove")?;
        }
        if !failures.is_empty() {
            bail!("{} of {} objects could not be removed:\n  {}", failures.len(), items.len(), failures.join("\n  "));
        }
        Ok(())
    }

    /// What still runs here, and how to end it.
    fn running(&self) -> Option<String> {
        let answers = |socket: &Path| UnixStream::connect(socket).is_ok();
        let (agent, ovs) = (self.config.cni_socket.as_path(), self.run_dir.join("openvswitch/db.sock"));
        let fix =
            "remove antrea-rs from the cluster first (`kubectl delete -f deploy/kubernetes/`, or `helm uninstall`)";
        if answers(agent) {
            let service = "as a service: `systemctl disable --now antrea-agent`";
            Some(format!("an agent runs on this Node and answers at {}; {fix}; {service}", agent.display()))
        } else if answers(&ovs) {
            Some(format!("the DaemonSet antrea-ovs runs on this Node and answers at {}; {fix}", ovs.display()))
        } else {
            None
        }
    }

    /// Everything of ours in the order of removal, and foreign objects that look like ours.
    fn items(&self, switch: &Switch, kernel: &mut Kernel) -> Result<(Vec<Item>, Vec<String>)> {
        let files = Files { cleanup: self };
        let mut foreign = Vec::new();
        // Without the configuration, the runtime does not start Pods on a network that is being removed.
        let mut items: Vec<Item> = files.of_the_runtime(&mut foreign)?.into_iter().map(Item::Path).collect();
        let leftovers = kernel.leftovers()?;
        let bridges = switch.items(&leftovers, &mut foreign)?;
        let taps = switch.taps(&bridges, kernel)?;
        items.extend(bridges.into_iter().map(Item::Switch));
        items.extend(taps.into_iter().map(Item::Kernel));
        items.extend(switch.promiscuous(kernel)?.into_iter().map(Item::Kernel));
        items.extend(leftovers.into_iter().map(Item::Kernel));
        items.extend(files.of_the_agent().into_iter().map(Item::Path));
        Ok((items, foreign))
    }

    fn describe(&self, item: &Item, switch: &Switch) -> String {
        match item {
            Item::Path(path) => path.display().to_string(),
            Item::Switch(item) => item.to_string(),
            Item::Kernel(veth @ Leftover::PodVeth(device)) => {
                let pod = switch.pod(device).map_or_else(|| "its Pod".to_owned(), |pod| format!("Pod {pod}"));
                format!("{veth}: {pod} has no network without it, restart the Pod if it still runs")
            }
            Item::Kernel(leftover) => leftover.to_string(),
        }
    }

    fn remove(&self, item: &Item, switch: &Switch, kernel: &mut Kernel) -> Result<()> {
        match item {
            Item::Path(path) => files::remove(path).context("cannot remove it"),
            Item::Switch(item) => switch.remove(item),
            Item::Kernel(leftover) => Ok(kernel.remove(leftover)?),
        }
    }
}

/// Like `Result::ok`, for objects that may not exist.
fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
