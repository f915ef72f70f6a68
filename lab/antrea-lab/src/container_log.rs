//! The log of a container: a record for each line, in the format of CRI runtimes (`TIME STREAM TAG TEXT`).

use std::io::{BufRead, BufReader, Read, Write};

use k8s_openapi::jiff::Timestamp;

/// Longer lines are split into several records.
const MAX_TEXT: u64 = 16 * 1024;

/// The output that a record comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Copies the output of a container to its log until its end. Several outputs may use the same log: a record is one write.
pub(crate) fn record(from: impl Read, source: Source, mut log: impl Write) {
    let mut from = BufReader::new(from);
    let mut text = Vec::new();
    loop {
        text.clear();
        match from.by_ref().take(MAX_TEXT).read_until(b'\n', &mut text) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let tag = if text.ends_with(b"\n") { 'F' } else { 'P' };
        let mut line = format!("{:.9} {} {tag} ", Timestamp::now(), source.name()).into_bytes();
        line.extend_from_slice(&text);
        if tag == 'P' {
            line.push(b'\n');
        }
        // On a full disk, the container still runs.
        let _ = log.write_all(&line);
    }
}

/// A record of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) time: &'a str,
    pub(crate) source: Source,
    /// Whether its text is the last part of a line.
    pub(crate) ends_line: bool,
    pub(crate) text: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record in a line of the log, without its end.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (time, source, tag) = (word()?, word()?, word()?);
        let source = [Source::Stdout, Source::Stderr].into_iter().find(|one| one.name() == source)?;
        Some(Self { time, source, ends_line: tag == "F", text: words.next()? })
    }
}

/// The records in a log; damaged lines are left out.
pub(crate) fn records(log: &[u8]) -> impl DoubleEndedIterator<Item = Record<'_>> {
    log.split(|byte| *byte == b'\n').filter_map(Record::parse)
}

/// The complete records of a log that is being written.
pub(crate) fn complete(log: &[u8]) -> &[u8] {
    let end = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    log.get(..end).unwrap_or_default()
}

/// The part of a log that a client asks for, and how it is printed.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Selection {
    /// At most so many lines from the end.
    pub(crate) tail: Option<usize>,
    pub(crate) since: Option<Timestamp>,
    /// Whether each line begins with its time.
    pub(crate) timestamps: bool,
    /// At most so many bytes.
    pub(crate) limit: Option<usize>,
}

impl Selection {
    /// The last lines of a log: a part of it that begins with a record.
    pub(crate) fn tail<'a>(&self, log: &'a [u8]) -> &'a [u8] {
        let Some(tail) = self.tail else { return log };
        let (mut start, mut lines) = (log.len(), 0);
        // The line that is not complete yet is one, too.
        for line in log.split_inclusive(|byte| *byte == b'\n').rev() {
            let ends_line = records(line).any(|record| record.ends_line);
            lines += usize::from(ends_line || start == log.len());
            if lines > tail {
                break;
            }
            start -= line.len();
        }
        log.get(start..).unwrap_or_default()
    }
}

/// Prints records one after the other.
pub(crate) struct Printer {
    selection: Selection,
    within_line: bool,
}

impl Printer {
    pub(crate) fn new(selection: Selection) -> Self {
        Self { selection, within_line: false }
    }

    /// The text of records. Once the limit is reached, it is empty.
    pub(crate) fn print(&mut self, log: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for record in records(log) {
            let early = |since: &Timestamp| record.time.parse::<Timestamp>().is_ok_and(|time| time < *since);
            if self.selection.since.as_ref().is_some_and(early) {
                continue;
            }
            if self.selection.timestamps && !self.within_line {
                text.extend_from_slice(record.time.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(record.text);
            if record.ends_line {
                text.push(b'\n');
            }
            self.within_line = !record.ends_line;
        }
        if let Some(left) = &mut self.selection.limit {
            text.truncate(*left);
            *left -= text.len();
        }
        text
    }

    /// Whether the limit is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.selection.limit == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-01-01T00:00:01.000000000Z stdout F one\n\
        2026-01-01T00:00:02.000000000Z stderr P tw\n2026-01-01T00:00:02.500000000Z stderr F o\n\
        2026-01-01T00:00:03.000000000Z stdout F \n2026-01-01T00:00:04.000000000Z stdout P end\n";

    fn print(selection: Selection) -> String {
        let mut printer = Printer::new(selection.clone());
        String::from_utf8(printer.print(selection.tail(LOG))).unwrap()
    }

    #[test]
    fn output_is_recorded_line_by_line_with_its_time() {
        let mut log = Vec::new();
        let long = "x".repeat(usize::try_from(MAX_TEXT).unwrap() + 1);
        record(format!("a b\n\n{long}\nend").as_bytes(), Source::Stdout, &mut log);
        let (before, now) = (Timestamp::UNIX_EPOCH, Timestamp::now());
        let read: Vec<_> = records(&log).collect();
        assert!(read.iter().all(|record| (before..=now).contains(&record.time.parse().unwrap())));
        let lengths: Vec<_> = read.iter().map(|record| (record.text.len(), record.ends_line)).collect();
        assert_eq!(lengths, [(3, true), (0, true), (16 * 1024, false), (1, true), (3, false)]);
        assert_eq!(Printer::new(Selection::default()).print(&log), format!("a b\n\n{long}\nend").as_bytes());
    }

    #[test]
    fn a_client_gets_the_lines_that_it_asks_for() {
        let all = Selection::default();
        assert_eq!(print(all.clone()), "one\ntwo\n\nend");
        for (tail, expected) in [(0, ""), (1, "end"), (2, "\nend"), (3, "two\n\nend"), (9, "one\ntwo\n\nend")] {
            assert_eq!(print(Selection { tail: Some(tail), ..all.clone() }), expected, "{tail}");
        }
        let since = Some("2026-01-01T00:00:03Z".parse().unwrap());
        assert_eq!(print(Selection { since, ..all.clone() }), "\nend");
        assert_eq!(print(Selection { limit: Some(5), ..all.clone() }), "one\nt");
        let timed = print(Selection { timestamps: true, tail: Some(3), ..all });
        let expected =
            "2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:03.000000000Z \n2026-01-01T00:00:04.000000000Z end";
        assert_eq!(timed, expected);
    }

    #[test]
    fn a_record_that_is_being_written_waits_and_a_damaged_one_is_left_out() {
        assert_eq!(complete(b"a\nb"), b"a\n");
        assert_eq!(complete(b"a"), b"");
        assert_eq!(records(b"\n2026 stdout\nx y z w\n\xff \xff \xff \xff\n").count(), 0);
    }
}
