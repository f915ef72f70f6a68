//! Answers datagrams: `hostname`, `clientip`, and `echo TEXT`; anything else is sent back as it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::UdpSocket;

/// Serves UDP at these addresses, or at all IPv4 and IPv6 addresses.
pub(crate) async fn serve(port: u16, addresses: Vec<IpAddr>) -> Result<()> {
    let addresses = if addresses.is_empty() { vec![Ipv6Addr::UNSPECIFIED.into()] } else { addresses };
    futures::future::try_join_all(addresses.into_iter().map(|address| serve_at((address, port).into()))).await?;
    Ok(())
}

async fn serve_at(address: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(address).await.with_context(|| format!("cannot listen at UDP {address}"))?;
    let mut buffer = vec![0; 65_536];
    loop {
        // An ICMP error for an earlier response is returned here; it is not an error of the server.
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
