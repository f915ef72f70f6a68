//! OpenFlow 1.5 with the Nicira extensions, as implemented by Open vSwitch: values, their bytes, and their ovs-ofctl text.
//!
//! *Role.* Everything that crosses the OpenFlow socket is a plain value here. Each value can be encoded, decoded, printed
//! in the syntax of `ovs-ofctl -O OpenFlow15` and parsed back from it.
//!
//! *Invariants.* Decoding is total: any bytes give a value or a [`wire::DecodeError`], nothing panics, and unknown
//! parts keep their bytes. Values are canonical: two spellings that the
//! switch treats alike (`load` and `set_field`, `tcp` and `eth_type=0x800,nw_proto=6`) are the same value.
//!
//! *Not here.* Sockets, timers and retries (crate `ovs`); the meaning of flows (crate `pipeline`).

pub mod action;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod bundle;
pub mod control;
pub mod error;
pub mod field;
pub mod flow;
pub mod framer;
pub mod group;
pub mod header;
pub mod matching;
pub mod message;
pub mod meter;
pub mod monitor;
pub mod multipart;
pub mod packet;
pub mod port;
pub mod ports;
pub mod property;
pub mod stats;
pub mod text;
pub mod wire;
