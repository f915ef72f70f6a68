//! A Pod as the switch sees it: a network namespace with one interface that is a port of a bridge.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::{Netns, veth_pair};
use crate::ovs::Ovs;
use crate::process::run;
use crate::wait::TIMEOUT;

/// The interface of a [`Host`].
#[derive(Clone, Copy, Debug)]
pub struct Nic<'a> {
    /// Name of the switch's port; at most 15 characters.
    pub port: &'a str,
    /// OpenFlow number of the switch's port.
    pub ofport: u16,
    /// MAC address of the host's side.
    pub mac: &'a str,
    /// Addresses with prefix length, of either family.
    pub addresses: &'a [&'a str],
    /// Default gateway, at most one a family.
    pub gateways: &'a [&'a str],
}

/// A namespace with an interface `eth0` that is attached to a bridge. Gone on drop; the port stays, without a device.
#[derive(Debug)]
pub struct Host(Netns);

impl Host {
    /// Makes a host and attaches it to `bridge` of a sandbox that was started with [`Ovs::start_in`].
    pub fn attach(ovs: &Ovs, bridge: &str, nic: &Nic<'_>) -> Result<Self> {
        Self::make(ovs, bridge, nic).with_context(|| format!("cannot attach a host to port {} of {bridge}", nic.port))
    }

    fn make(ovs: &Ovs, bridge: &str, nic: &Nic<'_>) -> Result<Self> {
        let switch = ovs.netns().context("the dummy datapath has no real ports: use Ovs::start_in")?;
        let netns = Netns::new()?;
        veth_pair(switch, nic.port, &netns, "eth0")?;
        netns.ip(["link", "set", "dev", "eth0", "address", nic.mac])?;
        netns.offloads_off("eth0")?;
        for address in nic.addresses {
            netns.add_address("eth0", address)?;
        }
        if !nic.addresses.iter().any(|address| address.contains(':')) {
            // Without IPv6 the kernel must not send router solicitations: tests count packets.
            netns.ip(["link", "set", "dev", "eth0", "addrgenmode", "none"])?;
        }
        netns.link_up("eth0")?;
        for gateway in nic.gateways {
            netns.ip(["route", "add", "default", "via", gateway, "dev", "eth0", "onlink"])?;
        }
        ovs.attach(bridge, nic.port, nic.ofport)?;
        Ok(Self(netns))
    }

    /// The namespace, for commands and sockets of any kind.
    pub fn netns(&self) -> &Netns {
        &self.0
    }

    /// Pings `to` until the first answer comes; fails when none comes in time.
    pub fn ping(&self, to: impl Into<IpAddr>) -> Result<()> {
        let (to, deadline) = (to.into().to_string(), TIMEOUT.as_secs().to_string());
        run(self.0.command("ping").args(["-n", "-c", "1", "-i", "0.2", "-w", &deadline, &to]), None).map(drop)
    }

    /// Sends one ping to `to`; gives whether the answer comes within `timeout`.
    pub fn ping_once(&self, to: impl Into<IpAddr>, timeout: Duration) -> Result<bool> {
        let (to, timeout) = (to.into().to_string(), timeout.as_secs_f64().to_string());
        let output = self.0.command("ping").args(["-n", "-c", "1", "-W", &timeout, &to]).output()?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => bail!("ping {to}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Listens for TCP connections at `address`, such as `"0.0.0.0:80"`.
    pub fn tcp_listen(&self, address: impl ToSocketAddrs + Send) -> Result<TcpListener> {
        self.0.run(|| TcpListener::bind(address))?.context("cannot listen for TCP connections")
    }

    /// Connects to `to`, or fails as the kernel or `timeout` says. Reads and writes don't wait for ever either.
    pub fn tcp_connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&to, timeout)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(stream)
        };
        self.0.run(connect).map_err(io::Error::other)?
    }

    /// A UDP socket at `address`, such as `"0.0.0.0:0"` for any port. Reads don't wait for ever.
    pub fn udp_bind(&self, address: impl ToSocketAddrs + Send) -> Result<UdpSocket> {
        let bind = || {
            let socket = UdpSocket::bind(address)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            io::Result::Ok(socket)
        };
        self.0.run(bind)?.context("cannot make a UDP socket")
    }
}

#[cfg(test)]
mod tests;
