//! Conversion of `ipBlock` with `except` to plain CIDRs.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::model::IpBlock;

/// The union of the blocks, as ranges that do not contain each other.
///
/// Adjacent ranges are not merged: adding or removing an address changes no other flows, rules with common addresses share
/// flows, and no new prefix lengths (which cost the switch lookups) appear.
pub(crate) fn union<'a>(blocks: impl IntoIterator<Item = &'a IpBlock>) -> Vec<IpNet> {
    let parts: BTreeSet<IpNet> =
        blocks.into_iter().flat_map(|block| subtract(block.cidr.trunc(), &block.except)).collect();
    let mut apart: Vec<IpNet> = Vec::new();
    // In this order, a range is followed by all ranges that it contains.
    for part in parts {
        if !apart.last().is_some_and(|last| last.contains(&part)) {
            apart.push(part);
        }
    }
    apart
}

/// A range without its holes: split in half until each part is a hole or has none.
fn subtract(range: IpNet, holes: &[IpNet]) -> Vec<IpNet> {
    if holes.iter().any(|hole| hole.contains(&range)) {
        return Vec::new();
    }
    if !holes.iter().any(|hole| range.contains(hole)) {
        return vec![range];
    }
    match range.subnets(range.prefix_len() + 1) {
        Ok(halves) => halves.flat_map(|half| subtract(half, holes)).collect(),
        // A single address has no halves, and no holes smaller than itself.
        Err(_) => vec![range],
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn block(cidr: &str, except: &[&str]) -> IpBlock {
        IpBlock { cidr: cidr.parse().unwrap(), except: nets(except) }
    }

    #[test]
    fn exceptions_are_subtracted() {
        assert_eq!(union([&block("10.0.0.0/30", &["10.0.0.1/32"])]), nets(&["10.0.0.0/32", "10.0.0.2/31"]));
        assert_eq!(union([&block("10.0.0.0/8", &["10.0.0.0/8"])]), nets(&[]));
        assert_eq!(union([&block("fd00::/126", &["fd00::2/127"])]), nets(&["fd00::/127"]));
    }

    #[test]
    fn an_exception_of_one_block_may_be_covered_by_another() {
        let blocks = [block("10.0.0.0/31", &["10.0.0.1/32"]), block("10.0.0.1/32", &[])];
        assert_eq!(union(&blocks), nets(&["10.0.0.0/32", "10.0.0.1/32"]));
    }

    #[test]
    fn nested_ranges_are_removed_and_adjacent_ones_are_not_merged() {
        let blocks = ["10.0.0.7/32", "10.0.0.0/30", "10.0.0.2/32", "10.0.0.6/32", "10.0.0.0/31"].map(|b| block(b, &[]));
        assert_eq!(union(&blocks), nets(&["10.0.0.0/30", "10.0.0.6/32", "10.0.0.7/32"]));
    }

    proptest! {
        #[test]
        fn an_address_is_covered_if_it_is_in_a_block_and_in_none_of_its_exceptions(
            blocks in prop::collection::vec((any::<u8>(), 24u8..=32, prop::collection::vec((any::<u8>(), 24u8..=32), 0..4)), 0..4),
        ) {
            let net = |last: u8, len: u8| IpNet::new([10, 0, 0, last].into(), len).unwrap().trunc();
            let blocks: Vec<IpBlock> = blocks
                .into_iter()
                .map(|(last, len, holes)| IpBlock {
                    cidr: net(last, len),
                    except: holes.into_iter().map(|(last, len)| net(last, len)).collect(),
                })
                .collect();
            let parts = union(&blocks);
            for last in 0..=255u8 {
                let address = IpAddr::from([10, 0, 0, last]);
                let wanted = blocks
                    .iter()
                    .any(|b| b.cidr.contains(&address) && !b.except.iter().any(|hole| hole.contains(&address)));
                prop_assert_eq!(parts.iter().filter(|part| part.contains(&address)).count(), usize::from(wanted));
            }
        }
    }
}
