//! A small scheduler: binds each Pod to the suitable Node with the fewest Pods.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use crate::client::Mirror;

/// Watches Nodes and Pods, and binds Pods without a Node.
pub(crate) async fn run(client: kube::Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    let mut node_events = watcher(nodes, watcher::Config::default()).default_backoff().boxed();
    let mut pod_events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let (mut nodes, mut pods) = (Mirror::<Node>::default(), Mirror::<Pod>::default());
    loop {
        tokio::select! {
            event = node_events.try_next() => nodes.apply(event),
            event = pod_events.try_next() => pods.apply(event),
        }
        if !nodes.synced || !pods.synced {
            continue;
        }
        let waiting: Vec<_> =
            pods.objects.iter().filter(|(_, pod)| is_waiting(pod)).map(|(key, _)| key.clone()).collect();
        for key in waiting {
            let Some(pod) = pods.objects.get(&key) else { continue };
            let choice = choose(pod, nodes.objects.values(), pods.objects.values());
            let namespaced: Api<Pod> = Api::namespaced(client.clone(), &key.0);
            match choice {
                Ok(node) => {
                    if let Err(error) = bind(&client, &key, &node).await {
                        tracing::warn!("cannot bind Pod {}/{} to {node}: {error}", key.0, key.1);
                    }
                    // The next decision counts it before the watch reports it.
                    if let Some(spec) = pods.objects.get_mut(&key).and_then(|pod| pod.spec.as_mut()) {
                        spec.node_name = Some(node);
                    }
                }
                Err(why) if !has_message(pod, &why) => {
                    let condition = json!({"status": {"conditions": [{
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                    }]}});
                    let patch = Patch::Strategic(&condition);
                    if let Err(error) = namespaced.patch_status(&key.1, &PatchParams::default(), &patch).await {
                        tracing::debug!("Pod {}/{}: {error}", key.0, key.1);
                    }
                }
                Err(_) => {}
            }
        }
    }
}

async fn bind(client: &kube::Client, (namespace, name): &(String, String), node: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    match pods.create_subresource::<_, serde_json::Value>("binding", name, &PostParams::default(), &binding).await {
        // Bound or deleted meanwhile.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && spec.scheduler_name.as_deref().unwrap_or("default-scheduler") == "default-scheduler"
}

/// Whether the Pod's status already has this message.
fn has_message(pod: &Pod, why: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == "PodScheduled" && condition.message.as_deref() == Some(why))
}

/// The Node for a Pod, or the reason why none is suitable.
fn choose<'a>(
    pod: &Pod,
    nodes: impl Iterator<Item = &'a Node>,
    pods: impl Iterator<Item = &'a Pod>,
) -> Result<String, String> {
    let mut load = BTreeMap::<&str, usize>::new();
    for other in pods.filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()) {
        *load.entry(other).or_default() += 1;
    }
    let mut reasons = BTreeMap::<String, usize>::new();
    let mut fitting = Vec::new();
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match rejection(pod, node) {
            None => fitting.push((load.get(name).copied().unwrap_or_default(), name)),
            Some(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    let total = fitting.len() + reasons.values().sum::<usize>();
    fitting.into_iter().min().map(|(_, name)| name.to_owned()).ok_or_else(|| {
        let list: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!("0/{total} nodes are available: {}.", list.join(", "))
    })
}

/// The reason why a Pod cannot run on a Node.
fn rejection(pod: &Pod, node: &Node) -> Option<String> {
    let ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !ready.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Some("node(s) were not ready".into());
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default() {
        return Some("node(s) were unschedulable".into());
    }
    let spec = pod.spec.as_ref()?;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    if spec.node_selector.iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        return Some("node(s) didn't match Pod's node selector".into());
    }
    let tolerated = |taint: &Taint| {
        spec.tolerations.iter().flatten().any(|toleration| {
            let same =
                |own: &Option<String>, other: &str| own.as_deref().is_none_or(|own| own.is_empty() || own == other);
            let value = toleration.operator.as_deref() == Some("Exists")
                || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
            same(&toleration.key, &taint.key) && same(&toleration.effect, &taint.effect) && value
        })
    };
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let untolerated = taints.filter(|taint| taint.effect != "PreferNoSchedule").find(|taint| !tolerated(taint));
    untolerated.map(|taint| format!("node(s) had untolerated taint {{{}}}", taint.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: serde_json::Value, spec: serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_pod_goes_to_the_suitable_node_with_the_fewest_pods() {
        let tainted = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let nodes = [
            node("a", json!({"disk": "fast"}), json!({})),
            node("b", json!({}), json!({})),
            node("c", json!({}), tainted),
        ];
        let there = [pod(json!({"containers": [], "nodeName": "a"}))];
        let choose = |spec| choose(&pod(spec), nodes.iter(), there.iter());
        assert_eq!(choose(json!({"containers": []})), Ok("b".into()));
        assert_eq!(choose(json!({"containers": [], "nodeSelector": {"disk": "fast"}})), Ok("a".into()));
        assert_eq!(choose(json!({"containers": [], "tolerations": [{"operator": "Exists"}]})), Ok("b".into()));
        let none = choose(json!({"containers": [], "nodeSelector": {"disk": "slow"}})).unwrap_err();
        assert_eq!(none, "0/3 nodes are available: 3 node(s) didn't match Pod's node selector.");
    }
}
