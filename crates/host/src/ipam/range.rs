//! Address ranges for Pods.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A range of addresses of a subnet, without the gateway's and other reserved ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    subnet: IpNet,
    first: u128,
    last: u128,
    reserved: Vec<IpAddr>,
}

/// A range without usable addresses, or outside of its subnet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("address range {subnet}: {problem}")]
pub struct InvalidRange {
    subnet: IpNet,
    problem: String,
}

impl Range {
    /// The host addresses of `subnet`, or those from `start` to `end`, without those in `reserved`, which usually include the
    /// gateway's.
    pub fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        reserved: Vec<IpAddr>,
    ) -> Result<Self, InvalidRange> {
        let subnet = subnet.trunc();
        let invalid = |problem: String| Err(InvalidRange { subnet, problem });
        if subnet.prefix_len() + 1 >= subnet.max_prefix_len() {
            return invalid("is too small: it needs an address for the gateway and one for a Pod".into());
        }
        // In IPv4 the last address is for broadcasts.
        let highest = number(subnet.broadcast()) - u128::from(subnet.addr().is_ipv4());
        if let Some(outside) = start.iter().chain(&end).find(|ip| !subnet.contains(*ip)) {
            return invalid(format!("{outside} is not in it"));
        }
        let first = start.map_or(number(subnet.network()) + 1, number).max(number(subnet.network()) + 1);
        let last = end.map_or(highest, number).min(highest);
        let range = Self { subnet, first, last, reserved };
        if first > last || range.size() == 0 {
            return invalid("has no address for a Pod".into());
        }
        Ok(range)
    }

    /// The subnet of the range.
    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    /// Number of addresses for Pods.
    pub fn size(&self) -> u128 {
        let inside = |ip: &&IpAddr| self.subnet.contains(*ip) && (self.first..=self.last).contains(&number(**ip));
        let mut reserved: Vec<_> = self.reserved.iter().filter(inside).collect();
        reserved.sort();
        reserved.dedup();
        self.last - self.first + 1 - u128::try_from(reserved.len()).unwrap_or_default()
    }

    /// Whether the range contains the address and it is not reserved.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.subnet.contains(&ip) && (self.first..=self.last).contains(&number(ip)) && !self.reserved.contains(&ip)
    }

    /// All addresses once, starting after `last` and wrapping around.
    pub(super) fn after(&self, last: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let last = last.filter(|ip| self.subnet.contains(ip)).map(number);
        let next =
            last.map(|last| last + 1).filter(|next| (self.first..=self.last).contains(next)).unwrap_or(self.first);
        let numbers = (next..=self.last).chain(self.first..next);
        numbers.map(|number| self.address(number)).filter(|ip| !self.reserved.contains(ip))
    }

    fn address(&self, number: u128) -> IpAddr {
        match (self.subnet, u32::try_from(number)) {
            (IpNet::V4(_), Ok(number)) => IpAddr::V4(number.into()),
            _ => IpAddr::V6(number.into()),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", self.subnet, self.address(self.first), self.address(self.last))
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(subnet: &str, start: Option<&str>, end: Option<&str>, reserved: &[&str]) -> Result<Range, InvalidRange> {
        let ip = |text: &str| text.parse().unwrap();
        Range::new(subnet.parse().unwrap(), start.map(ip), end.map(ip), reserved.iter().copied().map(ip).collect())
    }

    fn order(range: &Range, last: Option<&str>) -> Vec<String> {
        range.after(last.map(|last| last.parse().unwrap())).map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn network_broadcast_and_reserved_addresses_are_not_allocated() {
        let range = range("10.0.0.0/29", None, None, &["10.0.0.1", "10.0.0.2", "10.9.9.9"]).unwrap();
        assert_eq!(order(&range, None), ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(range.size(), 4);
        assert!(range.contains("10.0.0.3".parse().unwrap()));
        for outside in ["10.0.0.0", "10.0.0.1", "10.0.0.7", "10.0.1.3", "::a00:3"] {
            assert!(!range.contains(outside.parse().unwrap()), "{outside}");
        }
        assert_eq!(range.to_string(), "10.0.0.0/29 (10.0.0.1 to 10.0.0.6)");
    }

    #[test]
    fn the_search_starts_after_the_last_address_and_wraps_around() {
        let range = range("10.0.0.0/29", Some("10.0.0.2"), Some("10.0.0.4"), &[]).unwrap();
        assert_eq!(order(&range, Some("10.0.0.3")), ["10.0.0.4", "10.0.0.2", "10.0.0.3"]);
        // At the end, outside, or in another subnet: start with the first.
        for last in ["10.0.0.4", "10.0.0.6", "10.7.0.3", "fd00::3"] {
            assert_eq!(order(&range, Some(last)), ["10.0.0.2", "10.0.0.3", "10.0.0.4"], "{last}");
        }
    }

    #[test]
    fn a_large_subnet_is_searched_without_being_listed() {
        let range = range("fd00:10::/64", None, None, &["fd00:10::1"]).unwrap();
        assert_eq!(range.after(None).next().unwrap().to_string(), "fd00:10::2");
        assert_eq!(range.size(), u128::from(u64::MAX) - 1);
    }

    #[test]
    fn a_range_without_addresses_is_an_error() {
        let problem =
            |subnet, start, end, reserved: &[&str]| range(subnet, start, end, reserved).unwrap_err().to_string();
        let small = "is too small: it needs an address for the gateway and one for a Pod";
        assert_eq!(problem("10.0.0.0/31", None, None, &[]), format!("address range 10.0.0.0/31: {small}"));
        assert_eq!(problem("10.0.0.9/32", None, None, &[]), format!("address range 10.0.0.9/32: {small}"));
        assert_eq!(
            problem("10.0.0.0/30", None, None, &["10.0.0.1", "10.0.0.2", "10.0.0.2"]),
            "address range 10.0.0.0/30: has no address for a Pod"
        );
        assert_eq!(
            problem("10.0.0.0/24", Some("10.0.1.1"), None, &[]),
            "address range 10.0.0.0/24: 10.0.1.1 is not in it"
        );
        assert_eq!(
            problem("10.0.0.0/24", Some("10.0.0.9"), Some("10.0.0.5"), &[]),
            "address range 10.0.0.0/24: has no address for a Pod"
        );
    }
}
