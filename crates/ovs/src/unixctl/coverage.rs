//! Counters of what happens inside of a daemon.

use std::collections::BTreeMap;

/// The counters of a daemon that have counted anything, by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Coverage {
    /// Counters with a value above zero, by name.
    pub counters: BTreeMap<String, Counter>,
}

/// How often something happened.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counter {
    /// Since the daemon was started.
    pub total: u64,
    /// Times a second, over the last 5 seconds.
    pub rate_5s: f64,
    /// Times a second, over the last minute.
    pub rate_1m: f64,
    /// Times a second, over the last hour.
    pub rate_1h: f64,
}

impl Coverage {
    /// How often something happened since the daemon was started; what is not listed never did.
    pub fn total(&self, name: &str) -> u64 {
        self.counters.get(name).map_or(0, |counter| counter.total)
    }

    /// Reads the output of `coverage/show`; the error is the line that cannot be read.
    pub(super) fn parse(text: &str) -> Result<Self, &str> {
        let mut counters = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with("Event coverage") || line.ends_with(" events never hit") {
                continue;
            }
            let (name, counter) = counter(line).ok_or(line)?;
            counters.insert(name.to_owned(), counter);
        }
        Ok(Self { counters })
    }
}

fn counter(line: &str) -> Option<(&str, Counter)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [name, rate_5s, rate_1m, rate_1h, "total:", total] = words.as_slice() else { return None };
    let rate = |text: &str| text.strip_suffix("/sec")?.parse().ok();
    let (rate_5s, rate_1m, rate_1h) = (rate(rate_5s)?, rate(rate_1m)?, rate(rate_1h)?);
    Some((name, Counter { total: total.parse().ok()?, rate_5s, rate_1m, rate_1h }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text = "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=d86d18c9:\n\
            bridge_reconfigure         0.0/sec     0.000/sec        0.0000/sec   total: 5\n\
            util_xalloc              120.4/sec    10.150/sec        0.1692/sec   total: 12345\n\
            121 events never hit\n";
        let coverage = Coverage::parse(text).unwrap();
        assert_eq!((coverage.total("bridge_reconfigure"), coverage.total("no such counter")), (5, 0));
        assert_eq!(
            coverage.counters["util_xalloc"],
            Counter { total: 12345, rate_5s: 120.4, rate_1m: 10.15, rate_1h: 0.1692 }
        );
        assert_eq!(Coverage::parse("what is this"), Err("what is this"));
    }
}
