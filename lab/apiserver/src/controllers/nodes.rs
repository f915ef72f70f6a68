//! Nodes: their Pod CIDRs, their initial taint, and the Pods of deleted Nodes.

use std::collections::{BTreeMap, HashSet};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::Value;

use super::Settings;
use crate::core::{Core, DeleteOptions, ListOptions, NOT_READY, Write};
use crate::failure::Failure;
use crate::value::{items, set, text};

/// Prefix lengths of a Node's ranges, by family.
const MASKS: (u8, u8) = (24, 64);

/// The ranges for Pod CIDRs, and the allocated ones.
#[derive(Default)]
pub(super) struct Ranges {
    /// Each with the index where the next search begins, so that released ranges are reused late.
    all: Vec<(IpNet, usize)>,
    used: HashSet<IpNet>,
    by_node: BTreeMap<String, Vec<IpNet>>,
}

impl Ranges {
    pub(super) fn new(all: Vec<IpNet>) -> Self {
        Self { all: all.into_iter().map(|range| (range, 0)).collect(), ..Self::default() }
    }

    pub(super) fn note(&mut self, group_resource: &str, name: &str, node: &Value, gone: bool) {
        if group_resource != "/nodes" || self.all.is_empty() {
            return;
        }
        for range in self.by_node.remove(name).unwrap_or_default() {
            self.used.remove(&range);
        }
        let own: Vec<IpNet> =
            items(node, "spec.podCIDRs").iter().filter_map(|range| range.as_str()?.parse().ok()).collect();
        if !gone && !own.is_empty() {
            self.used.extend(own.iter().copied());
            self.by_node.insert(name.to_owned(), own);
        }
    }

    /// A free range of each family; `None` if a family has none left.
    fn next(&mut self) -> Option<Vec<IpNet>> {
        let used = &self.used;
        let free = self.all.iter_mut().map(|(range, place)| {
            let (index, net) = (0..count(range)).find_map(|step| {
                let index = (*place + step) % count(range);
                nth(range, index).filter(|net| !used.contains(net)).map(|net| (index, net))
            })?;
            *place = index + 1;
            Some(net)
        });
        let free: Vec<_> = free.collect::<Option<_>>()?;
        self.used.extend(free.iter().copied());
        Some(free)
    }
}

fn mask(range: &IpNet) -> u8 {
    let usual = if range.addr().is_ipv4() { MASKS.0 } else { MASKS.1 };
    usual.max(range.prefix_len())
}

fn count(range: &IpNet) -> usize {
    1 << (mask(range) - range.prefix_len()).min(16)
}

fn nth(range: &IpNet, index: usize) -> Option<IpNet> {
    let mask = mask(range);
    match range {
        IpNet::V4(net) => {
            let offset = u32::try_from(index).ok()?.checked_shl(u32::from(32 - mask)).unwrap_or(0);
            let first = u32::from(net.network()).checked_add(offset)?;
            Ipv4Net::new(first.into(), mask).ok().map(IpNet::V4)
        }
        IpNet::V6(net) => {
            let offset = (index as u128).checked_shl(u32::from(128 - mask)).unwrap_or(0);
            let first = u128::from(net.network()).checked_add(offset)?;
            Ipv6Net::new(first.into(), mask).ok().map(IpNet::V6)
        }
    }
}

pub(super) fn reconcile(core: &Core, name: &str, settings: &Settings, ranges: &mut Ranges) -> Result<(), Failure> {
    let Some(node) = core.find("", "nodes", "", name) else { return delete_pods(core, name) };
    if settings.ready_nodes {
        ready(core, &node)?;
    }
    if !settings.pod_cidrs.is_empty() && items(&node, "spec.podCIDRs").is_empty() {
        number(core, name, ranges)?;
    }
    Ok(())
}

/// Assigns Pod CIDRs to a Node.
fn number(core: &Core, name: &str, ranges: &mut Ranges) -> Result<(), Failure> {
    let Some(own) = ranges.next() else {
        tracing::warn!(node = name, "no Pod CIDR left for the Node: configure a larger range");
        return Ok(());
    };
    let texts: Vec<_> = own.iter().map(IpNet::to_string).collect();
    let given = change(core, name, |node| {
        set(node, "spec.podCIDR", texts.first().cloned().unwrap_or_default());
        set(node, "spec.podCIDRs", texts.clone());
    });
    // Ranges are released if the write failed; otherwise they are noted with the Node.
    for range in own.iter().filter(|_| given.is_err()) {
        ranges.used.remove(range);
    }
    given
}

/// Removes the initial taint of a Node that reports ready.
fn ready(core: &Core, node: &Value) -> Result<(), Failure> {
    let tainted = |taint: &Value| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule";
    let ready = items(node, "status.conditions")
        .iter()
        .any(|found| text(found, "type") == "Ready" && text(found, "status") == "True");
    if !ready || !items(node, "spec.taints").iter().any(tainted) {
        return Ok(());
    }
    change(core, text(node, "metadata.name"), |node| {
        let left: Vec<_> = items(node, "spec.taints").iter().filter(|taint| !tainted(taint)).cloned().collect();
        set(node, "spec.taints", left);
    })
}

fn change(core: &Core, name: &str, change: impl Fn(&mut Value)) -> Result<(), Failure> {
    let resource = core.builtin("", "nodes")?;
    let write = Write::by("kube-controller-manager");
    let written = core.modify(&resource, "", name, &write, true, |old| {
        let mut new = old.clone();
        change(&mut new);
        Ok(new)
    });
    written.map(drop)
}

/// Deletes the Pods of a deleted Node without grace: no kubelet would finish it.
fn delete_pods(core: &Core, name: &str) -> Result<(), Failure> {
    let pods = core.builtin("", "pods")?;
    for pod in core.list(&pods, "", &ListOptions::of_node(name)?)?.objects {
        let pod = pod.value();
        let options = DeleteOptions {
            grace_seconds: Some(0),
            uid: Some(text(&pod, "metadata.uid").to_owned()),
            ..DeleteOptions::default()
        };
        match core.delete(&pods, text(&pod, "metadata.namespace"), text(&pod, "metadata.name"), &options) {
            // Already deleted, or changed meanwhile.
            Err(failure) if failure.code == 404 || failure.code == 409 => {}
            result => drop(result?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_are_allocated_once_and_released_with_the_node() {
        let mut ranges = Ranges::new(vec!["10.0.0.0/22".parse().unwrap(), "fd00::/48".parse().unwrap()]);
        let node = |own: &[IpNet]| json!({"spec": {"podCIDRs": own.iter().map(IpNet::to_string).collect::<Vec<_>>()}});
        let taken: Vec<_> = (0..4)
            .map(|index| {
                let own = ranges.next().unwrap();
                ranges.note("/nodes", &format!("n{index}"), &node(&own), false);
                own
            })
            .collect();
        assert_eq!(taken[3], ["10.0.3.0/24".parse().unwrap(), "fd00:0:0:3::/64".parse::<IpNet>().unwrap()]);
        assert_eq!(ranges.next(), None);
        ranges.note("/nodes", "n1", &node(&taken[1]), true);
        assert_eq!(ranges.next().unwrap()[0], taken[1][0]);
    }
}
