//! The Internet checksum, whole and by differences, and the CRC of SCTP.

/// The checksum of bytes, with a sum to begin with.
pub(super) fn internet(bytes: &[u8], start: u32) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum = words.iter().fold(start, |sum, word| add(sum, u16::from_be_bytes(*word)));
    let sum = rest.first().map_or(sum, |last| add(sum, u16::from(*last) << 8));
    !fold(sum)
}

/// The sum that the addresses, the protocol and the length of the segment add to the checksum of the transport.
pub(super) fn pseudo_header(addresses: &[u8], proto: u8, length: usize) -> u32 {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let sum = u32::from(!internet(addresses, u32::from(proto)));
    u32::from(fold(sum + u32::from(fold(length))))
}

/// What a checksum becomes when one word that it covers changes.
pub(super) fn replaced(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

/// CRC-32C, as SCTP writes it.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)));
    (!crc).swap_bytes()
}

fn add(sum: u32, word: u16) -> u32 {
    u32::from(fold(sum)) + u32::from(word)
}

fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    let twice = (once >> 16) + (once & 0xffff);
    u16::try_from(twice).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incremental_checksum_equals_the_full_one() {
        let mut bytes = [0x45, 0, 0, 0x54, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0];
        let before = internet(&bytes, 0);
        let (old, new) = (u16::from_be_bytes([bytes[8], bytes[9]]), 0x3f06);
        bytes[8] = 0x3f;
        assert_eq!(replaced(before, old, new), internet(&bytes, 0));
    }

    #[test]
    fn the_crc_is_that_of_sctp() {
        // The check value of CRC-32C is 0xe3069283; SCTP sends its bytes from the lowest.
        assert_eq!(crc32c(b"123456789"), 0x8392_06e3);
    }
}
