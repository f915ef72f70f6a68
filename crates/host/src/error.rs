//! What can go wrong between us and the kernel.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::netlink::Refusal;

/// Why the kernel does not hold what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A namespace that is no longer there, or never was one.
    #[error("network namespace {}: {problem}", path.display())]
    Netns {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong, and what follows.
        problem: String,
    },
    /// A name that no device can have.
    #[error("device name `{device}`: {problem}")]
    DeviceName {
        /// The name.
        device: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A device that is not there.
    #[error("{doing}: there is no device {device}")]
    NoDevice {
        /// What was tried.
        doing: String,
        /// The device.
        device: String,
    },
    /// A name that somebody else has.
    #[error("cannot make device {device} {place}: a device of that name exists there; remove it, or use another name")]
    DeviceExists {
        /// The name.
        device: String,
        /// In which namespace.
        place: String,
    },
    /// A route of somebody else is in the way.
    #[error(
        "cannot add the route to {destination}: {theirs} is there, which is not ours; remove it if nobody needs it"
    )]
    RouteTaken {
        /// Where both lead.
        destination: String,
        /// The other route.
        theirs: String,
    },
    /// The kernel says no.
    #[error("{doing}: {errno}{}{}", because(.reason.as_ref()), permission(*errno))]
    Kernel {
        /// What was tried.
        doing: String,
        /// The kernel's answer.
        errno: Errno,
        /// Its reason, where it gives one.
        reason: Option<String>,
    },
    /// A file or a program cannot be used.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What happened.
        source: io::Error,
    },
    /// `nft` says no.
    #[error("{doing}: nft says: {said}")]
    Nft {
        /// What was tried.
        doing: String,
        /// Its message.
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
    /// Whether it may work later without anybody's help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Netns { .. } | Self::DeviceName { .. } | Self::DeviceExists { .. } | Self::RouteTaken { .. } => false,
            // Open vSwitch makes our devices.
            Self::NoDevice { .. } => true,
            Self::Kernel { errno, .. } => {
                matches!(errno, Errno::EAGAIN | Errno::EBUSY | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM)
            }
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory
            ),
            Self::Nft { .. } => true,
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
