//! Allocation of Pod subnets to Nodes that have none. Pure.
//!
//! Each cluster network is divided into subnets of one Node's size, and a Node gets one of each network. Assignments are stored in the
//! Nodes themselves, so they survive a restart. A subnet is free if it overlaps no assigned one and not the Service network.

mod reconciler;
mod waiting;

pub(crate) use reconciler::run;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::NodeIpam;

/// A cluster network, divided into subnets.
#[derive(Clone, Debug)]
struct Pool {
    network: IpNet,
    length: u8,
    /// Where the next search starts: subnets are reused as late as possible.
    next: u128,
}

/// The subnets of all Nodes, and the networks that new ones come from.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pools: Vec<Pool>,
    reserved: Vec<IpNet>,
    assigned: BTreeMap<String, Vec<IpNet>>,
}

/// A network has no free subnet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no free /{length} subnet in {network}; use larger networks in nodeIPAM.clusterCIDRs or a larger nodeIPAM.nodeCIDRMaskSize"
)]
pub(crate) struct Exhausted {
    network: IpNet,
    length: u8,
}

impl Pool {
    fn places(&self) -> u128 {
        let bits = u32::from(self.length.saturating_sub(self.network.prefix_len()));
        1u128.checked_shl(bits).unwrap_or(u128::MAX)
    }

    fn place(&self, number: u128) -> Option<IpNet> {
        let shift = u32::from(self.network.max_prefix_len() - self.length);
        let offset = number.checked_shl(shift).unwrap_or_default();
        match self.network.trunc() {
            IpNet::V4(net) => {
                let address = u32::try_from(u128::from(u32::from(net.addr())) + offset).ok()?;
                Some(Ipv4Net::new(Ipv4Addr::from(address), self.length).ok()?.into())
            }
            IpNet::V6(net) => {
                let address = u128::from(net.addr()).checked_add(offset)?;
                Some(Ipv6Net::new(Ipv6Addr::from(address), self.length).ok()?.into())
            }
        }
    }
}

impl Allocation {
    pub(crate) fn new(config: &NodeIpam) -> Self {
        let length = |network: &IpNet| match network {
            IpNet::V4(_) => config.mask_size_v4,
            IpNet::V6(_) => config.mask_size_v6,
        };
        let pools =
            config.cluster_cidrs.iter().map(|network| Pool { network: *network, length: length(network), next: 0 });
        Self {
            pools: pools.collect(),
            reserved: config.service_cidr.into_iter().chain(config.service_cidr_v6).collect(),
            assigned: BTreeMap::new(),
        }
    }

    /// Records the subnets that a Node has.
    pub(crate) fn record(&mut self, node: &str, subnets: Vec<IpNet>) {
        self.assigned.insert(node.to_owned(), subnets);
    }

    /// Frees the subnets of a deleted Node.
    pub(crate) fn release(&mut self, node: &str) {
        self.assigned.remove(node);
    }

    /// Subnets for a Node, one of each network, which are its from now on.
    pub(crate) fn assign(&mut self, node: &str) -> Result<Vec<IpNet>, Exhausted> {
        if let Some(assigned) = self.assigned.get(node).filter(|assigned| !assigned.is_empty()) {
            return Ok(assigned.clone());
        }
        let taken: Vec<IpNet> = self.assigned.values().flatten().chain(&self.reserved).copied().collect();
        let mut found = Vec::new();
        for pool in &mut self.pools {
            let (mut number, mut tried) = (pool.next, 0);
            let place = loop {
                if tried >= pool.places() {
                    return Err(Exhausted { network: pool.network, length: pool.length });
                }
                let place = pool.place(number % pool.places());
                if let Some(place) = place.filter(|place| !taken.iter().any(|other| overlaps(place, other))) {
                    break place;
                }
                (number, tried) = ((number + 1) % pool.places(), tried + 1);
            };
            pool.next = (number + 1) % pool.places();
            found.push(place);
        }
        self.assigned.insert(node.to_owned(), found.clone());
        Ok(found)
    }
}

fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn config(networks: &[&str], mask: u8, service: Option<&str>) -> NodeIpam {
        NodeIpam {
            enable_node_ipam: true,
            cluster_cidrs: networks.iter().map(|net| net.parse().unwrap()).collect(),
            service_cidr: service.map(|net| net.parse().unwrap()),
            service_cidr_v6: None,
            mask_size_v4: mask,
            mask_size_v6: 64,
        }
    }

    #[test]
    fn subnets_do_not_overlap_and_assignments_stay() {
        let mut allocation = Allocation::new(&config(&["10.0.0.0/22", "fd00::/62"], 24, Some("10.0.1.0/25")));
        // Assigned by another component.
        allocation.record("old", vec!["10.0.2.0/23".parse().unwrap()]);
        let first = allocation.assign("a").unwrap();
        assert_eq!(first, ["10.0.0.0/24", "fd00::/64"].map(|net| net.parse().unwrap()));
        assert_eq!(allocation.assign("a").unwrap(), first);
        // 10.0.1.0/24 overlaps the Service network, the rest belongs to `old`.
        let error = allocation.assign("b").unwrap_err().to_string();
        assert!(
            error.starts_with("no free /24 subnet in 10.0.0.0/22; use larger networks in nodeIPAM.clusterCIDRs"),
            "{error}"
        );
        allocation.release("old");
        assert_eq!(allocation.assign("b").unwrap()[0].to_string(), "10.0.2.0/24");
        assert_eq!(allocation.assign("c").unwrap()[0].to_string(), "10.0.3.0/24");
        assert!(allocation.assign("d").is_err());
        // A subnet is reused after all others.
        allocation.release("a");
        assert_eq!(allocation.assign("d").unwrap()[0].to_string(), "10.0.0.0/24");
    }

    #[test]
    fn assignments_are_restored_from_the_nodes_after_a_restart() {
        let config = config(&["10.0.0.0/20"], 24, None);
        let mut before = Allocation::new(&config);
        let assigned: Vec<Vec<IpNet>> = (0..16).map(|n| before.assign(&format!("n{n}")).unwrap()).collect();
        assert!(before.assign("n16").is_err());
        let mut after = Allocation::new(&config);
        for (n, subnets) in assigned.iter().enumerate().filter(|(n, _)| *n != 7) {
            after.record(&format!("n{n}"), subnets.clone());
        }
        assert_eq!(after.assign("new").unwrap(), assigned[7]);
    }
}
