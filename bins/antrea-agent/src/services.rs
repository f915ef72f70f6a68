//! Tasks for Services beside flows and host rules: refusals for Services without endpoints, flushes of stale connections, and
//! health checks of load balancers.

mod connections;
mod health;
mod refusals;

use std::sync::Arc;

use ovs::switch::Switch;
use tokio::sync::watch;

use crate::config::Config;
use crate::engine::Engine;
use crate::host_reconciler::HostStatus;
use connections::Tracked;
pub(crate) use refusals::Inbox;

/// Inputs of the tasks for Services, beside the engine.
pub(crate) struct ServiceTasks<'a> {
    pub(crate) config: &'a Config,
    pub(crate) own: &'a node::Own,
    pub(crate) switch: Switch,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) host_status: watch::Receiver<HostStatus>,
}

/// Starts the tasks, which run until the agent stops.
pub(crate) fn start(engine: &Engine, tasks: ServiceTasks<'_>) {
    let ServiceTasks { config, own, switch, inbox, host_status } = tasks;
    tokio::spawn(refusals::answer(switch, inbox));
    let features = own.features;
    if !features.antrea_proxy {
        return;
    }
    tokio::spawn(connections::flush_stale(engine.clone(), Tracked::Switch(config.ovs_run_dir.clone())));
    if features.proxy_all {
        tokio::spawn(connections::flush_stale(engine.clone(), Tracked::Host(host_status)));
    }
    if features.proxy_all && !config.antrea_proxy.disable_service_health_check_server {
        let address = config.antrea_proxy.service_health_check_server_bind_address;
        tokio::spawn(health::serve_node(engine.clone(), address));
        tokio::spawn(health::serve_services(engine.clone(), own.addresses.v6.is_some()));
    }
}
