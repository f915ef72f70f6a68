//! Forgets connections of UDP that lead to endpoints that are gone, in the switch and on the host.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::{Owner, UdpConnections};
use ovs::backoff::Backoff;
use ovs::unixctl::{ConntrackEntry, ConntrackMatch, ConntrackProtocol, Control, Layer4, UnixctlError};
use pipeline::DNAT_ZONES;
use tracing::{debug, info, warn};

use crate::engine::Engine;

/// How long the switch may take to list its connections, or to forget one.
const PATIENCE: Duration = Duration::from_secs(10);
/// To list connections keeps the switch from forwarding, so changes are gathered for so long.
const PERIOD: Duration = Duration::from_millis(100);
const UDP: u8 = 17;

/// Where connections are tracked.
pub(crate) struct Tracked {
    /// Open vSwitch's.
    pub(crate) run_dir: PathBuf,
    /// Whether the host translates NodePorts.
    pub(crate) host: bool,
}

/// Forgets what is stale after every change, and once at the start, for ever.
pub(crate) async fn forget_stale(engine: Engine, tracked: Tracked) {
    let mut progress = engine.progress();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut done = None;
    loop {
        if progress.wait_for(|progress| progress.ready && Some(progress.services.udp) != done).await.is_err() {
            return;
        }
        // As long as flows lead to an endpoint that is gone, a connection that is forgotten may begin like that again.
        let _ = engine.installed(Owner::Node).await;
        let looked = engine.look(|brain| (brain.service_versions().udp, brain.udp_connections())).await;
        let Ok((version, Some(known))) = looked else { return };
        let next = match tracked.forget(known).await {
            Ok(forgotten) => {
                if forgotten > 0 {
                    info!(forgotten, "connections of UDP to endpoints that are gone were forgotten");
                }
                backoff.reset();
                done = Some(version);
                Instant::now() + PERIOD
            }
            Err(error) => {
                let delay = backoff.next_delay();
                if backoff.is_news() {
                    warn!(error, ?delay, "cannot forget connections of UDP to endpoints that are gone; trying again");
                } else {
                    debug!(error, ?delay, "cannot forget connections of UDP to endpoints that are gone; trying again");
                }
                Instant::now() + delay
            }
        };
        tokio::time::sleep_until(next.into()).await;
    }
}

impl Tracked {
    async fn forget(&self, known: UdpConnections) -> Result<usize, String> {
        let in_switch = self.forget_in_switch(&known).await.map_err(|error| error.to_string())?;
        if !self.host {
            return Ok(in_switch);
        }
        let on_host = move || host::conntrack::forget_udp(|to, by| known.is_stale_on_host(to, by));
        let on_host = tokio::task::spawn_blocking(on_host).await.map_err(|error| format!("a bug: {error}"))?;
        on_host.map(|on_host| in_switch + on_host).map_err(|error| error.to_string())
    }

    async fn forget_in_switch(&self, known: &UdpConnections) -> Result<usize, UnixctlError> {
        // Looked for each time: a switch that was restarted has another socket.
        let control = Control::vswitchd(&self.run_dir, PATIENCE)?;
        let mut forgotten = 0;
        for zone in DNAT_ZONES {
            for entry in control.conntrack_dump(None, Some(zone)).await? {
                let Some((sent_to, answered_by, exactly)) = udp(&entry) else { continue };
                if known.is_stale(sent_to, answered_by, entry.mark) {
                    let any = ConntrackMatch::default();
                    control.conntrack_flush(None, Some(zone), &exactly, &any).await?;
                    forgotten += 1;
                }
            }
        }
        Ok(forgotten)
    }
}

/// Of a connection of UDP: what its first packet was sent to, who answers, and what tells it from all others.
fn udp(entry: &ConntrackEntry) -> Option<(SocketAddr, SocketAddr, ConntrackMatch)> {
    let (first, answer) = (&entry.original, &entry.reply);
    let (Layer4::Ports { src, dst }, Layer4::Ports { src: answering, .. }) = (first.layer4, answer.layer4) else {
        return None;
    };
    let exactly = ConntrackMatch {
        src: Some(first.src),
        dst: Some(first.dst),
        protocol: Some(UDP),
        src_port: Some(src),
        dst_port: Some(dst),
        ..ConntrackMatch::default()
    };
    let is_udp = entry.protocol == ConntrackProtocol::Udp;
    is_udp.then_some(((first.dst, dst).into(), (answer.src, answering).into(), exactly))
}
