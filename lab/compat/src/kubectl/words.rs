//! Normalises the output of kubectl: replaces values that differ between runs by placeholders.

use std::collections::{BTreeMap, BTreeSet};

use crate::text;

/// The placeholders of one session, numbered by first appearance.
#[derive(Default)]
pub(super) struct Words {
    given: BTreeSet<String>,
    words: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Words {
    /// Adds the values of a command line, which are not replaced; except for timeouts, which look like ages.
    pub(super) fn give(&mut self, text: &str) {
        let text = &text.split(' ').filter(|word| !word.starts_with("--timeout=")).collect::<Vec<_>>().join(" ");
        let parts = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-.:".contains(c)));
        self.given.extend(parts.map(|part| part.trim_matches(':').to_owned()));
        self.given.extend(text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned));
    }

    /// The line with placeholders. Blanks between columns become two, because the width of a column depends on ages.
    pub(super) fn line(&mut self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        let columns: Vec<_> = line[indent..].split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
        let mut done = columns.join("  ");
        if done.contains("-----BEGIN") {
            return "<pem>".into();
        }
        if done.starts_with("eyJ") && done.split('.').count() == 3 {
            return "<token>".into();
        }
        for before in [
            "resourceVersion: \"",
            "resourceVersion\": \"",
            "resourceVersion\":\"",
            r#"resourceVersion\":\""#,
            "Resource Version:  ",
            "127.0.0.1:",
        ] {
            done = text::replace_number_after(&done, before, "<n>");
        }
        done = text::replace(&done, |before, rest| self.part(before, rest));
        format!("{}{done}", &line[..indent])
    }

    fn part(&mut self, before: &str, rest: &str) -> Option<(usize, String)> {
        if let Some((length, micro)) = text::time(rest) {
            let given = self.given.contains(&rest[..length]);
            return (!given).then(|| (length, if micro { "<microtime>" } else { "<time>" }.into()));
        }
        // `describe` prints times in the local time zone.
        if let Some(length) = long_time(rest) {
            return Some((length, "<time>".into()));
        }
        if let Some(length) = fingerprint(rest) {
            return Some((length, "<fingerprint>".into()));
        }
        if let Some(length) = text::uid(rest) {
            return Some((length, self.word("uid", &rest[..length])));
        }
        if let Some(length) = text::ipv4(rest) {
            let allocated = rest.starts_with("10.96.") && !self.given.contains(&rest[..length]);
            let word = if allocated { self.word("clusterIP", &rest[..length]) } else { rest[..length].to_owned() };
            return Some((length, word));
        }
        if let Some(length) = text::number(rest)
            && let Ok(30000..=32767) = rest[..length].parse()
            && !self.given.contains(&rest[..length])
        {
            return Some((length, self.word("nodePort", &rest[..length])));
        }
        if let Some(length) = text::age(rest).filter(|length| !self.given.contains(&rest[..*length])) {
            return Some((length, "<age>".into()));
        }
        if !before.ends_with(['-', '=']) {
            return None;
        }
        if let Some(length) = text::generated(rest, 5, 5).filter(|length| !self.given.contains(&rest[..*length])) {
            return Some((length, "<generated>".into()));
        }
        let length = text::generated(rest, 8, 10).filter(|length| !self.given.contains(&rest[..*length]))?;
        Some((length, self.word("hash", &rest[..length])))
    }

    fn word(&mut self, kind: &'static str, value: &str) -> String {
        let count = self.counts.entry(kind).or_default();
        let word = self.words.entry(value.to_owned()).or_insert_with(|| {
            *count += 1;
            format!("<{kind} {count}>")
        });
        word.clone()
    }
}

/// The length of a time as in `Mon, 16 Nov 2026 02:42:40 +0000` and `2026-11-16 02:42:40 +0000 UTC`.
fn long_time(text: &str) -> Option<usize> {
    ["Mon, 16 Nov 2026 02:42:40 +0000", "2026-11-16 02:42:40 +0000 UTC"].iter().find_map(|form| {
        let fits = |(c, f): (char, char)| match f {
            '0'..='9' => c.is_ascii_digit(),
            '+' => c == '+' || c == '-',
            f if f.is_alphabetic() => c.is_alphabetic(),
            f => c == f,
        };
        let whole = text.len() >= form.len() && text.is_char_boundary(form.len());
        (whole && text.chars().zip(form.chars()).all(fits)).then_some(form.len())
    })
}

/// The length of a SHA-256 in hexadecimal.
fn fingerprint(text: &str) -> Option<usize> {
    (text.bytes().take_while(u8::is_ascii_hexdigit).count() == 64).then_some(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_names_addresses_and_times_are_replaced_unless_the_command_has_them() {
        let mut words = Words::default();
        words.give("expose --port=30001 --cluster-ip=10.96.0.7 --timeout=12s");
        assert_eq!(
            words.line("web-7d4b9c5f6d-x4kz9   1/1     Running   0          12s"),
            "web-<hash 1>-<generated>  1/1  Running  0  <age>"
        );
        assert_eq!(
            words.line("web  10.96.0.7  10.96.33.4  30001:31555/TCP"),
            "web  10.96.0.7  <clusterIP 1>  30001:<nodePort 1>/TCP"
        );
        assert_eq!(words.line("see https://example.com"), "see https://example.com");
        assert_eq!(words.line("    resourceVersion: \"123\""), "    resourceVersion: \"<n>\"");
        assert_eq!(words.line("CreationTimestamp:  Mon, 16 Nov 2026 02:42:40 +0000"), "CreationTimestamp:  <time>");
        assert_eq!(words.line("Created on:   2026-11-16 03:34:53 +0000 UTC"), "Created on:  <time>");
    }
}
