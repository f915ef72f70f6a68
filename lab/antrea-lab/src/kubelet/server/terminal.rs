//! A terminal inside a container.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use streaming::remote_command::Size;
use tokio::io::unix::AsyncFd;

nix::ioctl_write_ptr_bad!(unlock, libc::TIOCSPTLCK, libc::c_int);
nix::ioctl_write_int_bad!(open_peer, libc::TIOCGPTPEER);
nix::ioctl_write_int_bad!(set_controlling, libc::TIOCSCTTY);
nix::ioctl_write_ptr_bad!(set_size, libc::TIOCSWINSZ, libc::winsize);

/// The kubelet's side of a terminal.
pub(super) struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// Creates a terminal in the container with this init process. Returns it with the side of the container.
    pub(super) fn open(pid: u32) -> Result<(Self, OwnedFd)> {
        // The container's own devpts, so that the terminal has a name inside.
        let path = format!("/proc/{pid}/root/dev/pts/ptmx");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
        let here: OwnedFd = options.open(&path).with_context(|| format!("cannot open {path}"))?.into();
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        #[expect(unsafe_code, reason = "system calls on a valid descriptor; the second one returns a new descriptor")]
        let inside = unsafe {
            unlock(here.as_raw_fd(), &0).context("cannot unlock the terminal")?;
            let inside = open_peer(here.as_raw_fd(), flags).context("cannot open the terminal")?;
            OwnedFd::from_raw_fd(inside)
        };
        #[expect(unsafe_code, reason = "an OwnedFd stays open, and is the same descriptor, until it is dropped")]
        let here = unsafe { AsyncFd::register(here) }.context("cannot wait for the terminal")?;
        Ok((Self(here), inside))
    }

    /// Sets the size that programs in the terminal see.
    pub(super) fn resize(&self, size: Size) {
        let size = libc::winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        #[expect(unsafe_code, reason = "a system call with a valid descriptor and a valid structure")]
        let set = unsafe { set_size(self.0.get_ref().as_raw_fd(), &size) };
        if let Err(error) = set {
            tracing::debug!("cannot set the size of a terminal: {error}");
        }
    }

    /// Reads output; 0 bytes after the last program has closed the terminal.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer)?)) {
                // The kernel's way to say that no program has it open.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EIO as i32) => return Ok(0),
                Ok(result) => return result,
                Err(_) => {}
            }
        }
    }

    /// Writes input; waits while the programs in the terminal do not read.
    pub(super) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.0.writable().await?;
            if let Ok(written) = ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), data)?)) {
                data = data.get(written?..).unwrap_or_default();
            }
        }
        Ok(())
    }
}

/// Makes the terminal on standard input that of the session. To be called between fork and exec.
pub(super) fn control() -> io::Result<()> {
    #[expect(unsafe_code, reason = "a system call on standard input")]
    unsafe {
        set_controlling(libc::STDIN_FILENO, 0)?;
    }
    Ok(())
}
