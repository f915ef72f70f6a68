//! CNI: from a container runtime's call to the agent, and back.
//!
//! `antrea-cni` reads a [`Request`] with [`request::read`], hands it to the agent with [`client::call`] and prints what
//! [`result`] renders. The agent implements [`Handler`] and runs it behind a [`Listener`].

mod attachment;
mod call;
pub mod client;
mod convert;
mod error;
mod lanes;
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

/// Where the agent listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/antrea/cni.sock";
