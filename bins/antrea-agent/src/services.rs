//! What Services need beside flows and the host's routes and rules: answers for clients whom nobody serves, connections that
//! are forgotten, and answers for load balancers.

mod connections;
mod health;
mod refusals;

use openflow::packet::PacketIn2;
use ovs::switch::Switch;
use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::engine::Engine;
use crate::upkeep::Upkeep;
use connections::Tracked;

/// Packets that wait to be looked at; further ones are lost.
const QUEUE: usize = 256;

/// What Services depend on beside the engine.
pub(crate) struct Surroundings<'a> {
    pub(crate) config: &'a Config,
    pub(crate) own: &'a node::Own,
    pub(crate) switch: Switch,
    pub(crate) packets: mpsc::Receiver<Box<PacketIn2>>,
    pub(crate) upkeep: watch::Receiver<Upkeep>,
}

/// The way of packets from the switch to whoever answers them.
pub(crate) fn packets() -> (mpsc::Sender<Box<PacketIn2>>, mpsc::Receiver<Box<PacketIn2>>) {
    mpsc::channel(QUEUE)
}

/// Starts what runs as long as the agent does.
pub(crate) fn start(engine: &Engine, around: Surroundings<'_>) {
    let Surroundings { config, own, switch, packets, upkeep } = around;
    tokio::spawn(refusals::answer(switch, packets));
    let features = own.features;
    if !features.antrea_proxy {
        return;
    }
    tokio::spawn(connections::forget_stale(engine.clone(), Tracked::Switch(config.ovs_run_dir.clone())));
    if features.proxy_all {
        tokio::spawn(connections::forget_stale(engine.clone(), Tracked::Host(upkeep)));
    }
    if features.proxy_all && !config.antrea_proxy.disable_service_health_check_server {
        let address = config.antrea_proxy.service_health_check_server_bind_address;
        tokio::spawn(health::serve_node(engine.clone(), address));
        tokio::spawn(health::serve_services(engine.clone(), own.addresses.v6.is_some()));
    }
}
