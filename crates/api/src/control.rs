//! The stream between antrea-controller and the agents: batches of groups and policies for a Node, and reports of what it enforces.
//!
//! [`encode`] and [`decode`] convert a batch to and from bytes, for the stream and for files. Unknown fields are skipped, and fail
//! closed: an unknown peer, port or rule of a policy allows nothing, while the policy still isolates its Pods. An invalid value is an
//! error for the whole batch.

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

/// The size limit of a message; a part of a batch is far smaller, except for a policy of unusual size.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Encodes a batch as one message.
pub fn encode(batch: &Batch) -> Vec<u8> {
    let changes = batch.changes.iter().map(encode::change).collect();
    wire::Part { snapshot: batch.snapshot, changes, end: true }.encode_to_vec()
}

/// Decodes and validates a batch.
pub fn decode(bytes: &[u8]) -> Result<Batch, Invalid> {
    let part = wire::Part::decode(bytes).map_err(|error| Invalid::new("message", error))?;
    if !part.end {
        return Err(Invalid::new("end", "is missing: this is only a part of a batch"));
    }
    let changes = decode::changes(part.changes).collect::<Result<_, _>>()?;
    Ok(Batch { snapshot: part.snapshot, changes })
}

#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;
