//! Times and random names, in the formats of objects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;

/// The current time, to the second: `2026-11-16T02:42:41Z`.
pub(crate) fn now() -> String {
    rfc3339(since_epoch().as_secs())
}

/// Time since the start of 1970.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970 as a UTC timestamp.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of the year 0, so that the leap day is the last of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = year + era * 400;
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a UTC timestamp, with or without fractions, into seconds since 1970.
pub(crate) fn parse_rfc3339(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let fixed = [(4, '-'), (7, '-'), (10, 'T'), (13, ':'), (16, ':')];
    if !text.is_ascii() || fixed.iter().any(|&(at, c)| text.chars().nth(at) != Some(c)) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 || year < 1970
    {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = (days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second;
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    match zone.as_bytes() {
        b"Z" => Some(seconds),
        [sign, h1, h2, b':', m1, m2] => {
            let digit = |c: &u8| u64::from(c.wrapping_sub(b'0'));
            let offset = (digit(h1) * 10 + digit(h2)) * 3_600 + (digit(m1) * 10 + digit(m2)) * 60;
            if *sign == b'-' { Some(seconds + offset) } else { seconds.checked_sub(offset) }
        }
        _ => None,
    }
}

/// Random bytes from the cryptographic generator.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The generator does not fail once the program runs.
    let _ = rand::fill(&mut bytes);
    bytes
}

/// A random UUID, version 4.
pub(crate) fn uid() -> String {
    let number = u128::from_be_bytes(random());
    let number = number & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{number:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}

/// Random letters and digits that form no words, for the suffix of generated names.
pub(crate) fn suffix(length: usize) -> String {
    let bytes: [u8; 16] = random();
    letters(bytes.get(..length).unwrap_or(&bytes))
}

/// A letter or digit for each byte, from an alphabet that forms no words.
pub(crate) fn letters(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).map_or('x', |&letter| letter.into());
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_printed_and_parsed() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_794_796_961, "2026-11-16T02:42:41Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            assert_eq!(parse_rfc3339(text), Some(seconds));
        }
        assert_eq!(parse_rfc3339("2026-11-16T04:42:41.123+02:00"), Some(1_794_796_961));
        assert_eq!(parse_rfc3339("2026-11-16"), None);
    }

    #[test]
    fn a_uid_has_its_version() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uid.as_bytes()[19]));
    }
}
