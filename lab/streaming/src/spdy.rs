//! SPDY/3.1, the server side, as far as Kubernetes uses it: streams that the client opens, with headers that say what for.
//!
//! SETTINGS and WINDOW_UPDATE are ignored: the implementation of Kubernetes sends none, and has no flow control besides
//! that of TCP.

mod connection;
mod frame;
mod headers;

#[cfg(test)]
pub(crate) use connection::tests;
pub(crate) use connection::{Connection, Received, Stream, Writer};

fn invalid(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("SPDY: {why}"))
}
