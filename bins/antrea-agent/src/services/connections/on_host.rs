//! Connections to NodePorts, in the kernel's table.

use std::time::Instant;

use host::conntrack::{UdpConnection, forget_udp, list_udp};
use node::Connections;

use super::{FlushError, Round};
use crate::blocking::blocking;

/// Lists connections, reads the Services after that, and flushes stale connections.
pub(super) async fn flush(query: impl AsyncFnOnce() -> Result<Connections, FlushError>) -> Result<Round, FlushError> {
    let began = Instant::now();
    let listed = blocking(list_udp).await?;
    let known = query().await?;
    let is_stale = |one: &UdpConnection| known.is_stale_on_host(one.sent_to, one.answered_by);
    let stale: Vec<UdpConnection> = listed.into_iter().filter(is_stale).collect();
    if stale.is_empty() {
        return Ok(Round { took: began.elapsed(), flushed: 0 });
    }
    let flushed = blocking(move || forget_udp(&stale)).await?;
    Ok(Round { took: began.elapsed(), flushed })
}
