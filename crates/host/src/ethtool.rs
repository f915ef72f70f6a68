//! Offloads of a device, which `ethtool` calls `tx`, `sg`, `tso`, `gso`, `gro` and `rx`.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use libc::{c_char, c_ulong};
use nix::errno::Errno;

/// Each with the commands to set and get it. Checksums come first, because turning them off also turns off dependent offloads.
const OFFLOADS: [(&str, u32, u32); 6] = [
    ("tx", 0x17, 0x16),
    ("rx", 0x15, 0x14),
    ("sg", 0x19, 0x18),
    ("tso", 0x1f, 0x1e),
    ("gso", 0x24, 0x23),
    ("gro", SET_GRO, GET_GRO),
];
const SET_GRO: u32 = 0x2c;
const GET_GRO: u32 = 0x2b;
const SIOCETHTOOL: c_ulong = 0x8946;

/// `struct ethtool_value` of the kernel.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` as this request uses it.
#[repr(C)]
struct Request {
    name: [c_char; libc::IFNAMSIZ],
    value: *mut Value,
    /// Padding to the size of the union.
    rest: [u8; 16],
}

/// The offloads of devices in the namespace in which this value was created.
pub(crate) struct Offloads(UdpSocket);

impl Offloads {
    pub(crate) fn open() -> Result<Self, Errno> {
        // Any socket works; this one needs no unsafe code.
        let any = (std::net::Ipv4Addr::UNSPECIFIED, 0);
        UdpSocket::bind(any).map(Self).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Turns all of them off. Ignores those that the device cannot change (`EOPNOTSUPP`).
    pub(crate) fn turn_off(&self, device: &str) -> Result<(), Errno> {
        for (_, set, _) in OFFLOADS {
            match self.ioctl(device, &mut Value { command: set, data: 0 }) {
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The names of the active ones.
    pub(crate) fn on(&self, device: &str) -> Result<Vec<&'static str>, Errno> {
        let mut on = Vec::new();
        for (name, _, get) in OFFLOADS {
            if self.is_on(device, get)? {
                on.push(name);
            }
        }
        Ok(on)
    }

    /// Whether the device merges received packets (GRO).
    pub(crate) fn is_merging(&self, device: &str) -> Result<bool, Errno> {
        self.is_on(device, GET_GRO)
    }

    /// Turns off the merging of received packets (GRO).
    pub(crate) fn stop_merging(&self, device: &str) -> Result<(), Errno> {
        self.ioctl(device, &mut Value { command: SET_GRO, data: 0 })
    }

    fn is_on(&self, device: &str, get: u32) -> Result<bool, Errno> {
        let mut value = Value { command: get, data: 0 };
        match self.ioctl(device, &mut value) {
            Ok(()) => Ok(value.data != 0),
            Err(Errno::EOPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn ioctl(&self, device: &str, value: &mut Value) -> Result<(), Errno> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], value, rest: [0; 16] };
        // The last byte stays zero; names that are too long are rejected before.
        for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(device.bytes()) {
            *to = from.cast_signed();
        }
        #[expect(unsafe_code, reason = "ioctl(2): the structures have the layout of the kernel's and outlive the call")]
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        Errno::result(result).map(drop)
    }
}
