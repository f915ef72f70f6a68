//! A selector that can be asked.

use std::fmt;

use types::meta::{LabelSelector, Labels};

/// A parsed label selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Selector {
    /// Sorted and without duplicates.
    requirements: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

/// Values are sorted and without duplicates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

/// What every selected label set contains; an index files the selector under it.
pub(crate) enum Anchor<'a> {
    /// A label with one of these values.
    Values(&'a str, &'a [String]),
    /// A label with any value.
    Key(&'a str),
    /// No label is required.
    Nothing,
}

/// An invalid requirement of a selector.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("matchExpressions[{index}]: {problem}")]
pub struct InvalidSelector {
    /// The index in `matchExpressions`.
    pub index: usize,
    /// What is wrong with it.
    pub problem: InvalidRequirement,
}

/// What is wrong with a requirement, beginning with its field.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidRequirement {
    /// `In` or `NotIn` without values.
    #[error("values: {0} needs at least one")]
    NoValues(String),
    /// `Exists` or `DoesNotExist` with values.
    #[error("values: {0} takes none")]
    Values(String),
    /// An operator that Kubernetes does not have.
    #[error("operator: `{0}` is none of In, NotIn, Exists, DoesNotExist")]
    Operator(String),
}

impl Selector {
    /// Parses a selector; all requirements must be valid.
    pub fn new(written: &LabelSelector) -> Result<Self, InvalidSelector> {
        let (selector, invalid) = Self::readable(written);
        invalid.into_iter().next().map_or(Ok(selector), Err)
    }

    /// Parses the valid requirements, and returns the invalid ones. The result selects at least what the intended selector would.
    pub fn readable(written: &LabelSelector) -> (Self, Vec<InvalidSelector>) {
        let by_label = written.match_labels.iter();
        let mut requirements: Vec<Requirement> = by_label
            .map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) })
            .collect();
        let mut invalid = Vec::new();
        for (index, expression) in written.match_expressions.iter().enumerate() {
            let mut values = expression.values.clone();
            values.sort();
            values.dedup();
            let test = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Ok(Test::In(values)),
                ("NotIn", false) => Ok(Test::NotIn(values)),
                ("Exists", true) => Ok(Test::Exists),
                ("DoesNotExist", true) => Ok(Test::DoesNotExist),
                (operator @ ("In" | "NotIn"), true) => Err(InvalidRequirement::NoValues(operator.to_owned())),
                (operator @ ("Exists" | "DoesNotExist"), false) => Err(InvalidRequirement::Values(operator.to_owned())),
                (other, _) => Err(InvalidRequirement::Operator(other.to_owned())),
            };
            match test {
                Ok(test) => requirements.push(Requirement { key: expression.key.clone(), test }),
                Err(problem) => invalid.push(InvalidSelector { index, problem }),
            }
        }
        requirements.sort();
        requirements.dedup();
        (Self { requirements }, invalid)
    }

    /// Selects objects that have a label, with any value.
    pub fn having(key: String) -> Self {
        Self { requirements: vec![Requirement { key, test: Test::Exists }] }
    }

    /// Selects those of the selected objects that also have these labels.
    #[must_use]
    pub fn with_labels(&self, labels: &Labels) -> Self {
        let required =
            |(key, value): (&String, &String)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) };
        let mut requirements: Vec<Requirement> =
            self.requirements.iter().cloned().chain(labels.iter().map(required)).collect();
        requirements.sort();
        requirements.dedup();
        Self { requirements }
    }

    /// Whether an object with these labels is selected.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|v| values.binary_search(v).is_ok()),
                Test::NotIn(values) => value.is_none_or(|v| values.binary_search(v).is_err()),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The most selective requirement for a label.
    pub(crate) fn anchor(&self) -> Anchor<'_> {
        let mut anchor = Anchor::Nothing;
        for Requirement { key, test } in &self.requirements {
            match (test, &anchor) {
                (Test::In(values), Anchor::Values(_, fewest)) if values.len() >= fewest.len() => {}
                (Test::In(values), _) => anchor = Anchor::Values(key, values),
                (Test::Exists, Anchor::Nothing) => anchor = Anchor::Key(key),
                (Test::Exists | Test::NotIn(_) | Test::DoesNotExist, _) => {}
            }
        }
        anchor
    }
}

