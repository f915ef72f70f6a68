//! Outputs of the brain beside its descriptions of desired state: requests to the rim, each answered by an event.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use types::ObjectName;
use types::control::Report;
use types::host::PodLink;

use crate::attachments::{AttachmentId, CallId, CniError};

/// A request of the brain to the rim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// List all groups, and then all flows of the switch ([`crate::SwitchEvent::Listed`]).
    List,
    /// Commit the bundle of [`crate::Brain::bundle`] ([`crate::SwitchEvent::Committed`]).
    Commit,
    /// Connect to this replica of the controller, instead of an earlier attempt.
    #[expect(missing_docs, reason = "the names say it")]
    Connect { attempt: u64, address: SocketAddr },
    /// End the stream, for this reason.
    Disconnect(String),
    /// Read the policy snapshot on disk ([`crate::ControllerEvent::Restored`]).
    RestoreSnapshot,
    /// Write the policies that are in use to disk.
    SaveSnapshot,
    /// Send reports on the stream.
    Report(Vec<Report>),
    /// Read a waiting Pod and the policies of its namespace ([`crate::ControllerEvent::ReadPolicies`]).
    #[expect(missing_docs, reason = "the names say it")]
    ReadPolicies { pod: ObjectName, uid: String },
    /// Allocate addresses from the IPAM store ([`crate::CniEvent::Allocated`]).
    #[expect(missing_docs, reason = "the names say it")]
    Allocate { call: CallId, id: AttachmentId },
    /// Compare a veth with its description ([`crate::CniEvent::Checked`]).
    #[expect(missing_docs, reason = "the names say it")]
    CheckVeth { call: CallId, link: PodLink },
    /// Create a veth, instead of one with the same name ([`crate::CniEvent::VethCreated`], then
    /// [`crate::CniEvent::VethAttached`]).
    #[expect(missing_docs, reason = "the names say it")]
    CreateVeth { call: CallId, link: PodLink },
    /// Flush the connections of addresses ([`crate::CniEvent::AddressesPrepared`]).
    #[expect(missing_docs, reason = "the names say it")]
    PrepareAddresses { call: CallId, addresses: Vec<IpAddr> },
    /// Announce the Pod's addresses to its neighbours.
    Announce(PodLink),
    /// Delete a veth, if it exists ([`crate::CniEvent::VethDeleted`]).
    DeleteVeth(String),
    /// Release the addresses of an attachment, after their connections are flushed if it was connected
    /// ([`crate::CniEvent::Released`]).
    #[expect(missing_docs, reason = "the names say it")]
    Release { id: AttachmentId, flush: bool },
    /// Answer a CNI call: ADD with the veth, DEL with `None`.
    #[expect(missing_docs, reason = "the names say it")]
    Reply { call: CallId, outcome: Result<Option<PodLink>, CniError> },
    /// Write a line to the log.
    Log(Notice),
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the text says what each is")]
pub enum Notice {
    SwitchRetry { what: &'static str, problem: String, delay: Duration, is_news: bool },
    Rejected { problem: String },
    StreamEnded { address: SocketAddr, reason: String },
    ConnectRetry { address: SocketAddr, reason: String, is_news: bool },
    Connected { address: SocketAddr },
    NoController,
    RestoredSnapshot { changes: usize },
    SnapshotRejected { problem: String },
    EvaluatedLocally { pod: ObjectName, policies: usize },
    PodWaits { pod: ObjectName, reason: String, is_news: bool },
    NewPort { interface: String, port: u16 },
    PortRemoved { interface: String, pod: ObjectName },
    UnusableInterface { interface: String, pod: ObjectName, reason: String },
    RolledBack { pod: ObjectName, problem: String },
    VethNotDeleted { interface: String, problem: String },
    NotReleased { id: AttachmentId, problem: String, is_news: bool },
}

/// How important a line of the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Warn,
    Info,
    Debug,
}

impl Notice {
    /// The level at which it is logged: a repeated failure only at [`Level::Debug`].
    pub fn level(&self) -> Level {
        match self {
            Self::SwitchRetry { is_news: false, .. }
            | Self::ConnectRetry { is_news: false, .. }
            | Self::PodWaits { is_news: false, .. }
            | Self::NotReleased { is_news: false, .. } => Level::Debug,
            Self::Connected { .. } | Self::RestoredSnapshot { .. } | Self::NewPort { .. } => Level::Info,
            _ => Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwitchRetry { what, problem, delay, .. } => {
                write!(f, "cannot {what}; retrying in {delay:?}: {problem}")
            }
            Self::Rejected { problem } => {
                write!(f, "the switch rejected a flow or group; continuing without it: {problem}")
            }
            Self::StreamEnded { address, reason } => {
                write!(f, "disconnected from antrea-controller at {address}; the last policies stay enforced: {reason}")
            }
            Self::ConnectRetry { address, reason, .. } => {
                write!(f, "cannot connect to antrea-controller at {address}; retrying: {reason}")
            }
            Self::NoController => f.write_str(
                "antrea-controller is not deployed in this cluster: Pods are connected, and no NetworkPolicy is enforced",
            ),
            Self::Connected { address } => write!(f, "connected to antrea-controller at {address}"),
            Self::RestoredSnapshot { changes } => {
                write!(
                    f,
                    "antrea-controller is not available; enforcing the policy snapshot on disk ({changes} objects)"
                )
            }
            Self::SnapshotRejected { problem } => write!(f, "cannot enforce the policy snapshot on disk: {problem}"),
            Self::EvaluatedLocally { pod, policies } => write!(
                f,
                "antrea-controller is not available; enforcing the policies of the Pod's namespace: Pod {pod}, \
                 {policies} policies"
            ),
            Self::PodWaits { pod, reason, .. } => {
                write!(f, "antrea-controller is not available; Pod {pod} waits for its policies: {reason}")
            }
            Self::NewPort { interface, port } => write!(f, "Pod interface {interface} has a new OpenFlow port: {port}"),
            Self::PortRemoved { interface, pod } => {
                write!(f, "the port {interface} of Pod {pod} was removed from the bridge; adding it again")
            }
            Self::UnusableInterface { interface, pod, reason } => {
                write!(f, "Open vSwitch cannot use interface {interface} of Pod {pod}; was the Pod deleted? {reason}")
            }
            Self::RolledBack { pod, problem } => write!(f, "rolled back the ADD of Pod {pod}: {problem}"),
            Self::VethNotDeleted { interface, problem } => {
                write!(f, "cannot remove veth {interface}; the agent tries again at its next start: {problem}")
            }
            Self::NotReleased { id, problem, .. } => {
                write!(f, "cannot release the addresses of {id}; retrying: {problem}")
            }
        }
    }
}
