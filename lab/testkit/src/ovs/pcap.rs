//! Reads the packets out of a pcap file that a daemon may still be writing.

use anyhow::{Result, bail};

const HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// The packets of a pcap file, in order. A record at the end that is not complete yet is left out.
pub(crate) fn packets(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let Some((header, mut rest)) = file.split_at_checked(HEADER) else { return Ok(Vec::new()) };
    let word: fn([u8; 4]) -> u32 = match header.first_chunk() {
        Some([0xa1, 0xb2, 0xc3, 0xd4]) => u32::from_be_bytes,
        Some([0xd4, 0xc3, 0xb2, 0xa1]) => u32::from_le_bytes,
        other => bail!("not a pcap file: it starts with {other:02x?}"),
    };
    let mut packets = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(RECORD_HEADER)
        && let Some(length) = record.get(8..).and_then(<[u8]>::first_chunk)
        && let Some((packet, after)) = after.split_at_checked(usize::try_from(word(*length))?)
    {
        packets.push(packet.to_vec());
        rest = after;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(word: fn(u32) -> [u8; 4], packets: &[&[u8]]) -> Vec<u8> {
        let mut file = word(0xa1b2_c3d4).to_vec();
        file.resize(HEADER, 0);
        for packet in packets {
            let length = word(packet.len().try_into().unwrap());
            file.extend([[7; 4], [7; 4], length, length].concat());
            file.extend_from_slice(packet);
        }
        file
    }

    #[test]
    fn both_byte_orders_are_read() {
        let expected = vec![b"one".to_vec(), b"three".to_vec()];
        assert_eq!(packets(&file(u32::to_be_bytes, &[b"one", b"three"])).unwrap(), expected);
        assert_eq!(packets(&file(u32::to_le_bytes, &[b"one", b"three"])).unwrap(), expected);
    }

    #[test]
    fn a_file_cut_anywhere_gives_the_packets_before_the_cut() {
        let whole = file(u32::to_le_bytes, &[b"one", b"two"]);
        for end in 0..=whole.len() {
            let expected = match end {
                0..43 => 0,
                43..62 => 1,
                _ => 2,
            };
            assert_eq!(packets(&whole[..end]).unwrap().len(), expected, "cut at {end}");
        }
    }

    #[test]
    fn another_format_is_refused() {
        packets(&[0; 64]).unwrap_err();
    }
}
