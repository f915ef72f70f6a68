//! Metrics in the Prometheus text format, version 0.0.4.
//!
//! Not the official crate, because metrics keep Antrea's names so that existing dashboards work: some counters are named
//! `..._count`, which the crate would rename to `..._count_total`.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prometheus metric type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// May go up and down.
    Gauge,
    /// Never decreases while the program runs.
    Counter,
}

/// A page of metric families.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Adds a family: its name, its help text, and a value for each set of labels.
    pub fn family<'a, V: Display>(
        &mut self,
        kind: Kind,
        (name, help): (&str, &str),
        values: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], V)>,
    ) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        self.head(name, help, kind);
        for (labels, value) in values {
            self.line(name, labels, &value);
        }
    }

    /// Adds a family with a single value and no labels.
    pub fn number(&mut self, kind: Kind, (name, help): (&str, &str), value: impl Display) {
        self.family(kind, (name, help), [(&[][..], value)]);
    }

    /// Adds a histogram for each set of labels.
    pub fn histogram<'a>(
        &mut self,
        (name, help): (&str, &str),
        values: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], &'a Histogram)>,
    ) {
        self.head(name, help, "histogram");
        for (labels, histogram) in values {
            let mut below = 0;
            let bounds = histogram.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(&histogram.counts) {
                below += count.load(Ordering::Relaxed);
                let with_bound: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
                self.line(&format!("{name}_bucket"), &with_bound, &below);
            }
            self.line(&format!("{name}_sum"), labels, &histogram.sum.load(Ordering::Relaxed));
            self.line(&format!("{name}_count"), labels, &below);
        }
    }

    /// The rendered text of the page.
    pub fn finish(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn Display) {
        let written: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if written.is_empty() { String::new() } else { format!("{{{}}}", written.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Distribution of durations, in milliseconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last counts values above all of them.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, in milliseconds, ascending.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Adds one duration to the distribution.
    pub fn observe(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let place = self.bounds.iter().position(|bound| millis <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(millis, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let mut page = Page::default();
        page.number(Kind::Gauge, ("pods", "Pods here"), 3);
        let (add, odd): (&[_], &[_]) = (&[("op", "add")], &[("op", "a\"b\\c\nd")]);
        page.family(Kind::Counter, ("ops_count", "What was done"), [(add, 7), (odd, 0)]);
        let histogram = Histogram::new(&[1, 10]);
        for millis in [0, 1, 2, 10, 11] {
            histogram.observe(Duration::from_millis(millis));
        }
        page.histogram(("took", "How long"), [(add, &histogram)]);
        let expected = r#"# HELP pods Pods here
# TYPE pods gauge
pods 3
# HELP ops_count What was done
# TYPE ops_count counter
ops_count{op="add"} 7
ops_count{op="a\"b\\c\nd"} 0
# HELP took How long
# TYPE took histogram
took_bucket{op="add",le="1"} 2
took_bucket{op="add",le="10"} 4
took_bucket{op="add",le="+Inf"} 5
took_sum{op="add"} 24
took_count{op="add"} 5
"#;
        assert_eq!(page.finish(), expected);
    }
}
