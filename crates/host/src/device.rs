//! Validation of device names.

use crate::error::Error;

/// Rejects names that the kernel would reject, truncate or expand.
pub(crate) fn valid_name(device: &str) -> Result<(), Error> {
    let invalid = |problem| Err(Error::DeviceName { device: device.to_owned(), problem });
    match device {
        "" => invalid("is empty"),
        "." | ".." => invalid("is the name of a directory"),
        name if name.len() >= libc::IFNAMSIZ => invalid("is longer than 15 bytes"),
        name if name.contains('%') => invalid("contains `%`, which the kernel would expand to a free name"),
        // The kernel would accept quotation marks, but nft does not.
        name if !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:\"\\".contains(&byte)) => {
            invalid("has a character other than letters, digits and `-_.`")
        }
        _ => Ok(()),
    }
}
