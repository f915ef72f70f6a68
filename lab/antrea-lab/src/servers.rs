//! What runs in Pods without an image: small servers for tests and demonstrations, and the cluster's DNS.

pub(crate) mod dns;
pub(crate) mod http;
pub(crate) mod udp;
mod zone;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until it is told to end.
pub(crate) async fn until_told<T>(work: impl Future<Output = Result<T>>) -> Result<()> {
    let mut told = signal(SignalKind::terminate())?;
    tokio::select! {
        result = work => result.map(drop),
        _ = told.recv() => Ok(()),
    }
}

/// The name of the machine, which is the Pod's.
fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
