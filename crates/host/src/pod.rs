//! The cable between a Pod and the switch: plugged whole or not at all, and unplugged.
//!
//! All functions work from the namespace of the calling thread, which is the host's; several may work at the same time.
//!
//! The receive buffer of a port in the userspace datapath is ovs-vswitchd's: it takes what `net/core/rmem_default` says when
//! the port is added, for all sockets of the machine. Nothing that is done to a device changes it.

mod announce;
mod check;
mod plug;

pub use announce::announce;
pub use check::{Difference, check};
pub use plug::{attach, collect, detach};

use crate::error::Error;

/// Refuses what the kernel would refuse, or worse, cut or complete.
fn valid_name(device: &str) -> Result<(), Error> {
    let invalid = |problem| Err(Error::DeviceName { device: device.to_owned(), problem });
    match device {
        "" => invalid("is empty"),
        "." | ".." => invalid("is the name of a directory"),
        name if name.len() >= libc::IFNAMSIZ => invalid("is longer than 15 bytes"),
        name if name.contains('%') => invalid("has a `%`, which the kernel would complete to a name that is free"),
        name if !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte)) => {
            invalid("has a character other than letters, digits and `-_.`")
        }
        _ => Ok(()),
    }
}
