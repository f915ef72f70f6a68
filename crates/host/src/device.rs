//! Names of devices.

use crate::error::Error;

/// Refuses what the kernel would refuse, or worse, cut or complete.
pub(crate) fn valid_name(device: &str) -> Result<(), Error> {
    let invalid = |problem| Err(Error::DeviceName { device: device.to_owned(), problem });
    match device {
        "" => invalid("is empty"),
        "." | ".." => invalid("is the name of a directory"),
        name if name.len() >= libc::IFNAMSIZ => invalid("is longer than 15 bytes"),
        name if name.contains('%') => invalid("has a `%`, which the kernel would complete to a name that is free"),
        // Quotation marks the kernel would take, and nft would not.
        name if !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:\"\\".contains(&byte)) => {
            invalid("has a character other than letters, digits and `-_.`")
        }
        _ => Ok(()),
    }
}
