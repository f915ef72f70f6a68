//! Forwards TCP connections between network namespaces that are not connected.

use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;

use crate::accept::or_pause;
pub(crate) use crate::endpoint::End;

/// Forwards all connections of a listener to `to`.
pub(crate) async fn forward(listener: TcpListener, to: End) {
    forward_to(listener, || to.clone()).await;
}

/// Forwards each connection of a listener to the current result of `to`.
pub(crate) async fn forward_to(listener: TcpListener, to: impl Fn() -> End) {
    loop {
        let Ok((mut from, _)) = or_pause(listener.accept().await).await else { continue };
        let to = to();
        tokio::spawn(async move {
            let outcome = async {
                let mut other = to.connect().await?;
                // Small requests are not delayed.
                from.set_nodelay(true)?;
                other.set_nodelay(true)?;
                copy_bidirectional(&mut from, &mut other).await?;
                anyhow::Ok(())
            };
            if let Err(error) = outcome.await {
                tracing::debug!("forwarding to {} failed: {error:#}", to.1);
            }
        });
    }
}
