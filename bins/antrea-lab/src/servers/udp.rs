//! Answers datagrams: `hostname`, `clientip`, and `echo TEXT`; anything else is sent back as it is.

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::UdpSocket;

/// Serves for ever, IPv4 and IPv6.
pub(crate) async fn serve(port: u16) -> Result<()> {
    let bound = UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await;
    let socket = bound.with_context(|| format!("cannot listen at UDP port {port}"))?;
    let mut buffer = vec![0; 65_536];
    loop {
        // A datagram that could not be delivered is reported to the next who asks; that is no reason to end.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let asked = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let answer = match asked.trim() {
            "hostname" => super::hostname(),
            "clientip" => SocketAddr::new(from.ip().to_canonical(), from.port()).to_string(),
            other => other.strip_prefix("echo ").unwrap_or(other).to_owned(),
        };
        let _ = socket.send_to(answer.as_bytes(), from).await;
    }
}
