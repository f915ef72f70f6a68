//! Errors of kernel operations.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::netlink::Refusal;

/// A failed kernel operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network namespace that does not exist, or is not one.
    #[error("network namespace {}: {problem}", path.display())]
    Netns {
        /// Path of the namespace.
        path: PathBuf,
        /// The problem, and its likely cause.
        problem: String,
    },
    /// A name that the kernel does not accept for a device.
    #[error("device name `{device}`: {problem}")]
    DeviceName {
        /// The name that was rejected.
        device: String,
        /// The rule that it violates.
        problem: &'static str,
    },
    /// A device does not exist.
    #[error("{doing}: there is no device {device}")]
    NoDevice {
        /// The operation that failed.
        doing: String,
        /// Name of the missing device.
        device: String,
    },
    /// A device name is already in use.
    #[error("cannot create device {device} {place}: a device with this name exists; remove it, or use another name")]
    DeviceExists {
        /// The name in use.
        device: String,
        /// The namespace, for the message.
        place: String,
    },
    /// A foreign route has the same destination.
    #[error("cannot add the route to {destination}: {theirs} exists and is not ours; remove it if it is not needed")]
    RouteTaken {
        /// Destination of both routes.
        destination: String,
        /// The foreign route, as `ip route` shows it.
        theirs: String,
    },
    /// The kernel returned an error.
    #[error("{doing}: {errno}{}{}", because(.reason.as_ref()), permission(*errno))]
    Kernel {
        /// The operation that failed.
        doing: String,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's explanation, if it gave one.
        reason: Option<String>,
    },
    /// A file or a program cannot be used.
    #[error("{doing}: {source}")]
    Io {
        /// The operation that failed.
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A program of iptables returned an error.
    #[error("{doing}: {said}")]
    Iptables {
        /// The operation that failed.
        doing: String,
        /// The message of the program.
        said: String,
    },
    /// `nft` returned an error.
    #[error("{doing}: nft failed: {said}")]
    Nft {
        /// The operation that failed.
        doing: String,
        /// The message of `nft`.
        said: String,
    },
}

fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

fn permission(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM | Errno::EACCES => "; this needs root, or the capabilities NET_ADMIN and SYS_ADMIN",
        _ => "",
    }
}

impl Error {
    /// Whether a retry may succeed without any other action.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Netns { .. } | Self::DeviceName { .. } | Self::DeviceExists { .. } | Self::RouteTaken { .. } => false,
            // Open vSwitch creates our devices, possibly later.
            Self::NoDevice { .. } => true,
            Self::Kernel { errno, .. } => {
                matches!(errno, Errno::EAGAIN | Errno::EBUSY | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM)
            }
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory
            ),
            Self::Nft { .. } | Self::Iptables { .. } => true,
        }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn errno(doing: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let doing = doing.into();
        move |errno| Self::Kernel { doing, errno, reason: None }
    }

    pub(crate) fn refused(doing: impl Into<String>) -> impl FnOnce(Refusal) -> Self {
        let doing = doing.into();
        move |Refusal { errno, reason }| Self::Kernel { doing, errno, reason }
    }
}
