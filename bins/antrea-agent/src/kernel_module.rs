//! The kernel module openvswitch, which has the datapath `system`. A Node without it works with the userspace datapath.

use std::path::Path;
use std::process::Command;

use types::network::Datapath;

/// Exists while the module is loaded, or built into the kernel.
const LOADED: &str = "/sys/module/openvswitch";

/// The datapath of this Node, if the configuration does not choose one.
pub(crate) fn detect() -> Datapath {
    if Path::new(LOADED).exists() { Datapath::System } else { Datapath::Netdev }
}

/// Loads the module unless it is there already. Returns a line for the log: which datapath the agent will use, and why.
pub(crate) fn load(configured: Option<Datapath>) -> String {
    if configured == Some(Datapath::Netdev) {
        return "datapath: userspace, as configured (ovsDatapathType: netdev)".to_owned();
    }
    if detect() == Datapath::System {
        return "datapath: kernel, the module openvswitch is loaded".to_owned();
    }
    let problem = match Command::new("modprobe").arg("openvswitch").output() {
        Ok(output) if output.status.success() => {
            return "datapath: kernel, the module openvswitch was loaded".to_owned();
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("modprobe: {error}"),
    };
    match configured {
        Some(_) => {
            format!("datapath: none, ovsDatapathType is system and the module openvswitch cannot be loaded: {problem}")
        }
        None => format!("datapath: userspace, the module openvswitch cannot be loaded: {problem}"),
    }
}
