//! A Pod's network namespace, and its connection by CNI plugins.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1 as core;
use nix::mount::MsFlags;
use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::process::run;
use tokio::time::Instant;

use super::cni::{Attachment, Conflist, addresses};
use crate::mounts::bind;
use crate::node::daemon::Backoff;
use crate::node::network::{CONFIGURATIONS, PLUGINS};

/// The network of a Pod.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    /// `None` for a Pod with `hostNetwork`.
    connection: Option<Connection>,
    pub(crate) addresses: Vec<String>,
}

#[derive(Clone, Debug)]
struct Connection {
    conflist: Conflist,
    attachment: Attachment,
    result: Value,
}

impl Sandbox {
    /// The network of the Node, for `hostNetwork`.
    pub(crate) fn of_node(addresses: Vec<String>) -> Self {
        Self { connection: None, addresses }
    }

    /// Creates and connects a namespace. A failed attempt is undone in the background.
    pub(crate) async fn connect(pod: &core::Pod, checksums: bool) -> Result<Self> {
        let conflist = Conflist::find(Path::new(CONFIGURATIONS))?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let id = fresh_id();
        // A new path: an earlier attempt may not be undone yet.
        let netns = PathBuf::from(format!("/run/netns/cni-{id}"));
        let attachment = Attachment {
            id,
            netns,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            uid,
            ports: ports(pod),
        };
        make_namespace(&attachment.netns)?;
        let connected = async {
            let result = conflist.add(&attachment, Path::new(PLUGINS)).await?;
            if checksums {
                let netns = attachment.netns.clone();
                tokio::task::spawn_blocking(move || all_checksums(&netns)).await??;
            }
            Ok(result)
        };
        let connected: Result<Value> = connected.await;
        match connected {
            Ok(result) => {
                let addresses = addresses(&result);
                Ok(Self { connection: Some(Connection { conflist, attachment, result }), addresses })
            }
            Err(error) => {
                tokio::spawn(undo(conflist, attachment));
                Err(error)
            }
        }
    }

    /// Path of the network namespace.
    pub(crate) fn netns(&self) -> Option<&Path> {
        self.connection.as_ref().map(|connection| connection.attachment.netns.as_path())
    }

    /// Disconnects, and removes the namespace.
    pub(crate) async fn disconnect(&self) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        connection.conflist.del(&connection.attachment, Path::new(PLUGINS), Some(&connection.result)).await?;
        remove_namespace(&connection.attachment.netns)
    }
}

/// Undoes a failed ADD. DEL is retried until it succeeds, for example while the agent restarts: no other DEL will follow for
/// this container id.
async fn undo(conflist: Conflist, attachment: Attachment) {
    let mut backoff = Backoff::default();
    while let Err(error) = conflist.del(&attachment, Path::new(PLUGINS), None).await {
        tracing::warn!("Pod {}/{}, after a failed ADD: {error:#}", attachment.namespace, attachment.pod);
        tokio::time::sleep_until(Instant::now() + backoff.next()).await;
    }
    if let Err(error) = remove_namespace(&attachment.netns) {
        tracing::warn!("Pod {}/{}, after a failed ADD: {error:#}", attachment.namespace, attachment.pod);
    }
}

/// A container id as runtimes generate them: 64 hexadecimal digits.
fn fresh_id() -> String {
    let words = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let more = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    words.chars().chain(more.chars()).filter(char::is_ascii_hexdigit).collect()
}

fn make_namespace(path: &Path) -> Result<()> {
    let netns = Netns::new()?;
    File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    bind(&netns.path(), path, MsFlags::empty())
}

fn remove_namespace(path: &Path) -> Result<()> {
    if path.exists() {
        umount2(path, MntFlags::MNT_DETACH).with_context(|| format!("cannot unmount {}", path.display()))?;
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Disables offloads, so that the kernel computes all checksums.
fn all_checksums(netns: &Path) -> Result<()> {
    let offloads = ["tx", "sg", "tso", "gso", "gro", "rx"].into_iter().flat_map(|offload| [offload, "off"]);
    let mut inside = std::process::Command::new("nsenter");
    inside.arg(format!("--net={}", netns.display())).args(["ethtool", "-K", "eth0"]).args(offloads);
    run(&mut inside, None).map(drop)
}

fn ports(pod: &core::Pod) -> Vec<Value> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let mapped = ports.filter(|port| port.host_port.unwrap_or_default() != 0);
    mapped
        .map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
            let host = port.host_ip.clone().unwrap_or_default();
            json!({"hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol, "hostIP": host})
        })
        .collect()
}
