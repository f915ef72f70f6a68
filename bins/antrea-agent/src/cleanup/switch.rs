//! Our bridges. A running Open vSwitch of the Node removes them itself. Otherwise their devices are still there: ports of the
//! kernel datapath, or persistent taps of the userspace datapath.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use host::{Kernel, Leftover};
use node::database::TRANSPORT_BRIDGE;
use serde_json::{Value, json};
use types::network::Datapath;

use crate::config::Config;
use crate::kernel_module;

/// Seconds that ovs-vswitchd may take to remove a bridge.
const TIMEOUT: &str = "--timeout=30";
/// Prefixes of the devices that ovs-vswitchd creates for tunnels.
const TUNNEL_DEVICES: [&str; 4] = ["genev_sys_", "vxlan_sys_", "gre_sys", "stt_sys_"];

/// The device of the userspace datapath itself, which only one Open vSwitch of a Node can have.
const DATAPATH_DEVICE: &str = "ovs-netdev";

/// Something of ours in Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    Bridge(String),
    /// A port of a kernel datapath that no ovs-vswitchd serves.
    Port {
        datapath: String,
        port: String,
    },
    /// A kernel datapath that has no other ports.
    Datapath(String),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge(bridge) => write!(f, "bridge {bridge}"),
            Self::Port { datapath, port } => write!(f, "port {port} of datapath {datapath}"),
            Self::Datapath(datapath) => write!(f, "datapath {datapath}"),
        }
    }
}

/// Open vSwitch of this Node.
pub(super) struct Switch<'a> {
    config: &'a Config,
    /// How to reach ovsdb-server, if it runs.
    server: Option<String>,
    /// Pods by the name of their interface.
    pods: BTreeMap<String, String>,
    /// Ports of the transport bridge.
    uplinks: Vec<String>,
}

impl<'a> Switch<'a> {
    pub(super) fn find(config: &'a Config, state_dir: &Path) -> Self {
        let socket = config.ovs_run_dir.join("db.sock");
        let server = UnixStream::connect(&socket).is_ok().then(|| format!("unix:{}", socket.display()));
        // Only for messages and for the uplink, so a database that cannot be read is as good as none.
        let (program, database) = match &server {
            Some(server) => ("ovsdb-client", server.clone()),
            None => ("ovsdb-tool", state_dir.join("openvswitch/conf.db").display().to_string()),
        };
        let pods = pods(program, &database).unwrap_or_default();
        let uplinks = uplinks(program, &database).unwrap_or_default();
        Self { config, server, pods, uplinks }
    }

    /// The Pod with this interface, as `namespace/name`.
    pub(super) fn pod(&self, interface: &str) -> Option<&str> {
        self.pods.get(interface).map(String::as_str)
    }

    /// Everything of ours. A bridge with our name that is not ours is added to `foreign`.
    pub(super) fn items(&self, leftovers: &[Leftover], foreign: &mut Vec<String>) -> Result<Vec<Item>> {
        if self.server.is_some() {
            self.bridges(foreign)
        } else if kernel_module::detect() == Datapath::System {
            self.datapaths(leftovers)
        } else {
            Ok(Vec::new())
        }
    }

    /// Our taps, except those of bridges that Open vSwitch removes itself.
    pub(super) fn taps(&self, bridges: &[Item], kernel: &mut Kernel) -> Result<Vec<Leftover>> {
        let Config { ovs_bridge, host_gateway, .. } = self.config;
        let is_removed = |bridge: &str| bridges.contains(&Item::Bridge(bridge.to_owned()));
        let mut names = Vec::new();
        if !is_removed(ovs_bridge) {
            names.extend([ovs_bridge.as_str(), host_gateway]);
        }
        if !is_removed(TRANSPORT_BRIDGE) {
            names.push(TRANSPORT_BRIDGE);
        }
        let mut taps = kernel.taps(&names)?;
        // It may belong to another Open vSwitch, unless our bridge was its last one.
        if self.server.is_none() && !taps.is_empty() {
            taps.extend(kernel.taps(&[DATAPATH_DEVICE])?);
        }
        Ok(taps)
    }

    /// The promiscuous mode of ports of the transport bridge. ovs-vswitchd ends it, unless it was killed since it began.
    pub(super) fn promiscuous(&self, kernel: &mut Kernel) -> Result<Vec<Leftover>> {
        Ok(kernel.promiscuous(&self.uplinks)?)
    }

    pub(super) fn remove(&self, item: &Item) -> Result<()> {
        match item {
            Item::Bridge(bridge) => self.vsctl(&["--if-exists", "del-br", bridge]),
            Item::Port { datapath, port } => run("ovs-dpctl", &["del-if", datapath, port]),
            Item::Datapath(datapath) => run("ovs-dpctl", &["del-dp", datapath]),
        }
        .map(|_| ())
    }

