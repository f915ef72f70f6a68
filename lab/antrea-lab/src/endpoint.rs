//! Addresses in network namespaces.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::Netns;
use tokio::net::{TcpListener, TcpStream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An address in a network namespace, or in that of the supervisor.
#[derive(Clone)]
pub(crate) struct End(pub(crate) Option<Netns>, pub(crate) SocketAddr);

impl End {
    /// Listens at the address. Returns the listener with its local address.
    pub(crate) fn listen(&self) -> Result<(TcpListener, SocketAddr)> {
        let at = self.1;
        let bind = move || std::net::TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"));
        let listener = match &self.0 {
            Some(netns) => netns.run(bind)??,
            None => bind()?,
        };
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    /// Connects to the address.
    pub(crate) async fn connect(&self) -> Result<TcpStream> {
        let Self(Some(netns), to) = self.clone() else { return Ok(TcpStream::connect(self.1).await?) };
        let connect = move || netns.run(|| std::net::TcpStream::connect_timeout(&to, CONNECT_TIMEOUT));
        let stream = tokio::task::spawn_blocking(connect).await???;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream)?)
    }
}
