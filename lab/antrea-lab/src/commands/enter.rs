//! Commands that run in the namespaces of Nodes and Pods.

mod sandbox;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::container::Spec;
use crate::nsenter::{NSENTER, SPACES};
use crate::plan::Kubelet;
use crate::state::{Home, Lab};

/// Namespace, name and Node of a Pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Found {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) node: String,
}

/// An `nsenter` command for a Node; the caller adds the command to run.
pub(crate) fn node(home: &Home, lab: &Lab, name: &str) -> Result<Command> {
    let mut command = Command::new(NSENTER);
    if let Some((_, path)) = lab.namespaces.iter().find(|(other, _)| other == name) {
        command.arg(format!("--net={}", path.display())).arg("--");
        return Ok(command);
    }
    if lab.plan.node(name).is_none() {
        let all = lab.plan.nodes.iter().map(|node| &node.name).chain(lab.namespaces.iter().map(|(name, _)| name));
        bail!("there is no Node {name}: there are {}", all.cloned().collect::<Vec<_>>().join(", "));
    }
    let pid = home.node_pid(name).with_context(|| format!("{name} is not up"))?;
    command.arg(format!("--target={pid}")).args(SPACES).arg("--");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    Ok(command)
}

/// An `nsenter` command for a container, with its environment; the caller adds the command to run.
pub(crate) fn pod(home: &Home, lab: &Lab, found: &Found, container: Option<&str>) -> Result<Command> {
    let directory = container_directory(home, found, container)?;
    let what = || format!("Pod {}/{} does not run", found.namespace, found.pod);
    let pid = fs::read_to_string(directory.join("pid")).with_context(what)?;
    let spec: Spec = serde_json::from_slice(&fs::read(directory.join("spec.json")).with_context(what)?)?;
    let mut command = node(home, lab, &found.node)?;
    command.arg(NSENTER).arg(format!("--target={}", pid.trim())).args(SPACES).arg("--");
    command.env_clear().envs(spec.env);
    if let Ok(terminal) = std::env::var("TERM") {
        command.env("TERM", terminal);
    }
    Ok(command)
}

/// An `nsenter` command for the network of a Pod, with the files of the Node; the caller adds the command to run.
pub(crate) fn pod_network(home: &Home, lab: &Lab, found: &Found) -> Result<Command> {
    if lab.plan.kubelet == Kubelet::Real {
        let netns = sandbox::netns(home, lab, found)?;
        let mut command = node(home, lab, &found.node)?;
        command.arg(NSENTER).arg(format!("--net={netns}")).arg("--");
        return Ok(command);
    }
    let directory = container_directory(home, found, None)?;
    let pid = fs::read_to_string(directory.join("pid"))
        .with_context(|| format!("Pod {}/{} does not run", found.namespace, found.pod))?;
    let mut command = node(home, lab, &found.node)?;
    command.arg(NSENTER).arg(format!("--target={}", pid.trim())).args(["--net", "--"]);
    Ok(command)
}

/// The directory of a container, by default of the first running one.
pub(crate) fn container_directory(home: &Home, found: &Found, container: Option<&str>) -> Result<PathBuf> {
    let pod = home.pod(&found.node, &found.namespace, &found.pod);
    let mut names = names(&pod);
    names.sort_by_key(|name| (!pod.join(name).join("pid").exists(), name.clone()));
    let chosen = match container {
        Some(name) => names.iter().find(|other| *other == name),
        None => names.first(),
    };
    match chosen {
        Some(name) => Ok(pod.join(name)),
        None => bail!(
            "Pod {}/{} has no container {}: it has had {}",
            found.namespace,
            found.pod,
            container.unwrap_or("yet"),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ),
    }
}

/// All Pods that were started and not yet deleted.
pub(crate) fn all(home: &Home, lab: &Lab) -> Vec<Found> {
    let mut found = Vec::new();
    for node in &lab.plan.nodes {
        let pods = home.node(&node.name).join("pods");
        for namespace in names(&pods) {
            for pod in names(&pods.join(&namespace)) {
                found.push(Found { namespace: namespace.clone(), pod, node: node.name.clone() });
            }
        }
    }
    found.sort();
    found
}

/// A Pod by its name, with or without the namespace; `web` means one of `web-...` if there is no `web`.
pub(crate) fn find(home: &Home, lab: &Lab, wanted: &str, namespace: Option<&str>) -> Result<Found> {
    if lab.plan.kubelet == Kubelet::Real {
        bail!(
            "the Pods of this lab belong to a real kubelet: use `antrea-lab kubectl logs` or `antrea-lab kubectl exec`"
        );
    }
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, wanted),
    };
    let mut candidates = all(home, lab);
    candidates.retain(|found| namespace.is_none_or(|namespace| found.namespace == namespace));
    let exact: Vec<_> = candidates.iter().filter(|found| found.pod == name).collect();
    let prefix = format!("{name}-");
    let close: Vec<_> = candidates.iter().filter(|found| found.pod.starts_with(&prefix)).collect();
    let hits = if exact.is_empty() { close } else { exact };
    let Some(first) = hits.first() else {
        let names: Vec<_> = candidates.iter().map(|found| format!("{}/{}", found.namespace, found.pod)).collect();
        bail!(
            "there is no Pod {wanted}: there are {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
    };
    if hits.iter().any(|hit| hit.namespace != first.namespace) {
        bail!("there are Pods {name} in several namespaces: say {}/{name}", first.namespace);
    }
    Ok((*first).clone())
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}
