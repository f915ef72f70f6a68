//! Allocates ClusterIPs and node ports of Services.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use serde_json::Value;

mod carry;
mod service;
pub(crate) use carry::{carry_over, list_of_one};
use service::held;

#[derive(Default)]
struct Used {
    addresses: HashSet<IpAddr>,
    ports: HashSet<u16>,
    /// Where the next search begins in each range, so that released addresses are reused late.
    next: HashMap<IpNet, usize>,
}

/// Address and port ranges, with the allocated ones.
pub(crate) struct Allocator {
    ranges: Vec<IpNet>,
    ports: RangeInclusive<u16>,
    used: Mutex<Used>,
}

/// Allocations for a Service that is being written; released on drop unless they are kept.
#[derive(Default)]
pub(crate) struct Claim<'a> {
    from: Option<&'a Allocator>,
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
    /// Allocations that the Service no longer needs once it is stored.
    surplus: (Vec<IpAddr>, Vec<u16>),
}

impl Claim<'_> {
    pub(crate) fn keep(mut self) {
        if let Some(from) = self.from.take() {
            from.release(&self.surplus.0, &self.surplus.1);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(from) = self.from {
            from.release(&self.addresses, &self.ports);
        }
    }
}

fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

impl Allocator {
    pub(crate) fn new(ranges: Vec<IpNet>, ports: RangeInclusive<u16>) -> Self {
        Self { ranges, ports, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, addresses: &[IpAddr], ports: &[u16]) {
        let mut used = self.used();
        for address in addresses {
            used.addresses.remove(address);
        }
        for port in ports {
            used.ports.remove(port);
        }
    }

    /// Marks the addresses and ports of a stored Service, at start.
    pub(crate) fn mark(&self, service: &Value) {
        let (addresses, ports) = held(service);
        let mut used = self.used();
        used.addresses.extend(addresses);
        used.ports.extend(ports);
    }

    /// The ClusterIP of the API server itself.
    pub(crate) fn first(&self) -> Option<IpAddr> {
        self.ranges.first().map(|range| nth(range, 1))
    }

    fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| family(&range.addr())).collect()
    }

    fn address(&self, of: &str, wanted: Option<IpAddr>) -> Result<IpAddr, String> {
        let range = self.ranges.iter().find(|range| family(&range.addr()) == of).ok_or("no range for the family")?;
        let mut used = self.used();
        if let Some(wanted) = wanted {
            if !range.contains(&wanted) {
                return Err("the provided network does not match the current range".to_owned());
            }
            return if used.addresses.insert(wanted) {
                Ok(wanted)
            } else {
                Err("provided IP is already allocated".to_owned())
            };
        }
        let size = 1usize << (u32::from(range.max_prefix_len() - range.prefix_len())).min(16);
        // Neither the first address nor, for IPv4, the last; and the low ones, which users choose by hand, last.
        let usable = size.saturating_sub(2).max(1);
        let low = (size / 16).clamp(16, 256).min(usable) % usable;
        let next = used.next.get(range).copied().unwrap_or(low);
        let high = (0..usable - low).map(|step| low + (next - low + step) % (usable - low));
        for offset in high.chain(0..low) {
            let address = nth(range, 1 + offset);
            if used.addresses.insert(address) {
                if offset >= low {
                    used.next.insert(*range, low + (offset - low + 1) % (usable - low));
                }
                return Ok(address);
            }
        }
        Err("range is full".to_owned())
    }

    fn port(&self, wanted: u16, mine: &[u16]) -> Result<u16, String> {
        let mut used = self.used();
        if wanted != 0 {
            if !self.ports.contains(&wanted) {
                let (first, last) = (self.ports.start(), self.ports.end());
                return Err(format!(
                    "provided port is not in the valid range. The range of valid ports is {first}-{last}"
                ));
            }
            let free = mine.contains(&wanted) || used.ports.insert(wanted);
            return if free { Ok(wanted) } else { Err("provided port is already allocated".to_owned()) };
        }
        let count = usize::from(self.ports.end() - self.ports.start()) + 1;
        let start = usize::from(u16::from_be_bytes(crate::moment::random())) % count;
        let mut candidates = self.ports.clone().cycle_from(start);
        candidates.find(|port| used.ports.insert(*port)).ok_or_else(|| "range is full".to_owned())
    }
}

trait CycleFrom {
    fn cycle_from(self, start: usize) -> impl Iterator<Item = u16>;
}

impl CycleFrom for RangeInclusive<u16> {
    fn cycle_from(self, start: usize) -> impl Iterator<Item = u16> {
        self.clone().skip(start).chain(self.take(start))
    }
}

fn nth(range: &IpNet, offset: usize) -> IpAddr {
    match range {
        IpNet::V4(net) => {
            IpAddr::V4((u32::from(net.network()).wrapping_add(u32::try_from(offset).unwrap_or(1))).into())
        }
        IpNet::V6(net) => IpAddr::V6((u128::from(net.network()).wrapping_add(offset as u128)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator() -> Allocator {
        Allocator::new(vec!["10.96.0.0/29".parse().unwrap(), "fd00::/112".parse().unwrap()], 30000..=30002)
    }

    #[test]
    fn addresses_are_allocated_once_and_can_be_released() {
        let allocator = allocator();
        let all: Vec<_> = (0..6).map(|_| allocator.address("IPv4", None).unwrap()).collect();
        assert_eq!(allocator.address("IPv4", None), Err("range is full".to_owned()));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 6);
        allocator.release(&all[2..3], &[]);
        assert_eq!(allocator.address("IPv4", None), Ok(all[2]));
        assert!(
            allocator
                .address("IPv4", Some("10.97.0.1".parse().unwrap()))
                .unwrap_err()
                .contains("does not match the current range")
        );
    }

    #[test]
    fn ports_are_allocated_once() {
        let allocator = allocator();
        assert_eq!(allocator.port(30001, &[]), Ok(30001));
        assert_eq!(allocator.port(30001, &[]), Err("provided port is already allocated".to_owned()));
        assert!(allocator.port(80, &[]).unwrap_err().ends_with("30000-30002"));
        allocator.port(0, &[]).unwrap();
        allocator.port(0, &[]).unwrap();
        assert_eq!(allocator.port(0, &[]), Err("range is full".to_owned()));
    }
}
