//! Label selectors: which objects a set of requirements on labels selects.
//!
//! *Role.* A selector as it is written becomes one that can be asked, or an error that names the requirement.
//!
//! *Invariants.* Selectors that mean the same because their requirements are the same are equal, in whatever order they were
//! written. An empty selector selects everything.
//!
//! *Not here.* The index from labels to what selects them (it comes with the crate `policy`).

use std::collections::BTreeSet;

use types::meta::{LabelSelector, Labels};

/// A selector that can be asked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// A requirement that means nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("matchExpressions[{index}]: {problem}")]
pub struct InvalidSelector {
    /// Which of the expressions.
    pub index: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl Selector {
    /// Reads a selector as it is written.
    pub fn new(written: &LabelSelector) -> Result<Self, InvalidSelector> {
        let mut requirements: BTreeSet<Requirement> = written
            .match_labels
            .iter()
            .map(|(key, value)| Requirement { key: key.clone(), test: Test::In([value.clone()].into()) })
            .collect();
        for (index, expression) in written.match_expressions.iter().enumerate() {
            let invalid = |problem: String| Err(InvalidSelector { index, problem });
            let values: BTreeSet<String> = expression.values.iter().cloned().collect();
            let test = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Test::In(values),
                ("NotIn", false) => Test::NotIn(values),
                ("Exists", true) => Test::Exists,
                ("DoesNotExist", true) => Test::DoesNotExist,
                (operator @ ("In" | "NotIn"), true) => {
                    return invalid(format!("values: {operator} needs at least one"));
                }
                (operator @ ("Exists" | "DoesNotExist"), false) => {
                    return invalid(format!("values: {operator} takes none"));
                }
                (other, _) => {
                    return invalid(format!("operator: `{other}` is none of In, NotIn, Exists, DoesNotExist"));
                }
            };
            requirements.insert(Requirement { key: expression.key.clone(), test });
        }
        Ok(Self { requirements })
    }

    /// Whether an object with these labels is selected.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|v| values.contains(v)),
                Test::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
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
    fn every_operator_means_what_kubernetes_says() {
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
    fn a_requirement_that_means_nothing_is_named() {
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
}