/// As `kubectl -l` takes it. Text that cannot be in a label is quoted, so that different selectors have different texts.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            if *test == Test::DoesNotExist {
                f.write_str("!")?;
            }
            word(f, key)?;
            let (before, values) = match test {
                Test::In(values) if values.len() == 1 => ("=", values),
                Test::NotIn(values) if values.len() == 1 => ("!=", values),
                Test::In(values) => (" in (", values),
                Test::NotIn(values) => (" notin (", values),
                Test::Exists | Test::DoesNotExist => continue,
            };
            f.write_str(before)?;
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    f.write_str(",")?;
                }
                word(f, value)?;
            }
            if before.ends_with('(') {
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}

fn word(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_./".contains(&c);
    if text.bytes().all(plain) { f.write_str(text) } else { write!(f, "{text:?}") }
}

#[cfg(test)]
mod tests {
    use types::meta::LabelRequirement;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(|v| (*v).to_owned()).collect();
        let requirement = LabelRequirement { key: key.to_owned(), operator: operator.to_owned(), values };
        LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() }
    }

    #[test]
    fn every_operator_matches_as_in_kubernetes() {
        let (web, db, none) = (labels(&[("app", "web")]), labels(&[("app", "db")]), labels(&[]));
        for (operator, values, selected) in [
            ("In", &["web", "api"][..], [true, false, false]),
            ("NotIn", &["web", "api"], [false, true, true]),
            ("Exists", &[], [true, true, false]),
            ("DoesNotExist", &[], [false, false, true]),
        ] {
            let selector = Selector::new(&expression("app", operator, values)).unwrap();
            assert_eq!([&web, &db, &none].map(|l| selector.selects(l)), selected, "{operator}");
        }
        assert!(Selector::default().selects(&none));
    }

    #[test]
    fn an_invalid_requirement_is_named_in_the_error() {
        for (operator, values, problem) in [
            ("In", &[][..], "matchExpressions[0]: values: In needs at least one"),
            ("Exists", &["x"], "matchExpressions[0]: values: Exists takes none"),
            ("Like", &["x"], "matchExpressions[0]: operator: `Like` is none of In, NotIn, Exists, DoesNotExist"),
        ] {
            assert_eq!(Selector::new(&expression("app", operator, values)).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn one_value_by_label_or_by_expression_is_the_same() {
        let by_label = LabelSelector { match_labels: labels(&[("app", "web")]), ..LabelSelector::default() };
        assert_eq!(Selector::new(&by_label).unwrap(), Selector::new(&expression("app", "In", &["web"])).unwrap());
    }

    #[test]
    fn labels_that_are_required_in_addition_are_as_if_written() {
        let both = expression("tier", "Exists", &[]);
        let written = LabelSelector { match_labels: labels(&[("app", "web")]), ..both.clone() };
        let added = Selector::new(&both).unwrap().with_labels(&labels(&[("app", "web")]));
        assert_eq!(added, Selector::new(&written).unwrap());
        assert_eq!(added.with_labels(&labels(&[("app", "web")])), added);
    }

    #[test]
    fn a_selector_without_its_invalid_requirements_selects_more() {
        let mut written = expression("app", "Like", &["x"]);
        written.match_labels = labels(&[("tier", "db")]);
        let (readable, invalid) = Selector::readable(&written);
        assert!(readable.selects(&labels(&[("tier", "db")])) && !readable.selects(&labels(&[])));
        assert_eq!(invalid.len(), 1);
    }

    #[test]
    fn selectors_print_as_for_kubectl_and_have_different_texts() {
        let mut written = expression("tier", "NotIn", &["b", "a"]);
        written.match_labels = labels(&[("app", "web")]);
        assert_eq!(Selector::new(&written).unwrap().to_string(), "app=web,tier notin (a,b)");
        assert_eq!(Selector::new(&expression("app", "DoesNotExist", &[])).unwrap().to_string(), "!app");
        let two = Selector::new(&expression("app", "In", &["a", "b"])).unwrap();
        let odd = Selector::new(&expression("app", "In", &["a,b"])).unwrap();
        assert_eq!((two.to_string(), odd.to_string()), ("app in (a,b)".to_owned(), "app=\"a,b\"".to_owned()));
        assert_eq!(Selector::having("app".to_owned()).to_string(), "app");
    }
}
