//! Reconciles the tunnels of the userspace datapath: the flows of the transport bridge, and ovs-vswitchd's own routes and
//! neighbours, which follow the kernel's. ovs-vswitchd loses all of them when it restarts.

mod paths;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use delta::State;
use host::next_hop::Watch;
use node::database::TRANSPORT_BRIDGE;
use node::{PathChange, Tunnels};
use openflow::flow::{Flow, FlowRequest};
use ovs::switch::{BundleError, Event, Events, RequestError, Switch};
use ovs::unixctl::UnixctlError;
use reconcile::{Pass, Settings, Status, Target};
use tokio::sync::watch;
use tracing::warn;
use types::Mac;
use types::backoff::Backoff;

use crate::blocking::BlockingError;
use crate::desired::DesiredPart;
use crate::engine::Engine;

/// Each pass sets the neighbours again, which ovs-vswitchd forgets after 15 minutes without packets, and has the kernel confirm
/// MACs that it has not used for a while: a Node that has another one need not announce it.
const SETTINGS: Settings = Settings { period: Some(Duration::from_secs(20)), ..Settings::ON_CHANGE };
/// How long a pass waits for the connection to the transport bridge.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Delays until the kernel is asked again for a MAC that it could not resolve.
const RESOLVE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Status of the tunnels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TunnelStatus {
    /// Whether the transport bridge has had its flows since the agent started.
    pub(crate) is_up: bool,
    /// Why a Node cannot be reached.
    pub(crate) failure: Option<String>,
}

/// Reconciles the tunnels until the agent stops.
pub(crate) async fn run(engine: Engine, run_dir: PathBuf, device: &str, status: watch::Sender<TunnelStatus>) {
    let desired = DesiredPart::new(
        engine,
        |progress| Some(progress.tunnel_version).filter(|version| *version > 0),
        |brain| (brain.tunnel_version(), brain.tunnels()),
    );
    let watch = Watch::open(device)
        .map_err(|error| warn!(%error, "cannot watch the kernel; the next hops of tunnels are checked every 20 s"))
        .ok();
    let socket = run_dir.join(format!("{TRANSPORT_BRIDGE}.mgmt"));
    let (switch, events) = Switch::start(ovs::switch::Config::new(socket));
    let target = TunnelNetwork {
        run_dir,
        switch,
        events,
        watch,
        neighbours: BTreeMap::new(),
        epoch: None,
        is_up: false,
        resolving: Backoff::new(RESOLVE.0, RESOLVE.1),
        status,
    };
    reconcile::run(target, desired, SETTINGS).await;
}

struct TunnelNetwork {
    run_dir: PathBuf,
    /// Of the transport bridge.
    switch: Switch,
    events: Events,
    watch: Option<Watch>,
    /// Next hops with the MACs of the last pass.
    neighbours: BTreeMap<IpAddr, Option<Mac>>,
    /// The connection of the last pass.
    epoch: Option<u64>,
    is_up: bool,
    resolving: Backoff,
    status: watch::Sender<TunnelStatus>,
}

/// A change that was applied.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    /// This many flows of the transport bridge.
    Flows(usize),
    Path(PathChange),
}

#[derive(Debug, thiserror::Error)]
enum TunnelProblem {
    #[error("bridge {TRANSPORT_BRIDGE}: not connected to ovs-vswitchd")]
    NotConnected,
    #[error("bridge {TRANSPORT_BRIDGE}: cannot list flows: {0}")]
    List(#[from] RequestError),
    #[error("bridge {TRANSPORT_BRIDGE}: cannot install flows: {0}")]
    Commit(#[from] BundleError),
    #[error("cannot set the tunnel routes of ovs-vswitchd: {0}")]
    Switch(#[from] UnixctlError),
    #[error(transparent)]
    Kernel(#[from] BlockingError<host::Error>),
    #[error("Node address {0}: this Node has no route to it")]
    Unreachable(IpAddr),
    #[error("Node address {0}: tunnels of the userspace datapath need IPv4; load the openvswitch kernel module")]
    Family(IpAddr),
    #[error(
        "Node address {to}: this Node reaches it by device {device}, but tunnels use {uplink}; \
         correct the route, or set transportInterface"
    )]
    Elsewhere { to: IpAddr, device: String, uplink: String },
    #[error("Node address {to}: ovs-vswitchd accepts no route to it: {source}")]
    Refused { to: IpAddr, source: UnixctlError },
    #[error(
        "Node address {to}: ovs-vswitchd would send to it from {chosen}, and peers accept {expected} only; \
         remove the other address from the device, or load the openvswitch kernel module"
    )]
    Source { to: IpAddr, chosen: IpAddr, expected: IpAddr },
}

