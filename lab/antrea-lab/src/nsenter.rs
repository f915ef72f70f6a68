//! Commands in the namespaces of another process.

use std::process::Command;

/// Absolute, because a Pod may have another PATH.
pub(crate) const NSENTER: &str = "/usr/bin/nsenter";
/// The namespaces of a Node or a container.
pub(crate) const SPACES: [&str; 5] = ["--mount", "--uts", "--ipc", "--net", "--pid"];

/// An `nsenter` command for the namespaces of a container; the caller adds the command to run.
pub(crate) fn container(pid: u32, directory: Option<&str>) -> Command {
    let mut command = Command::new(NSENTER);
    command.arg(format!("--target={pid}")).args(SPACES);
    if let Some(directory) = directory {
        command.arg(format!("--wdns={directory}"));
    }
    command.arg("--");
    command
}
