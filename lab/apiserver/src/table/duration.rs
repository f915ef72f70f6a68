//! Ages in the format of kubectl.

use std::time::Duration;

use crate::moment;

/// The time since a timestamp: `5s`, `3m20s`, `2d4h`.
pub(crate) fn age(time: &str) -> String {
    match moment::parse_rfc3339(time) {
        None => "<unknown>".to_owned(),
        Some(then) => human(Duration::from_secs(moment::since_epoch().as_secs().saturating_sub(then))),
    }
}

fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let (years, rest) = (days / 365, days % 365);
    let two = |number: u64, unit: &str, more: u64, less: &str| {
        if more == 0 { format!("{number}{unit}") } else { format!("{number}{unit}{more}{less}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, "y", rest, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_get_coarser_as_they_grow() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3_600, "60m"),
            (4 * 3_600 + 60, "4h1m"),
            (47 * 3_600, "47h"),
            (50 * 3_600, "2d2h"),
            (30 * 86_400, "30d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(human(Duration::from_secs(seconds)), text);
        }
    }
}
