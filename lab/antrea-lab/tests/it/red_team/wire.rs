//! Sends and captures raw frames in a network namespace.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket};
use nix::sys::socket::{setsockopt, sockopt};
use testkit::Netns;

/// Receive buffer, large enough for a flood.
const BUFFER: usize = 16 << 20;

/// A packet socket on one interface of a namespace.
pub(super) struct Tap(OwnedFd);

impl Tap {
    pub(super) fn open(netns: &Netns, interface: &str) -> Self {
        let make = || {
            let all = nix::ifaddrs::getifaddrs().unwrap();
            let link = |it: nix::ifaddrs::InterfaceAddress| -> Option<LinkAddr> {
                it.address.filter(|_| it.interface_name == interface)?.as_link_addr().copied()
            };
            let link = all.filter_map(link).next().unwrap_or_else(|| panic!("there is no interface {interface}"));
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
            bind(socket.as_raw_fd(), &link).unwrap();
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).unwrap();
            socket
        };
        Self(netns.run(make).unwrap())
    }

    /// Sends a frame; the interface may have no room for it just now.
    pub(super) fn send(&self, frame: &[u8]) -> nix::Result<usize> {
        loop {
            match send(self.0.as_raw_fd(), frame, MsgFlags::empty()) {
                Err(nix::Error::EAGAIN | nix::Error::ENOBUFS) => {
                    let mut wanted = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut wanted, PollTimeout::from(10u8));
                }
                sent => return sent,
            }
        }
    }

    /// All frames that have come, or gone, since the last time.
    pub(super) fn frames(&self) -> Vec<Vec<u8>> {
        let (mut frames, mut buffer) = (Vec::new(), vec![0; 65536]);
        while let Ok(length) = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            frames.push(buffer[..length].to_vec());
        }
        frames
    }

    /// How many frames of this kind have come until a moment.
    pub(super) fn count(&self, end: Instant, wanted: impl Fn(&[u8]) -> bool) -> usize {
        let mut count = 0;
        loop {
            count += self.frames().iter().filter(|frame| wanted(frame)).count();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return count;
            }
            let mut readable = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut readable, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
        }
    }

    /// Waits for a frame of this kind.
    pub(super) fn wait(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + patience;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if let Some(frame) = self.frames().into_iter().find(|frame| wanted(frame)) {
                return Some(frame);
            }
            let mut readable = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut readable, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
        }
        None
    }
}
