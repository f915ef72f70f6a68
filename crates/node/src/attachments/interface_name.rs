//! Names of veths on the host.

/// Length of the prefix from the Pod's name.
const READABLE: usize = 8;
/// Length of the hash suffix: prefix, dash and suffix fill the 15 bytes that the kernel allows.
const DIGITS: usize = 6;

/// Name of a Pod's veth on the host, as Antrea computes it: a prefix of the Pod's name, and a hash of its container ID.
pub fn interface_name(pod: &str, container: &str) -> String {
    let digits = sha1_smol::Sha1::from(container).digest().to_string();
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
