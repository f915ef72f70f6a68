//! Moments, as Kubernetes writes them.

use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment to the second, such as `2026-01-31T12:00:00Z`; the earlier one is the lesser.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(
    /// Seconds since 1970 began, and one more from then on: so `Option<Timestamp>` takes no room of its own.
    NonZeroI64,
);

/// A text is no moment as RFC 3339 writes one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a moment, as 2026-01-31T12:00:00Z is")]
pub struct InvalidTimestamp(String);

impl fmt::Display for Timestamp {
    /// As in RFC 3339, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.get() - i64::from(self.0.get() > 0);
        let (day, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // The inverse of `days`: eras of 400 years that begin with March of the year 0.
        let day = day + 719_468;
        let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidTimestamp(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?
    };
    let is = |at: usize, expected: &[u8]| text.as_bytes().get(at).is_some_and(|byte| expected.contains(byte));
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !separated || !in_range {
        return None;
    }
    let zone = text.get(19..)?;
    let zone = zone.strip_prefix('.').map_or(zone, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    NonZeroI64::new(seconds + i64::from(seconds >= 0)).map(Timestamp)
}

/// How many seconds a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    Some(sign * (i64::from(hours.parse::<u8>().ok()?) * 3600 + i64::from(minutes.parse::<u8>().ok()?) * 60))
}

/// Days from 1970-01-01 to a date, in years that begin with March: then the leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Five months have 153 days, beginning with March.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// A moment that cannot be read is none: nothing else about the object is lost for it.
pub(super) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_printed_as_it_is_read() {
        for text in ["1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2024-02-29T12:30:45Z", "2100-03-01T00:00:01Z"] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        }
    }

    fn at(text: &str) -> i64 {
        let Timestamp(seconds) = text.parse().unwrap();
        seconds.get() - i64::from(seconds.get() > 0)
    }

    #[test]
    fn moments_are_read_as_rfc_3339_writes_them() {
        assert_eq!(at("1970-01-01T00:00:00Z"), 0);
        assert_eq!(at("1969-12-31T23:59:59Z"), -1);
        assert_eq!(at("2000-02-29T12:34:56Z"), 951_827_696);
        assert_eq!(at("2026-11-17T22:00:00Z"), 1_794_952_800);
        assert_eq!(at("2026-11-17T22:00:00.123456Z"), 1_794_952_800);
        assert_eq!(at("2026-11-18T00:30:00+02:30"), 1_794_952_800);
        for text in ["", "now", "2026-11-17", "2026-13-17T22:00:00Z", "2026-11-17T22:00:00", "2026-11-17T22:00:00+x"] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not a moment, as 2026-01-31T12:00:00Z is"));
        }
    }

    #[test]
    fn the_earlier_is_the_lesser() {
        let [first, second]: [Timestamp; 2] =
            ["2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"].map(|text| text.parse().unwrap());
        assert!(first < second);
        assert_eq!(size_of::<Option<Timestamp>>(), 8);
    }
}
