//! Connections to Services, in the table of the switch.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use node::Connections;
use ovs::unixctl::{ConntrackEntry, ConntrackMatch, ConntrackProtocol, Control, Layer4, UnixctlError};
use pipeline::DNAT_ZONES;

use super::{FlushError, Round};

/// Timeout of one command to ovs-vswitchd.
const UNIXCTL_TIMEOUT: Duration = Duration::from_secs(10);
const TCP: u8 = 6;
/// State of a TCP connection without a reply.
const NO_REPLY: &str = "SYN_SENT";

/// A connection that may be stale: UDP, or TCP without a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Connection {
    /// Destination of its first packet.
    sent_to: SocketAddr,
    answered_by: SocketAddr,
    mark: u32,
    /// With `exactly`, identifies the connection.
    zone: u16,
    exactly: ConntrackMatch,
}

impl Connection {
    fn is_tcp(&self) -> bool {
        self.exactly.protocol == Some(TCP)
    }

    fn is(&self, other: &Self) -> bool {
        (self.zone, &self.exactly) == (other.zone, &other.exactly)
    }
}

/// Lists connections, reads the Services after that, and flushes stale connections.
pub(super) async fn flush(
    run_dir: &Path,
    query: impl AsyncFnOnce() -> Result<Connections, FlushError>,
) -> Result<Round, FlushError> {
    // Found each time: a restarted ovs-vswitchd has another socket.
    let control = Control::vswitchd(run_dir, UNIXCTL_TIMEOUT)?;
    let began = Instant::now();
    let mut stale = list(&control).await?;
    let known = query().await?;
    stale.retain(|one| {
        if one.is_tcp() {
            known.is_lost(one.sent_to, one.answered_by)
        } else {
            known.is_stale(one.sent_to, one.answered_by, one.mark)
        }
    });
    if stale.iter().any(Connection::is_tcp) {
        // Keep connections with a reply by now: they work. The flush itself does not check that.
        let listed = list(&control).await?;
        stale.retain(|one| !one.is_tcp() || listed.iter().any(|now| now.is(one)));
    }
    let flushed = flush_all(&control, &stale).await?;
    Ok(Round { took: began.elapsed(), flushed })
}

async fn list(control: &Control) -> Result<Vec<Connection>, UnixctlError> {
    let mut all = Vec::new();
    for zone in DNAT_ZONES {
        all.extend(control.conntrack_dump(None, Some(zone)).await?.iter().filter_map(|entry| connection(zone, entry)));
    }
    Ok(all)
}

/// Flushes these; returns how many still existed.
async fn flush_all(control: &Control, stale: &[Connection]) -> Result<usize, UnixctlError> {
    let (any, mut refused) = (ConntrackMatch::default(), Vec::new());
    for one in stale {
        match control.conntrack_flush(Some(one.zone), &one.exactly, &any).await {
            Ok(()) => {}
            // Most likely it has expired; continue with the others.
            Err(error @ UnixctlError::Refused { .. }) => refused.push((one, error)),
            Err(error) => return Err(error),
        }
    }
    let flushed = stale.len() - refused.len();
    if refused.is_empty() {
        return Ok(flushed);
    }
    let listed = list(control).await?;
    match refused.into_iter().find(|(one, _)| listed.iter().any(|now| now.is(one))) {
        Some((_, error)) => Err(error),
        None => Ok(flushed),
    }
}

fn connection(zone: u16, entry: &ConntrackEntry) -> Option<Connection> {
    let may_be_stale = match entry.protocol {
        ConntrackProtocol::Udp => true,
        ConntrackProtocol::Tcp => entry.state.as_deref() == Some(NO_REPLY),
        _ => false,
    };
    let (first, answer) = (&entry.original, &entry.reply);
    let (Layer4::Ports { dst, .. }, Layer4::Ports { src: answering, .. }) = (first.layer4, answer.layer4) else {
        return None;
    };
    may_be_stale.then(|| Connection {
        sent_to: (first.dst, dst).into(),
        answered_by: (answer.src, answering).into(),
        mark: entry.mark,
        zone,
        exactly: entry.exactly(),
    })
}

