//! Pod sandboxes of containerd, on Nodes with a real kubelet.

use anyhow::{Context, Result};
use serde_json::Value;
use testkit::process::run;

use super::{Found, node};
use crate::state::{Home, Lab};

/// Path of the network namespace of a Pod, inside its Node.
pub(super) fn netns(home: &Home, lab: &Lab, found: &Found) -> Result<String> {
    let ctr = |arguments: &[&str]| {
        let mut command = node(home, lab, &found.node)?;
        run(command.args(["ctr", "--namespace=k8s.io", "containers"]).args(arguments), None)
    };
    let filter = format!(
        r#"labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.namespace"=={},labels."io.kubernetes.pod.name"=={}"#,
        found.namespace, found.pod
    );
    let what = || format!("Pod {}/{} has no sandbox on {}", found.namespace, found.pod, found.node);
    let ids = ctr(&["list", "--quiet", &filter])?;
    let id = ids.lines().next().with_context(what)?;
    let info: Value = serde_json::from_str(&ctr(&["info", id])?).with_context(what)?;
    let namespaces = info["Spec"]["linux"]["namespaces"].as_array().into_iter().flatten();
    let network = namespaces.into_iter().find(|namespace| namespace["type"] == "network");
    let path = network.and_then(|namespace| namespace["path"].as_str());
    // A Pod on the host network has none of its own.
    Ok(path.unwrap_or("/proc/1/ns/net").to_owned())
}
