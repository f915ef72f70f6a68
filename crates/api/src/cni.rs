//! CNI: calls of container runtimes, from the plugin to the agent and back.
//!
//! `antrea-cni` reads a [`Request`] with [`request::read`], sends it to the agent with [`client::call`] and prints the
//! output of [`result`]. The agent implements [`Handler`] and serves it on a [`Listener`].

mod attachment;
mod call;
pub mod client;
mod convert;
mod error;
mod lanes;
#[cfg(test)]
mod recorded_tests;
pub mod request;
pub mod result;
mod server;
mod version;

/// Messages and service of `proto/cni.proto`.
#[expect(unreachable_pub, clippy::allow_attributes, clippy::allow_attributes_without_reason, reason = "generated")]
mod wire {
    include!("cni/generated.rs");
}

pub use attachment::{Attachment, Dns, Interface, Ip, Route};
pub use call::{AttachmentId, Call, ContainerId, InterfaceName, Invalid, Pod, Release};
pub use error::{Code, Error};
pub use request::{Command, Question, Refusal, Request};
pub use server::{BindError, Handler, Listener};
pub use version::Version;

/// Default path of the agent's socket.
pub const DEFAULT_SOCKET: &str = "/var/run/antrea/cni.sock";
