//! Tries targets from where this process is.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, UdpSocket};
use tokio::process::Command;
use tokio::time::timeout;

/// One attempt.
const PATIENCE: Duration = Duration::from_millis(1000);
/// A packet may be lost on a machine that is busy.
const ATTEMPTS: usize = 2;

/// Where to, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Probe {
    Tcp(SocketAddr),
    /// Something is sent, and something must come back.
    Udp(SocketAddr),
    Ping(IpAddr),
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Reached,
    /// Somebody said no.
    Refused,
    /// Nobody answered.
    Silence,
    /// There is no way there.
    Unreachable,
}

/// Tries all of them at once.
pub(crate) async fn all(probes: &[Probe]) -> Vec<Outcome> {
    join_all(probes.iter().map(one)).await
}

async fn one(probe: &Probe) -> Outcome {
    let mut outcome = Outcome::Silence;
    for _ in 0..ATTEMPTS {
        outcome = match timeout(PATIENCE, attempt(probe)).await {
            Ok(Ok(())) => return Outcome::Reached,
            Ok(Err(error)) => judge(&error),
            Err(_) => Outcome::Silence,
        };
    }
    outcome
}

fn judge(error: &anyhow::Error) -> Outcome {
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
            let output = ping.args(["-n", "-q", "-c", "1", "-W", "1", &to.to_string()]).kill_on_drop(true).output();
            let output = output.await.context("cannot run ping")?;
            anyhow::ensure!(output.status.success(), "no answer");
        }
    }
    Ok(())
}
