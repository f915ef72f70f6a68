//! Gives ovs-vswitchd the kernel's paths to other Nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use host::next_hop::{NextHop, NextHops};
use node::database::TRANSPORT_BRIDGE;
use node::{PathChange, TunnelPath, Tunnels, path_changes};
use ovs::unixctl::{Control, TunnelRoute};
use types::Mac;

use super::TunnelProblem;
use crate::blocking::blocking;

/// Timeout of one command to ovs-vswitchd.
const UNIXCTL_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of one pass.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) changes: Vec<PathChange>,
    pub(super) failures: Vec<TunnelProblem>,
    /// All next hops, with their MACs where the kernel knows them.
    pub(super) neighbours: BTreeMap<IpAddr, Option<Mac>>,
}

/// Finds the next hops of all peers, and sets the routes and neighbours of ovs-vswitchd.
pub(super) async fn reconcile(run_dir: &Path, desired: &Tunnels) -> Result<Outcome, TunnelProblem> {
    let (device, source, peers) = (desired.device.clone(), desired.source, desired.peers.clone());
    let hops = blocking(move || NextHops::open()?.find(&device, source, &peers)).await?;
    let mut outcome = Outcome::default();
    let mut paths = BTreeMap::new();
    for (to, hop) in hops {
        match hop {
            NextHop::Device { router, mac } => {
                outcome.neighbours.insert(router.unwrap_or(to), mac);
                paths.insert(to, TunnelPath { router, mac });
            }
            NextHop::Elsewhere(device) => {
                outcome.failures.push(TunnelProblem::Elsewhere { to, device, uplink: desired.device.clone() });
            }
            NextHop::Unreachable if to.is_ipv4() != desired.source.is_ipv4() => {
                outcome.failures.push(TunnelProblem::Family(to));
            }
            NextHop::Unreachable => outcome.failures.push(TunnelProblem::Unreachable(to)),
        }
    }
    // Found each time: a restarted ovs-vswitchd has another socket.
    let control = Control::vswitchd(run_dir, UNIXCTL_TIMEOUT)?;
    let routes = routes(&control, desired).await?;
    let routers = routes.iter().map(|(to, route)| (*to, route.router)).collect();
    let neighbours = control.tunnel_neighbours(TRANSPORT_BRIDGE).await?;
    // A peer that is unreachable for a moment keeps its path.
    let is_complete = desired.is_complete && outcome.failures.is_empty();
    outcome.changes = path_changes(&paths, is_complete, &routers, &neighbours);
    outcome.apply(&control, &desired.device, &paths).await?;
    let has_new_route = outcome.changes.iter().any(|change| matches!(change, PathChange::PutRoute { .. }));
    let routes = if has_new_route { self::routes(&control, desired).await? } else { routes };
    for (to, route) in routes.iter().filter(|(to, _)| paths.contains_key(*to)) {
        if let Some(chosen) = route.source.filter(|chosen| *chosen != desired.source) {
            outcome.failures.push(TunnelProblem::Source { to: *to, chosen, expected: desired.source });
        }
    }
    Ok(outcome)
}

/// The routes that lead to single addresses by the device, by address.
async fn routes(control: &Control, desired: &Tunnels) -> Result<BTreeMap<IpAddr, TunnelRoute>, TunnelProblem> {
    let routes = control.tunnel_routes().await?.into_iter();
    Ok(routes.filter(|route| route.device == desired.device).map(|route| (route.to, route)).collect())
}

impl Outcome {
    /// Applies the changes; those that ovs-vswitchd refuses become failures.
    async fn apply(
        &mut self,
        control: &Control,
        device: &str,
        paths: &BTreeMap<IpAddr, TunnelPath>,
    ) -> Result<(), TunnelProblem> {
        // All of them, since they expire; and before the routes that need them.
        let known = self.neighbours.iter().filter_map(|(ip, mac)| Some((*ip, (*mac)?))).collect();
        for set in control.set_tunnel_neighbours(TRANSPORT_BRIDGE, &known).await? {
            set?;
        }
        let (mut put, mut remove) = (Vec::new(), Vec::new());
        for change in &self.changes {
            match change {
                PathChange::PutRoute { to, router } => put.push((*to, *router)),
                PathChange::RemoveRoute { to } => remove.push(*to),
                PathChange::SetNeighbour { .. } => {}
            }
        }
        let added = control.put_tunnel_routes(device, &put).await?;
        for ((to, _), outcome) in put.iter().zip(added) {
            if let Err(source) = outcome {
                self.changes.retain(|change| !matches!(change, PathChange::PutRoute { to: of, .. } if of == to));
                self.failures.push(TunnelProblem::Refused { to: *to, source });
            }
        }
        let is_refused = |to: &IpAddr| {
            self.failures.iter().any(|failure| matches!(failure, TunnelProblem::Refused { to: of, .. } if of == to))
        };
        let kept = paths.iter().find(|(to, _)| !is_refused(to));
        let kept = kept.map(|(to, path)| (*to, path.router));
        for to in remove {
            control.remove_tunnel_route(device, to, kept).await?;
        }
        Ok(())
    }
}
