//! Differences between the answers of two servers, field by field, and which of them are accepted.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::Answer;
use crate::yaml;

/// Width of a column of values, in characters.
const COLUMN: usize = 56;

/// A field with different values, or that one side lacks.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// Area and step, as `area/step`.
    pub step: String,
    /// Path in the answer: `/status`, `/type`, `/warnings/0`, `/body/...`.
    pub field: String,
    /// The value of the real server.
    pub expected: Option<Value>,
    /// The value of the server under test.
    pub actual: Option<Value>,
}

/// An accepted difference with its reason. `*` stands for any text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Pattern for steps, as `area/step`.
    pub steps: String,
    /// Pattern for fields, as in [`Difference::field`].
    pub field: String,
    /// Why the server under test differs.
    pub reason: String,
}

/// The result of a comparison; prints as a table, which is empty if nothing differs.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Number of compared steps.
    pub steps: usize,
    /// Differences that are not accepted.
    pub differences: Vec<Difference>,
    /// Number of accepted differences.
    pub accepted: usize,
    /// Positions of the allowances that were needed.
    pub used: BTreeSet<usize>,
}

/// Reads a list of accepted differences (YAML).
pub fn allowances(file: &Path) -> Result<Vec<Allowance>> {
    yaml::read(file)
}

/// Compares the answers of two servers to one area's steps.
pub fn compare(area: &str, expected: &[Answer], actual: &[Answer], allowed: &[Allowance]) -> Report {
    let mut report = Report { steps: expected.len(), ..Report::default() };
    for wanted in expected {
        let step = format!("{area}/{}", wanted.step);
        let got = actual.iter().find(|answer| answer.step == wanted.step).map(Answer::value);
        let mut fields = Vec::new();
        fields_that_differ("", Some(&wanted.value()), got.as_ref(), &mut fields);
        for (field, expected, actual) in fields {
            let difference = Difference { step: step.clone(), field, expected, actual };
            report.add(difference, allowed);
        }
    }
    for unasked in actual.iter().filter(|answer| expected.iter().all(|wanted| wanted.step != answer.step)) {
        let step = format!("{area}/{}", unasked.step);
        report.add(Difference { step, field: String::new(), expected: None, actual: Some(unasked.value()) }, allowed);
    }
    report
}

impl Report {
    /// Adds the report of another area.
    pub fn merge(&mut self, other: Self) {
        self.steps += other.steps;
        self.differences.extend(other.differences);
        self.accepted += other.accepted;
        self.used.extend(other.used);
    }

    /// The allowances that no difference needed.
    pub fn unused<'a>(&self, allowed: &'a [Allowance]) -> Vec<&'a Allowance> {
        let unused = allowed.iter().enumerate().filter(|(at, _)| !self.used.contains(at));
        unused.map(|(_, allowance)| allowance).collect()
    }

    pub(crate) fn add(&mut self, difference: Difference, allowed: &[Allowance]) {
        let covers = |allowance: &Allowance| {
            matches(&allowance.steps, &difference.step) && matches(&allowance.field, &difference.field)
        };
        match allowed.iter().position(covers) {
            Some(at) => {
                self.used.insert(at);
                self.accepted += 1;
            }
            None => self.differences.push(difference),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for Difference { step, field, expected, actual } in &self.differences {
            if step != last {
                writeln!(f, "{}{step}", if last.is_empty() { "" } else { "\n" })?;
                last = step;
            }
            let [expected, actual] =
                [expected, actual].map(|value| value.as_ref().map_or("-".into(), Value::to_string));
            if expected.chars().count() <= COLUMN && actual.chars().count() <= COLUMN {
                writeln!(f, "  {field}\n      {expected:COLUMN$} | {actual}")?;
            } else {
                let from = common_prefix(&expected, &actual);
                let [expected, actual] = [&expected, &actual].map(|text| excerpt(text, from));
                writeln!(f, "  {field}\n      {expected}\n    | {actual}")?;
            }
        }
        Ok(())
    }
}

/// Length of the common prefix of two texts, in characters.
fn common_prefix(left: &str, right: &str) -> usize {
    left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count()
}

/// The part of a long text around a position.
fn excerpt(text: &str, at: usize) -> String {
    let from = at.saturating_sub(COLUMN);
    let shown: String = text.chars().skip(from).take(4 * COLUMN).collect();
    let [before, after] = [from > 0, text.chars().count() > from + 4 * COLUMN].map(|cut| if cut { "..." } else { "" });
    format!("{before}{shown}{after}")
}

type Field = (String, Option<Value>, Option<Value>);

fn fields_that_differ(path: &str, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<Field>) {
    match (expected, actual) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                fields_that_differ(&format!("{path}/{escaped}"), left.get(name), right.get(name), found);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for at in 0..left.len().max(right.len()) {
                fields_that_differ(&format!("{path}/{at}"), left.get(at), right.get(at), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push((path.to_owned(), left.cloned(), right.cloned())),
    }
}

/// Whether the text fits the pattern, in which `*` is any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: Value) -> Answer {
        Answer { step: "s".into(), status, content_type: String::new(), warnings: vec![], body }
    }

    #[test]
    fn each_different_field_is_reported_with_both_values() {
        let real = answer(200, json!({"a": {"b/c": 1}, "l": [1, 2], "same": true}));
        let ours = answer(201, json!({"a": {"b/c": 2}, "l": [1], "same": true, "more": null}));
        let report = compare("area", &[real], &[ours], &[]);
        let fields: Vec<_> = report.differences.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["/body/a/b~1c", "/body/l/1", "/body/more", "/status"]);
        assert!(report.to_string().starts_with("area/s\n  /body/a/b~1c\n      1   "), "{report}");
    }

    #[test]
    fn an_accepted_difference_is_counted_and_an_unused_allowance_is_reported() {
        let allow = |field: &str| Allowance { steps: "area/*".into(), field: field.into(), reason: "r".into() };
        let allowed = [allow("/body/*/x"), allow("/body/y")];
        let report = compare("area", &[answer(200, json!([{"x": 1}]))], &[answer(200, json!([{"x": 2}]))], &allowed);
        assert!(report.differences.is_empty() && report.accepted == 1, "{report}");
        assert_eq!(report.unused(&allowed)[0].field, "/body/y");
    }

    #[test]
    fn a_step_without_an_answer_differs_as_a_whole() {
        let report = compare("area", &[answer(200, json!(1))], &[], &[]);
        assert_eq!((report.differences.len(), report.differences[0].field.as_str()), (1, ""));
    }

    #[test]
    fn a_star_is_any_text() {
        assert!(matches("a*c*", "abbcc") && matches("*", "") && matches("a", "a"));
        assert!(!matches("a*d", "abc") && !matches("a", "ab"));
    }
}
