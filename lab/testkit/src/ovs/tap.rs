//! A port of the kernel datapath whose packets a test writes and reads: a tap device.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use nix::libc;

use crate::netns::Netns;

/// A frame is not longer: the tap has no offloads.
const LONGEST_FRAME: usize = 65536;

/// A tap device, gone on drop.
#[derive(Debug)]
pub(super) struct Tap {
    file: File,
    /// All frames that the switch has sent out of the port.
    received: Vec<Vec<u8>>,
}

impl Tap {
    /// Creates the device in `netns`, and sets it up without addresses: the kernel sends nothing of its own.
    pub(super) fn create(netns: &Netns, name: &str) -> Result<Self> {
        let file = netns.run(|| open(name))?.with_context(|| format!("cannot create the tap {name}"))?;
        // The device's queue keeps what the test has not read yet.
        netns.ip(["link", "set", "dev", name, "addrgenmode", "none", "txqueuelen", "10000"])?;
        netns.link_up(name)?;
        Ok(Self { file, received: Vec::new() })
    }

    /// Gives the switch a frame. Returns when the kernel has forwarded it, or has passed it to ovs-vswitchd.
    pub(super) fn send(&mut self, frame: &[u8]) -> Result<()> {
        let written = self.file.write(frame)?;
        ensure!(written == frame.len(), "wrote {written} bytes of {}", frame.len());
        Ok(())
    }

    /// All frames that the switch has ever sent out of the port.
    pub(super) fn received(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut buffer = vec![0; LONGEST_FRAME];
        loop {
            match self.file.read(&mut buffer) {
                Ok(length) => self.received.push(buffer[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.received.clone()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Opens a new tap device in the network namespace of this thread.
fn open(name: &str) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // struct ifreq: the name, then the flags, then room for other fields.
    let mut request = [0u8; 40];
    ensure!(name.len() < libc::IFNAMSIZ, "the name {name} is too long");
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = u16::try_from(libc::IFF_TAP | libc::IFF_NO_PI)?;
    request[libc::IFNAMSIZ..][..2].copy_from_slice(&flags.to_ne_bytes());
    #[expect(unsafe_code, reason = "one system call, which reads and writes the buffer that it is given")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    nix::errno::Errno::result(result)?;
    Ok(file)
}
