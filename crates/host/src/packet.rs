//! Packet sockets: send frames that the kernel would not send by itself.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends frames from one device of the namespace in which it was opened.
pub(crate) struct PacketSocket {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
}

impl PacketSocket {
    /// A socket for the device with this index. It receives nothing.
    pub(crate) fn open(index: u32) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "socket(2), whose result has no other owner")]
        let socket = unsafe {
            match libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) {
                -1 => return Err(io::Error::last_os_error()),
                socket => OwnedFd::from_raw_fd(socket),
            }
        };
        let address = libc::sockaddr_ll {
            sll_family: libc::sa_family_t::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
            sll_protocol: 0,
            sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        Ok(Self { socket, address })
    }

    /// Sends one complete frame, with its Ethernet header.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let length = libc::socklen_t::try_from(mem::size_of_val(&self.address)).map_err(io::Error::other)?;
        #[expect(unsafe_code, reason = "sendto(2) reads the frame and the address, which outlive the call")]
        let sent = unsafe {
            let (socket, to) = (self.socket.as_raw_fd(), (&raw const self.address).cast());
            libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, to, length)
        };
        match sent {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
