//! Routes and neighbours of ovs-vswitchd itself, which the userspace datapath uses for tunnel packets. A restart loses them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::Mac;

use super::{Control, PIPELINED, UnixctlError, unreadable};

const SHOW_ROUTES: &str = "ovs/route/show";
const ADD_ROUTE: &str = "ovs/route/add";
const SHOW_NEIGHBOURS: &str = "tnl/neigh/show";

/// A route to a single address that was added by a command, not copied from the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelRoute {
    /// The address that it leads to.
    pub to: IpAddr,
    /// The device or bridge that packets leave by.
    pub device: String,
    /// The router, unless the destination is on the link.
    pub router: Option<IpAddr>,
    /// The source address that ovs-vswitchd has chosen.
    pub source: Option<IpAddr>,
}

impl TunnelRoute {
    /// Reads a line of `ovs/route/show`. `None` for routes of the kernel, to networks, and for marked packets.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("User: ")?.split_whitespace();
        let (to, length) = words.next()?.split_once('/')?;
        let to: IpAddr = to.parse().ok()?;
        let is_single = length.parse() == Ok(if to.is_ipv4() { 32_u8 } else { 128 });
        let mut route = Self { to, device: String::new(), router: None, source: None };
        while let Some(key) = words.next() {
            match key {
                "dev" => route.device = words.next()?.to_owned(),
                "GW" => route.router = Some(words.next()?.parse().ok()?),
                "SRC" => route.source = Some(words.next()?.parse().ok()?),
                _ => return None,
            }
        }
        is_single.then_some(route)
    }
}

impl Control {
    /// The routes to single addresses that were added by commands.
    pub async fn tunnel_routes(&self) -> Result<Vec<TunnelRoute>, UnixctlError> {
        Ok(self.call(SHOW_ROUTES, &[]).await?.lines().filter_map(TunnelRoute::parse).collect())
    }

    /// Adds or replaces routes to single addresses by a device, each with its router; an outcome for each.
    pub async fn put_tunnel_routes(
        &self,
        device: &str,
        routes: &[(IpAddr, Option<IpAddr>)],
    ) -> Result<Vec<Result<(), UnixctlError>>, UnixctlError> {
        let route = |(to, router): &(IpAddr, Option<IpAddr>)| route_arguments(device, *to, *router);
        self.each(ADD_ROUTE, routes.iter().map(route).collect()).await
    }

    /// Removes a route to a single address, and sets another one by the same device again, if there is one.
    ///
    /// With a route, ovs-vswitchd 3.1 forgets the addresses of its device, although other routes lead by it, and with them which
    /// packets to decapsulate; a route that is set makes it read them. Both happen before it handles another packet.
    pub async fn remove_tunnel_route(
        &self,
        device: &str,
        to: IpAddr,
        kept: Option<(IpAddr, Option<IpAddr>)>,
    ) -> Result<(), UnixctlError> {
        let remove = [single(to)];
        let keep = kept.map(|(kept, router)| route_arguments(device, kept, router));
        let calls = [("ovs/route/del", remove.as_slice())].into_iter();
        let calls: Vec<_> = calls.chain(keep.iter().map(|keep| (ADD_ROUTE, keep.as_slice()))).collect();
        self.sequence(&calls).await?.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// The known neighbours on the link of a bridge.
    pub async fn tunnel_neighbours(&self, bridge: &str) -> Result<BTreeMap<IpAddr, Mac>, UnixctlError> {
        let text = self.call(SHOW_NEIGHBOURS, &[]).await?;
        // The first two lines are a heading.
        let lines = text.lines().skip(2).filter(|line| !line.is_empty());
        let read = |line: &str| neighbour(line, bridge).ok_or_else(|| unreadable(SHOW_NEIGHBOURS, line));
        Ok(lines.map(read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Sets the MACs of neighbours on the link of a bridge; they expire after a quarter of an hour without packets. An outcome
    /// for each.
    pub async fn set_tunnel_neighbours(
        &self,
        bridge: &str,
        neighbours: &BTreeMap<IpAddr, Mac>,
    ) -> Result<Vec<Result<(), UnixctlError>>, UnixctlError> {
        let set = |(ip, mac): (&IpAddr, &Mac)| vec![bridge.to_owned(), ip.to_string(), mac.to_string()];
        self.each("tnl/neigh/set", neighbours.iter().map(set).collect()).await
    }

    async fn each(
        &self,
        command: &str,
        calls: Vec<Vec<String>>,
    ) -> Result<Vec<Result<(), UnixctlError>>, UnixctlError> {
        let mut outcomes = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(PIPELINED) {
            outcomes.extend(self.calls(command, chunk).await?.into_iter().map(|outcome| outcome.map(drop)));
        }
        Ok(outcomes)
    }
}

fn route_arguments(device: &str, to: IpAddr, router: Option<IpAddr>) -> Vec<String> {
    [single(to), device.to_owned()].into_iter().chain(router.map(|router| router.to_string())).collect()
}

fn single(to: IpAddr) -> String {
    format!("{to}/{}", if to.is_ipv4() { 32 } else { 128 })
}

/// Reads a line of `tnl/neigh/show`: `Some(None)` if it is about another bridge.
fn neighbour(line: &str, bridge: &str) -> Option<Option<(IpAddr, Mac)>> {
    let mut words = line.split_whitespace();
    let (ip, mac, name) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    Some((name == bridge).then_some((ip, mac)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_routes_of_commands_to_single_addresses_are_read() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let read = TunnelRoute::parse("User: 192.168.2.3/32 dev eth0 GW 192.168.1.1 SRC 192.168.1.2").unwrap();
        assert_eq!((read.to, read.device.as_str()), (ip("192.168.2.3"), "eth0"));
        assert_eq!((read.router, read.source), (Some(ip("192.168.1.1")), Some(ip("192.168.1.2"))));
        let read = TunnelRoute::parse("User: fd00::3/128 dev eth0 SRC fd00::2").unwrap();
        assert_eq!((read.to, read.router), (ip("fd00::3"), None));
        for other in [
            "Route Table:",
            "Cached: 192.168.1.0/24 dev eth0 SRC 192.168.1.2",
            "User: 192.168.0.0/16 dev eth0 GW 192.168.1.1 SRC 192.168.1.2",
            "User: 192.168.2.3/32 MARK 1 dev eth0 SRC 192.168.1.2",
        ] {
            assert_eq!(TunnelRoute::parse(other), None, "{other}");
        }
    }
}