#[cfg(test)]
mod tests {
    use testkit::Ovs;

    use super::*;

    /// A switch that tracks packets from p1 like connections to Services.
    fn tracking() -> (Ovs, Control) {
        let ovs = Ovs::start().unwrap();
        ovs.add_bridge("br0").unwrap();
        ovs.add_ports("br0", &[("p1", 1), ("p2", 2)]).unwrap();
        let flow = format!("ip,actions=ct(commit,zone={},exec(set_field:0x21->ct_mark)),output:2", DNAT_ZONES[0]);
        ovs.ofctl(["add-flow", "br0", &flow]).unwrap();
        let control = Control::vswitchd(ovs.dir(), UNIXCTL_TIMEOUT).unwrap();
        (ovs, control)
    }

    /// Sends the `n`th packet, which opens a connection to a port.
    async fn send(ovs: &Ovs, control: &Control, to: u16, n: usize) {
        let packet = format!(
            "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
             ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1001,dst={to})"
        );
        control.call("netdev-dummy/receive", &["p1", &packet]).await.unwrap();
        ovs.wait_captured("p2", n).unwrap();
    }

    async fn ports(control: &Control) -> Vec<u16> {
        let mut ports: Vec<u16> = list(control).await.unwrap().iter().map(|one| one.sent_to.port()).collect();
        ports.sort_unstable();
        ports
    }

    #[tokio::test]
    async fn an_expired_connection_does_not_prevent_flushes_of_others() {
        let (ovs, control) = tracking();
        for (n, port) in [53, 54, 55].into_iter().enumerate() {
            send(&ovs, &control, port, n + 1).await;
        }
        let all = list(&control).await.unwrap();
        let (ended, alive): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.sent_to.port() == 54);
        assert_eq!(flush_all(&control, &ended).await.unwrap(), 1);
        let any = ConntrackMatch::default();
        let again = control.conntrack_flush(Some(DNAT_ZONES[0]), &ended[0].exactly, &any).await;
        assert!(matches!(again, Err(UnixctlError::Refused { .. })), "{again:?}");
        let stale = [&ended[..], &alive[..]].concat();
        assert_eq!((flush_all(&control, &stale).await.unwrap(), ports(&control).await), (2, vec![]));
    }

    #[tokio::test]
    async fn a_tcp_connection_may_be_stale_until_its_first_reply() {
        let (ovs, control) = tracking();
        let packet = |from: (&str, u16), to: (&str, u16), flags: &str| {
            format!(
                "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
                 ipv4(src={},dst={},proto=6,tos=0,ttl=64,frag=no),tcp(src={},dst={}),tcp_flags({flags})",
                from.0, to.0, from.1, to.1
            )
        };
        let (client, service) = (("10.0.0.1", 1001), ("10.0.0.2", 80));
        control.call("netdev-dummy/receive", &["p1", &packet(client, service, "syn")]).await.unwrap();
        ovs.wait_captured("p2", 1).unwrap();
        assert_eq!(ports(&control).await, [80]);
        control.call("netdev-dummy/receive", &["p1", &packet(service, client, "syn|ack")]).await.unwrap();
        ovs.wait_captured("p2", 2).unwrap();
        assert_eq!(ports(&control).await, [0; 0]);
    }

    #[tokio::test]
    async fn a_connection_that_is_newer_than_the_list_is_kept() {
        let (ovs, control) = tracking();
        send(&ovs, &control, 53, 1).await;
        // There are no Services, so every connection is stale, except one that was opened after the list.
        let query = async || {
            send(&ovs, &control, 54, 2).await;
            Ok(Connections::default())
        };
        let round = flush(ovs.dir(), query).await.unwrap();
        assert_eq!((round.flushed, ports(&control).await), (1, vec![54]));
    }
}
