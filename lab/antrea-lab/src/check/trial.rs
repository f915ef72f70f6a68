//! Probes targets from the network namespace of this process.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use testkit::wait::scaled;
use tokio::net::{TcpStream, UdpSocket};
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of one attempt.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1000);
/// A busy machine may lose a packet.
const ATTEMPTS: usize = 2;

/// A connection attempt or ping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Probe {
    Tcp(SocketAddr),
    /// Sends a datagram and expects a response.
    Udp(SocketAddr),
    Ping(IpAddr),
}

/// Result of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Reached,
    /// The connection was refused or reset.
    Refused,
    /// No response within the timeout.
    Silence,
    /// No route, or ICMP unreachable.
    Unreachable,
}

/// Runs all probes at the same time.
pub(crate) async fn all(probes: &[Probe]) -> Vec<Outcome> {
    join_all(probes.iter().map(one)).await
}

async fn one(probe: &Probe) -> Outcome {
    let mut outcome = Outcome::Silence;
    for _ in 0..ATTEMPTS {
        outcome = match timeout(scaled(PROBE_TIMEOUT), attempt(probe)).await {
            Ok(Ok(())) => return Outcome::Reached,
            Ok(Err(error)) => outcome_of(&error),
            Err(_) => Outcome::Silence,
        };
    }
    outcome
}

fn outcome_of(error: &anyhow::Error) -> Outcome {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ConnectionRefused | ConnectionReset) => Outcome::Refused,
        Some(HostUnreachable | NetworkUnreachable) => Outcome::Unreachable,
        _ => Outcome::Silence,
    }
}

async fn attempt(probe: &Probe) -> Result<()> {
    match probe {
        Probe::Tcp(to) => drop(TcpStream::connect(to).await?),
        Probe::Udp(to) => {
            let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(to).await?;
            socket.send(b"echo hello").await?;
            socket.recv(&mut [0; 64]).await?;
        }
        Probe::Ping(to) => {
            let mut ping = Command::new("ping");
            let seconds = scaled(PROBE_TIMEOUT).as_secs().to_string();
            let output =
                ping.args(["-n", "-q", "-c", "1", "-W", &seconds, &to.to_string()]).kill_on_drop(true).output();
            let output = output.await.context("cannot run ping")?;
            anyhow::ensure!(output.status.success(), "no answer");
        }
    }
    Ok(())
}
