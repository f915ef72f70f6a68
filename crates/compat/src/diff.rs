//! Differences between two servers' answers, field by field, and which of them are accepted.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::Answer;
use crate::yaml;

/// How wide a column of values is.
const COLUMN: usize = 56;

/// One field with two values, or which one side lacks.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The area and the step, `area/step`.
    pub step: String,
    /// Where in the answer: `/status`, `/type`, `/warnings/0`, `/body/...`.
    pub field: String,
    /// What the real server says.
    pub expected: Option<Value>,
    /// What the server under test says.
    pub actual: Option<Value>,
}

/// A difference that is accepted, and why. `*` stands for any text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// The steps, `area/step`.
    pub steps: String,
    /// The fields.
    pub field: String,
    /// Why the server under test differs.
    pub reason: String,
}

/// The outcome of a comparison; prints as a table, empty when all is well.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// How many steps were compared.
    pub steps: usize,
    /// What differs and is not accepted.
    pub differences: Vec<Difference>,
    /// How many differences were accepted.
    pub accepted: usize,
    /// Which allowances were needed, by position in their list.
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
    /// Takes in the report of another area.
    pub fn merge(&mut self, other: Self) {
        self.steps += other.steps;
        self.differences.extend(other.differences);
        self.accepted += other.accepted;
        self.used.extend(other.used);
    }

    /// Those of `allowed` that no difference needed.
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
                let from = where_they_part(&expected, &actual);
                let [expected, actual] = [&expected, &actual].map(|text| excerpt(text, from));
                writeln!(f, "  {field}\n      {expected}\n    | {actual}")?;
            }
        }
        Ok(())
    }
}

/// How many characters two texts have in common at their start.
fn where_they_part(left: &str, right: &str) -> usize {
    left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count()
}

/// The part of a long text that is of interest: from a little before a place.
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
    fn each_field_that_differs_is_named_with_both_values() {
        let real = answer(200, json!({"a": {"b/c": 1}, "l": [1, 2], "same": true}));
        let ours = answer(201, json!({"a": {"b/c": 2}, "l": [1], "same": true, "more": null}));
        let report = compare("area", &[real], &[ours], &[]);
        let fields: Vec<_> = report.differences.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["/body/a/b~1c", "/body/l/1", "/body/more", "/status"]);
        assert!(report.to_string().starts_with("area/s\n  /body/a/b~1c\n      1   "), "{report}");
    }

    #[test]
    fn an_accepted_difference_is_counted_and_one_that_is_none_is_reported() {
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
