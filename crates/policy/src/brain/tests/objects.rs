//! Objects for the tests of the brain and of its stages, and changes as text.

use types::ObjectName;
use types::control::{Change, GroupChange, PodChange, PolicyChange, PolicyName};
use types::meta::LabelSelector;
use types::network_policy::{IngressRule, NetworkPolicy, PolicyPeer};
use types::pod::{Pod, PodIp};

pub(crate) fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectName { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The name of a Kubernetes policy.
pub(crate) fn policy_name(text: &str) -> PolicyName {
    PolicyName::kubernetes(name(text))
}

pub(crate) fn selecting(app: &str) -> LabelSelector {
    LabelSelector { match_labels: [("app".to_owned(), app.to_owned())].into(), ..LabelSelector::default() }
}

/// A Pod `x/web-1` with the label `app=web`; no address if it is empty.
pub(crate) fn pod(text: &str, node: &str, ip: &str) -> Pod {
    let mut pod = Pod::default();
    let ObjectName { namespace, name } = name(text);
    let app = name.split('-').next().unwrap().to_owned();
    (pod.metadata.namespace, pod.metadata.name) = (namespace, name);
    pod.metadata.labels = [("app".to_owned(), app)].into();
    pod.metadata.uid = "u1".to_owned();
    pod.spec.node_name = node.to_owned();
    pod.status.pod_ips = if ip.is_empty() { vec![] } else { vec![PodIp { ip: ip.to_owned() }] };
    pod
}

/// `web` may be reached by `client`.
pub(crate) fn policy(text: &str) -> NetworkPolicy {
    let mut policy = NetworkPolicy::default();
    let ObjectName { namespace, name } = name(text);
    (policy.metadata.namespace, policy.metadata.name) = (namespace, name);
    policy.spec.pod_selector = selecting("web");
    let from = vec![PolicyPeer { pod_selector: Some(selecting("client")), ..PolicyPeer::default() }];
    policy.spec.ingress = vec![IngressRule { from, ..Default::default() }];
    policy
}

/// A change as one line: what is set, patched or deleted.
pub(crate) fn show(change: &Change) -> String {
    let group = |kind: &str, change: &GroupChange| match change {
        GroupChange::Set(group) => {
            let members: Vec<&str> = group.members.iter().map(|m| m.pod.name.as_str()).collect();
            format!("{kind} = {}", members.join(" "))
        }
        GroupChange::Patch(patch) => {
            let added = patch.added.iter().map(|m| format!("+{}", m.pod.name));
            let removed = patch.removed.iter().map(|pod| format!("-{}", pod.name));
            format!("{kind} {}", added.chain(removed).collect::<Vec<_>>().join(" "))
        }
        GroupChange::Delete(_) => format!("{kind} gone"),
    };
    match change {
        Change::AppliedTo(change) => group("applied-to", change),
        Change::Address(change) => group("address", change),
        Change::Policy(PolicyChange::Set(policy)) => {
            format!("policy {} = {}", policy.name.object.name, policy.generation)
        }
        Change::Policy(PolicyChange::Delete(name)) => format!("policy {} gone", name.object.name),
        Change::Pod(PodChange::Seen(seen)) => format!("seen {} {}", seen.pod.name, seen.uid),
        Change::Pod(PodChange::Gone(name)) => format!("gone {}", name.name),
    }
}