impl Target for TunnelNetwork {
    type Desired = Option<Tunnels>;
    type Change = Change;
    type Failure = TunnelProblem;

    fn name(&self) -> &'static str {
        "tunnels"
    }

    async fn reconcile(&mut self, desired: Option<Tunnels>) -> Pass<Change, TunnelProblem> {
        let Some(desired) = desired else { return Pass::default() };
        let Ok(Ok((epoch, _))) = tokio::time::timeout(CONNECT_TIMEOUT, self.switch.up()).await else {
            return Pass::failed(TunnelProblem::NotConnected);
        };
        let is_new_switch = self.epoch.replace(epoch) != Some(epoch);
        let mut pass = Pass::default();
        match put_flows(&self.switch, desired.flows.clone()).await {
            Ok(0) => self.is_up = true,
            Ok(changed) => {
                self.is_up = true;
                let changes = if is_new_switch { &mut pass.scheduled } else { &mut pass.changes };
                changes.push(Change::Flows(changed));
            }
            Err(problem) => return Pass::failed(problem),
        }
        match paths::reconcile(&self.run_dir, &desired).await {
            Ok(outcome) => {
                // The kernel's routes and neighbours change, and ovs-vswitchd follows: that is no drift.
                pass.scheduled.extend(outcome.changes.into_iter().map(Change::Path));
                pass.failures.extend(outcome.failures);
                self.neighbours = outcome.neighbours;
            }
            Err(problem) => pass.failures.push(problem),
        }
        if self.neighbours.values().any(Option::is_none) {
            pass.again = Some(self.resolving.next_delay());
        } else {
            self.resolving.reset();
        }
        pass
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = connected(&mut self.events) => {}
            () = moved(&mut self.watch, &self.neighbours) => {}
        }
    }

    fn report(&mut self, status: &Status) {
        self.status.send_replace(TunnelStatus { is_up: self.is_up, failure: status.failure.clone() });
    }
}

/// Waits for a new connection to the transport bridge.
async fn connected(events: &mut Events) {
    loop {
        match events.next().await {
            Some(Event::Up { .. }) => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

/// Waits until a next hop may have changed.
async fn moved(watch: &mut Option<Watch>, neighbours: &BTreeMap<IpAddr, Option<Mac>>) {
    let Some(open) = watch else { return std::future::pending().await };
    if let Err(error) = open.changed(neighbours).await {
        warn!(%error, "lost the watch of the kernel; from now on the next hops of tunnels are checked every 20 s");
        *watch = None;
    }
}

/// Makes the flows of the bridge equal to these, in one bundle; returns the number of messages.
async fn put_flows(switch: &Switch, flows: Vec<Flow>) -> Result<usize, TunnelProblem> {
    let mut state: State<()> = State::new(|_| false);
    state.set_flows(&(), flows);
    state.allow_sweep();
    state.begin_resync();
    let mut dump = switch.dump_flows(FlowRequest::default()).await?;
    while let Some(stats) = dump.next().await? {
        // The patch repairs differences.
        let _ = state.observe_flow(&stats.flow);
    }
    state.end_resync();
    let Some(patch) = state.patch() else { return Ok(0) };
    switch.commit(state.messages(&patch)).await?;
    Ok(patch.len())
}
