//! Label and field selectors.

use memchr::memmem;
use serde_json::Value;

use crate::failure::Failure;
use crate::objects::Strings;
use crate::value;

mod parse;

/// The attributes of an object for selectors: labels, name, namespace and selectable fields.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[(Box<str>, Value)]>,
}

impl Attributes {
    /// Reads an object; `fields` are the paths needed besides name and namespace.
    pub(crate) fn of<'a>(bytes: &[u8], fields: impl Iterator<Item = &'a str>) -> Self {
        let object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let labels = value::at(&object, "metadata.labels").as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()));
        let fields = ["metadata.name", "metadata.namespace"].into_iter().chain(fields).filter_map(|path| {
            let value = value::at(&object, path);
            (!value.is_null()).then(|| (path.into(), value.clone()))
        });
        Self { labels: labels.collect(), fields: fields.collect() }
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(own, _)| **own == *key).map(|(_, value)| &**value)
    }

    fn field(&self, path: &str) -> &Value {
        self.fields.iter().find(|(own, _)| **own == *path).map_or(&Value::Null, |(_, value)| value)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// A label selector: all requirements must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels(Vec<(String, Test)>);

/// A field selector: paths and values, equal or not equal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(String, bool, String)>);

/// Both selectors of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector {
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
}

impl Selector {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.0.is_empty() && self.fields.0.is_empty()
    }

    pub(crate) fn matches(&self, attributes: &Attributes) -> bool {
        self.labels.matches(|key| attributes.label(key)) && self.fields.matches(|path| attributes.field(path))
    }

    /// Whether the object in these bytes matches; searches for the values before it parses the JSON.
    pub(crate) fn matches_bytes(&self, bytes: &[u8]) -> bool {
        let plain =
            |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._/".contains(&c));
        let found = |text: &str| !plain(text) || memmem::find(bytes, text.as_bytes()).is_some();
        let possible = self.fields.0.iter().all(|(_, equal, value)| !equal || found(value))
            && self.labels.0.iter().all(|(key, test)| match test {
                Test::In(values) => found(key) && values.iter().any(|value| found(value)),
                Test::Exists | Test::Above(_) | Test::Below(_) => found(key),
                Test::NotIn(_) | Test::Absent => true,
            });
        let paths = self.fields.0.iter().map(|(path, _, _)| path.as_str());
        possible && (self.is_everything() || self.matches(&Attributes::of(bytes, paths)))
    }

    /// The name that the field selector requires, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields
            .0
            .iter()
            .find(|(path, equal, _)| *equal && path == "metadata.name")
            .map(|(_, _, name)| name.as_str())
    }
}

/// Booleans for which false is the same as missing.
const OFF: &[&str] = &["spec.hostNetwork", "spec.unschedulable"];

impl Fields {
    /// Parses `a.b=c,d!=e`; `known` says which paths the resource can be selected by, and `version` names them if they
    /// are few.
    pub(crate) fn parse(text: &str, version: &str, known: impl Fn(&str) -> bool) -> Result<Self, Failure> {
        let mut terms = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (path, equal, value) = match (term.split_once("!="), term.split_once("=="), term.split_once('=')) {
                (Some((path, value)), _, _) => (path, false, value),
                (_, Some((path, value)), _) | (_, _, Some((path, value))) => (path, true, value),
                _ => {
                    let what = format!("invalid selector: '{text}'; can't understand '{term}'");
                    return Err(Failure::bad_request(what));
                }
            };
            if !known(path) {
                let message = match version {
                    "" => format!("field label not supported: {path}"),
                    only => format!("{path:?} is not a known field selector: only {only}"),
                };
                return Err(Failure::bad_request(message));
            }
            terms.push((path.to_owned(), equal, value.to_owned()));
        }
        Ok(Self(terms))
    }

    fn matches<'a>(&self, field: impl Fn(&str) -> &'a Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| {
            let found = match field(path) {
                Value::String(text) => text == wanted,
                Value::Null => wanted.is_empty() || wanted == "false" && OFF.contains(&path.as_str()),
                Value::Bool(value) => *wanted == if *value { "true" } else { "false" },
                other => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *other),
            };
            found == *equal
        })
    }
}

impl Labels {
    /// Parses `a=b,c!=d,e in (f,g),h,!i`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        parse::requirements(text).map(Self).map_err(Failure::bad_request)
    }

    /// Converts a `LabelSelector` object; an empty one selects everything.
    pub(crate) fn of_object(selector: &Value) -> Self {
        let mut all: Vec<_> = value::at(selector, "matchLabels")
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), Test::In(vec![value.as_str().unwrap_or_default().to_owned()])))
            .collect();
        for term in value::items(selector, "matchExpressions") {
            let values = || value::items(term, "values").iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match value::text(term, "operator") {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                _ => Test::Absent,
            };
            all.push((value::text(term, "key").to_owned(), test));
        }
        Self(all)
    }

    /// Requires all of these labels.
    pub(crate) fn of_map(labels: &Strings) -> Self {
        Self(labels.iter().map(|(key, value)| (key.clone(), Test::In(vec![value.clone()]))).collect())
    }

    /// Whether typed labels of an object match.
    pub(crate) fn matches_map(&self, labels: &Strings) -> bool {
        self.matches(|key| labels.get(key).map(String::as_str))
    }

    /// Whether the labels of an object match.
    pub(crate) fn matches_labels(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|(key, test)| match (test, label(key)) {
            (Test::In(values), Some(value)) => values.iter().any(|wanted| wanted == value),
            (Test::NotIn(values), Some(value)) => values.iter().all(|other| other != value),
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::Above(than), Some(value)) => value.parse::<i64>().is_ok_and(|value| value > *than),
            (Test::Below(than), Some(value)) => value.parse::<i64>().is_ok_and(|value| value < *than),
            (Test::NotIn(_), None) => true,
            (Test::In(_) | Test::Above(_) | Test::Below(_), None) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: Value) -> bool {
        Labels::parse(selector).unwrap().matches_labels(&labels)
    }

    #[test]
    fn label_selectors_match_labels() {
        let labels = json!({"app": "web", "tier": "front", "n": "5"});
        for yes in ["", "app=web", "app==web,tier", "app in (db, web)", "tier notin (back)", "!x", "x!=y", "n>4", "n<6"]
        {
            assert!(selects(yes, labels.clone()), "{yes}");
        }
        for no in ["app=db", "!app", "app notin (web)", "x", "x in (y)", "app!=web", "n>5"] {
            assert!(!selects(no, labels.clone()), "{no}");
        }
        assert!(Labels::parse("a in b").is_err());
        assert!(Labels::parse("a b").is_err());
    }

    #[test]
    fn bytes_are_searched_before_they_are_parsed() {
        let fields = Fields::parse("spec.nodeName=n1", "v1", |_| true).unwrap();
        let selector = Selector { fields, labels: Labels::parse("app=web").unwrap() };
        let bytes = |node: &str, app: &str| {
            json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node}}).to_string().into_bytes()
        };
        assert!(selector.matches_bytes(&bytes("n1", "web")));
        assert!(!selector.matches_bytes(&bytes("n2", "web")));
        assert!(!selector.matches_bytes(&bytes("n1", "db")));
    }
}