    fn bridges(&self, foreign: &mut Vec<String>) -> Result<Vec<Item>> {
        let Config { ovs_bridge, host_gateway, .. } = self.config;
        let mut items = Vec::new();
        for bridge in self.vsctl(&["list-br"])?.lines() {
            let has_gateway = || {
                Ok::<_, anyhow::Error>(self.vsctl(&["list-ports", bridge])?.lines().any(|port| port == host_gateway))
            };
            if bridge == TRANSPORT_BRIDGE || (bridge == ovs_bridge && has_gateway()?) {
                items.push(Item::Bridge(bridge.to_owned()));
            } else if bridge == ovs_bridge {
                foreign.push(format!("bridge {bridge}: has no port {host_gateway}"));
            }
        }
        Ok(items)
    }

    /// Our ports of kernel datapaths, and datapaths with no other ports.
    fn datapaths(&self, leftovers: &[Leftover]) -> Result<Vec<Item>> {
        let is_veth = |port: &str| leftovers.iter().any(|it| matches!(it, Leftover::PodVeth(veth) if veth == port));
        let own = [self.config.ovs_bridge.as_str(), &self.config.host_gateway, TRANSPORT_BRIDGE];
        let mut items = Vec::new();
        for datapath in run("ovs-dpctl", &["dump-dps"])?.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let ports = ports(&run("ovs-dpctl", &["show", datapath])?);
            let has_own = ports.iter().any(|port| own.contains(&port.as_str()));
            // Tunnel devices have no mark, so they count as ours only beside our bridge.
            let is_tunnel = |port: &str| has_own && TUNNEL_DEVICES.iter().any(|prefix| port.starts_with(prefix));
            let (ours, others): (Vec<String>, Vec<String>) =
                ports.into_iter().partition(|port| own.contains(&port.as_str()) || is_tunnel(port) || is_veth(port));
            let is_ours = !ours.is_empty() && others.is_empty();
            items.extend(ours.into_iter().map(|port| Item::Port { datapath: datapath.to_owned(), port }));
            items.extend(is_ours.then(|| Item::Datapath(datapath.to_owned())));
        }
        Ok(items)
    }

    fn vsctl(&self, arguments: &[&str]) -> Result<String> {
        let server = format!("--db={}", self.server.as_deref().unwrap_or_default());
        run("ovs-vsctl", &[&[server.as_str(), TIMEOUT], arguments].concat())
    }
}

/// The ports in the output of `ovs-dpctl show`, except port 0, which ends with its datapath.
fn ports(shown: &str) -> Vec<String> {
    let port = |line: &str| {
        let (number, name) = line.trim().strip_prefix("port ")?.split_once(": ")?;
        let name = name.split(' ').next()?;
        (number != "0").then(|| name.to_owned())
    };
    shown.lines().filter_map(port).collect()
}

/// Rows of a table, from the database of a server (`ovsdb-client`) or of a file (`ovsdb-tool`).
fn rows(program: &str, database: &str, table: &str, condition: Value, columns: [&str; 2]) -> Result<Vec<Value>> {
    let select = json!({"op": "select", "table": table, "where": condition, "columns": columns});
    let answer = run(program, &["query", database, &json!(["Open_vSwitch", select]).to_string()])?;
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(answer[0]["rows"].as_array().cloned().unwrap_or_default())
}

/// Pods as `namespace/name`, by the name of their interface.
fn pods(program: &str, database: &str) -> Result<BTreeMap<String, String>> {
    let rows = rows(program, database, "Interface", json!([]), ["name", "external_ids"])?;
    let pod = |row: &Value| {
        let ids = row["external_ids"][1].as_array()?;
        let id = |name: &str| ids.iter().find(|pair| pair[0] == name)?[1].as_str();
        Some((row["name"].as_str()?.to_owned(), format!("{}/{}", id("pod-namespace")?, id("pod-name")?)))
    };
    Ok(rows.iter().filter_map(pod).collect())
}

/// Devices that are ports of the transport bridge.
fn uplinks(program: &str, database: &str) -> Result<Vec<String>> {
    let ours = json!([["name", "==", TRANSPORT_BRIDGE]]);
    let bridges = rows(program, database, "Bridge", ours, ["name", "ports"])?;
    let ports = rows(program, database, "Port", json!([]), ["_uuid", "name"])?;
    // A set of one is written as its element.
    let in_bridge = |port: &Value| {
        let mut sets = bridges.iter().map(|bridge| &bridge["ports"]);
        sets.any(|set| *set == port["_uuid"] || set[1].as_array().is_some_and(|all| all.contains(&port["_uuid"])))
    };
    let names = ports.iter().filter(|port| in_bridge(port)).filter_map(|port| port["name"].as_str());
    Ok(names.filter(|name| *name != TRANSPORT_BRIDGE).map(str::to_owned).collect())
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {program}; install the package openvswitch-switch"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_kernel_datapath_are_read() {
        let shown = "system@ovs-system:\n  lookups: hit:9 missed:3 lost:0\n  flows: 2\n  masks: hit:1 total:1 hit/pkt:1.00\n  \
                     port 0: ovs-system (internal)\n  port 1: br-int (internal)\n  port 2: antrea-gw0 (internal)\n  \
                     port 3: genev_sys_6081 (geneve: packet_type=ptap)\n  port 4: web-0-1a2b3c\n";
        assert_eq!(ports(shown), ["br-int", "antrea-gw0", "genev_sys_6081", "web-0-1a2b3c"]);
    }
}
