//! What a Pod's device is called on the host.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// How much of the Pod's name is in it.
const READABLE: usize = 8;
/// How many digits tell Pods of one name apart: with the dash they fill the 15 bytes that the kernel allows.
const DIGITS: usize = 6;

/// The name of a Pod's device on the host: the beginning of the Pod's name, and digits that follow from its container's id, as
/// Antrea has them.
pub(super) fn interface_name(pod: &str, container: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, container.as_bytes());
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let readable: String = pod.chars().take(READABLE).collect();
    format!("{readable}-{}", &digits[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_antrea() {
        // The first six digits of `printf %s CONTAINER | sha1sum`.
        assert_eq!(interface_name("coredns-5644d7b6d9-8xw2z", "abc"), "coredns--a9993e");
        assert_eq!(interface_name("db", ""), "db-da39a3");
        assert!(interface_name(&"x".repeat(253), &"y".repeat(64)).len() <= 15);
    }
}
