//! Servers that Pods run without an image: HTTP and UDP servers for tests and demonstrations, and the cluster's DNS server.

pub(crate) mod dns;
pub(crate) mod http;
pub(crate) mod udp;
mod zone;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Runs `work` until SIGTERM.
pub(crate) async fn until_terminated<T>(work: impl Future<Output = Result<T>>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = work => result.map(drop),
        _ = terminate.recv() => Ok(()),
    }
}

/// Host name, which is the name of the Pod.
fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
