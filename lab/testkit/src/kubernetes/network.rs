//! The network in which the daemons listen.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use anyhow::{Context, Result};

use crate::netns::Netns;

/// A network namespace, or that of this process.
#[derive(Clone, Debug)]
pub(super) struct Network(pub(super) Option<Netns>);

impl Network {
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.0 {
            Some(netns) => netns.command(program),
            None => Command::new(program),
        }
    }

    /// Runs `work` inside, on another thread if necessary.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.0 {
            Some(netns) => netns.run(work)?,
            None => work(),
        }
    }

    /// An address with a port that is free now.
    pub(super) fn free_address(&self, ip: IpAddr) -> Result<SocketAddr> {
        self.run(|| Ok(TcpListener::bind((ip, 0))?.local_addr()?)).with_context(|| format!("no free port at {ip}"))
    }

    /// Whether a process accepts connections at `address`.
    pub(super) fn is_listening(&self, address: SocketAddr) -> bool {
        self.run(|| Ok(TcpStream::connect(address)?)).is_ok()
    }
}
