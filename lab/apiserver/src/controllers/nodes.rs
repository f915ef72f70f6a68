//! Nodes: their Pod CIDRs, their initial taint, and the Pods of deleted Nodes.

use std::collections::{BTreeMap, HashSet};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use super::Settings;
use super::notice::Notice;
use crate::core::{Core, DeleteOptions, ListOptions, NOT_READY, Write};
use crate::failure::Failure;
use crate::objects::{Condition, Node, Object, Taint, read};
use crate::value::set;

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

    pub(super) fn note(&mut self, notice: &Notice) {
        if notice.group_resource == "/nodes" && !self.all.is_empty() {
            let node = (!notice.deleted).then(|| notice.read());
            self.note_node(notice.key, &node.unwrap_or_default());
        }
    }

    /// Notes the ranges of a Node, which has none if it was deleted.
    fn note_node(&mut self, name: &str, node: &Node) {
        for range in self.by_node.remove(name).unwrap_or_default() {
            self.used.remove(&range);
        }
        let own: Vec<IpNet> = node.spec.pod_cidrs.iter().filter_map(|range| range.parse().ok()).collect();
        if !own.is_empty() {
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
    let Some(node) = core.read::<Node>("", name) else { return delete_pods(core, name) };
    if settings.ready_nodes {
        ready(core, &node)?;
    }
    if !settings.pod_cidrs.is_empty() && node.spec.pod_cidrs.is_empty() {
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
fn ready(core: &Core, node: &Node) -> Result<(), Failure> {
    let is_initial = |taint: &Taint| taint.key == NOT_READY && taint.effect == "NoSchedule";
    if !Condition::is_true(&node.status.conditions, "Ready") || !node.spec.taints.iter().any(is_initial) {
        return Ok(());
    }
    change(core, &node.metadata.name, |value| {
        let node: Node = read(value);
        let left: Vec<_> = node.spec.taints.into_iter().filter(|taint| !is_initial(taint)).collect();
        set(value, "spec.taints", json!(left));
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
        let Object { metadata } = pod.read().unwrap_or_default();
        let options = DeleteOptions { grace_seconds: Some(0), uid: Some(metadata.uid), ..DeleteOptions::default() };
        match core.delete(&pods, &metadata.namespace, &metadata.name, &options) {
            // Already deleted, or changed meanwhile.
            Err(failure) if failure.code == 404 || failure.code == 409 => {}
            result => drop(result?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::NodeSpec;

    #[test]
    fn ranges_are_allocated_once_and_released_with_the_node() {
        let mut ranges = Ranges::new(vec!["10.0.0.0/22".parse().unwrap(), "fd00::/48".parse().unwrap()]);
        let node = |own: &[IpNet]| Node {
            spec: NodeSpec { pod_cidrs: own.iter().map(IpNet::to_string).collect(), ..NodeSpec::default() },
            ..Node::default()
        };
        let taken: Vec<_> = (0..4)
            .map(|index| {
                let own = ranges.next().unwrap();
                ranges.note_node(&format!("n{index}"), &node(&own));
                own
            })
            .collect();
        assert_eq!(taken[3], ["10.0.3.0/24".parse().unwrap(), "fd00:0:0:3::/64".parse::<IpNet>().unwrap()]);
        assert_eq!(ranges.next(), None);
        ranges.note_node("n1", &Node::default());
        assert_eq!(ranges.next().unwrap()[0], taken[1][0]);
    }
}
