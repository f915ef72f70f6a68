//! The stream between antrea-controller and the agents: batches of what a Node has to know, and reports of what it enforces.
//!
//! [`encode`] and [`decode`] are a batch as bytes, on the stream and wherever a Node keeps it. What a reader does not know is
//! skipped, and whoever skips allows less: an unknown peer, port or rule of a policy allows nothing, while the policy isolates all
//! the same. A value that cannot be what it says is an error, and nothing of its batch holds.

pub mod client;
mod decode;
mod encode;
mod parts;
pub mod server;

/// Messages and service of `proto/control.proto`.
#[expect(unreachable_pub, clippy::allow_attributes_without_reason, reason = "generated")]
mod wire {
    include!("control/generated.rs");
}

pub use decode::Invalid;

use prost::Message as _;
use types::control::Batch;

/// The most that one message may have; a part of a batch is far smaller, but for a policy of unusual size.
const MOST_BYTES: usize = 8 << 20;

/// A batch as bytes.
pub fn encode(batch: &Batch) -> Vec<u8> {
    let changes = batch.changes.iter().map(encode::change).collect();
    wire::Part { snapshot: batch.snapshot, changes, end: true }.encode_to_vec()
}

/// The batch that bytes say, whatever wrote them.
pub fn decode(bytes: &[u8]) -> Result<Batch, Invalid> {
    let part = wire::Part::decode(bytes).map_err(|error| Invalid::new("message", error))?;
    if !part.end {
        return Err(Invalid::new("end", "is missing: this is a part of a batch, and no batch"));
    }
    let changes = decode::changes(part.changes).collect::<Result<_, _>>()?;
    Ok(Batch { snapshot: part.snapshot, changes })
}

#[cfg(test)]
mod tests;
