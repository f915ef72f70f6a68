//! Reads YAML into checked values, and notes keys without effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::nearest::nearest;
use crate::{FEATURE_GATES, Problem, Schema};

/// The values of a file by key, with the problems found so far.
#[derive(Debug)]
pub struct Reader {
    schema: &'static Schema,
    values: BTreeMap<String, Value>,
    features: BTreeMap<&'static str, bool>,
    /// Keys and features that the program has read: they have an effect.
    asked: BTreeSet<&'static str>,
    /// Errors: the program does not start.
    pub problems: Vec<Problem>,
    /// Warnings for the log.
    pub notes: Vec<String>,
}

impl Reader {
    /// Reads a file without any keys.
    pub fn empty(schema: &'static Schema) -> Self {
        let (values, features, asked) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { schema, values, features, asked, problems: Vec::new(), notes: Vec::new() }
    }

    /// Reads the text of a file. Fails if it is not YAML with keys.
    pub fn new(schema: &'static Schema, text: &str) -> Result<Self, Problem> {
        let mut reader = Self::empty(schema);
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(reader);
        }
        // Without the excerpt of the file, which takes several lines.
        let document =
            serde_saphyr::from_str(text).map_err(|error| Problem::NotYaml(error.without_snippet().to_string()))?;
        match document {
            Value::Object(section) => reader.take_section("", section),
            Value::Null => {}
            _ => return Err(Problem::NotKeys),
        }
        Ok(reader)
    }

    fn take_section(&mut self, path: &str, section: Map<String, Value>) {
        let keys = self.schema.keys;
        for (name, value) in section {
            let key = if path.is_empty() { name } else { format!("{path}.{name}") };
            let inner = format!("{key}.");
            match value {
                Value::Object(features) if key == FEATURE_GATES => self.take_features(features),
                value if keys.iter().any(|known| known.path == key) => {
                    self.values.insert(key, value);
                }
                Value::Object(section) if keys.iter().any(|known| known.path.starts_with(&inner)) => {
                    self.take_section(&key, section);
                }
                // An empty section.
                Value::Null if key == FEATURE_GATES || keys.iter().any(|known| known.path.starts_with(&inner)) => {}
                value if key == FEATURE_GATES || keys.iter().any(|known| known.path.starts_with(&inner)) => {
                    self.problem(&key, &value, "is not a section with keys of its own");
                }
                _ => self.unknown(&key, &key, &paths(self.schema)),
            }
        }
    }

    fn take_features(&mut self, features: Map<String, Value>) {
        for (name, value) in features {
            let known = self.schema.features.iter().find(|(known, _)| *known == name);
            match (known, value) {
                (Some((known, _)), Value::Bool(on)) => {
                    self.features.insert(known, on);
                }
                (Some(_), Value::Null) => {}
                (Some(_), value) => {
                    self.problem(&format!("{FEATURE_GATES}.{name}"), &value, "is neither true nor false");
                }
                (None, _) => {
                    let known: Vec<&str> = self.schema.features.iter().map(|(known, _)| *known).collect();
                    self.unknown(&format!("{FEATURE_GATES}.{name}"), &name, &known);
                }
            }
        }
    }

    /// A misspelt key would silently leave a default in force, so it is an error; an unknown key, perhaps of another
    /// version, is not.
    fn unknown(&mut self, key: &str, name: &str, candidates: &[&str]) {
        match nearest(name, candidates.iter().copied()).or_else(|| elsewhere(name, candidates)) {
            Some(meant) => {
                self.problems.push(Problem::UnknownKey { key: key.to_owned(), meant: meant.to_owned() });
            }
            None => self.notes.push(format!("{key}: unknown key, has no effect")),
        }
    }

    /// Reports an invalid value; `what` completes the sentence that begins with the value.
    pub fn problem(&mut self, key: &str, value: &Value, what: impl Display) {
        self.problems.push(Problem::Value { key: key.to_owned(), value: quoted(value), what: what.to_string() });
    }

    /// Reports keys that do not fit together, if `is_wrong`; `what` begins with a key.
    pub fn combination(&mut self, is_wrong: bool, what: &'static str) {
        if is_wrong {
            self.problems.push(Problem::Combination(what));
        }
    }

    /// The value of a key, if the file has one. Configurations write an empty text for none.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        let value = if self.schema.not_yet.contains(&key) {
            // Not implemented: the value stays, so that it is reported as having no effect.
            self.values.get(key).cloned()
        } else {
            self.asked.insert(key);
            self.values.remove(key)
        };
        value.filter(|value| !value.is_null() && value != "")
    }

    /// A value that `parse` accepts; `wanted` completes the error "... is not".
    pub fn parsed<T>(&mut self, key: &'static str, wanted: &str, parse: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(key)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.problem(key, &value, format!("is not {wanted}"));
        }
        parsed
    }

    /// A string, as it is in the file.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.parsed(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// `true` or `false`; no other spelling.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        self.parsed(key, "true or false", Value::as_bool)
    }

    /// A number in `range`; 0 stands for "not set".
    pub fn number(&mut self, key: &'static str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let wanted = format!("0 or a number from {} to {}", range.start(), range.end());
        let number = self.parsed(key, &wanted, |value| {
            let number = u32::try_from(value.as_u64()?).ok()?;
            (number == 0 || range.contains(&number)).then_some(number)
        });
        number.filter(|number| *number != 0)
    }

    /// One of the names in `choices`; case does not matter.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.take(key)?;
        let found = value.as_str().and_then(|text| choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)));
        if found.is_none() {
            let names = choices.iter().map(|(name, _)| *name);
            let meant = value.as_str().and_then(|text| nearest(text, names.clone()));
            let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            self.problem(key, &value, format!("is none of {}{hint}", names.collect::<Vec<_>>().join(", ")));
        }
        found.map(|(_, choice)| *choice)
    }

    /// A list of which `parse` accepts every entry.
    pub fn list<T>(&mut self, key: &'static str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let entries = match self.take(key) {
            None => return vec![],
            Some(Value::Array(entries)) => entries,
            Some(value) => {
                self.problem(key, &value, "is not a list");
                return vec![];
            }
        };
        let mut list = vec![];
        for (index, entry) in entries.iter().enumerate() {
            match entry.as_str().and_then(&parse) {
                Some(value) => list.push(value),
                None => self.problem(&format!("{key}[{index}]"), entry, format!("is not {wanted}")),
            }
        }
        list
    }

    /// A port number; 0 stands for "not set".
    pub fn port(&mut self, key: &'static str) -> Option<u16> {
        self.number(key, 1..=65_535).and_then(|port| u16::try_from(port).ok())
    }

    /// A path that begins with `/`.
    pub fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let absolute = |value: &Value| value.as_str().filter(|path| path.starts_with('/')).map(PathBuf::from);
        self.parsed(key, "an absolute path", absolute)
    }

    /// Whether a feature gate is on, in the file or by default.
    pub fn feature(&mut self, name: &'static str) -> bool {
        self.asked.insert(name);
        let default = self.schema.features.iter().any(|(known, on)| *known == name && *on);
        self.features.get(name).copied().unwrap_or(default)
    }

    /// Notes keys and features that were set but never read. A value that equals the default is not worth a note.
    pub fn note_the_rest(&mut self) {
        for (key, value) in std::mem::take(&mut self.values) {
            let default = self.schema.keys.iter().find(|known| known.path == key).map_or("", |known| known.default);
            let same = value.is_null()
                || value == ""
                || serde_saphyr::from_str::<Value>(default).is_ok_and(|default| default == value);
            if !same {
                self.notes.push(format!("{key}: is not implemented yet, so {} has no effect", quoted(&value)));
            }
        }
        let on = self.features.iter().filter(|(name, on)| **on && !self.asked.contains(*name));
        self.notes.extend(on.map(|(name, _)| format!("{FEATURE_GATES}.{name}: is not implemented yet")));
    }

    /// Whether a key or feature was read, and so has an effect.
    pub fn was_asked(&self, name: &str) -> bool {
        self.asked.contains(name)
    }
}

/// The paths of all keys and sections.
fn paths(schema: &'static Schema) -> Vec<&'static str> {
    let sections = |path: &'static str| path.match_indices('.').map(|(end, _)| &path[..end]);
    let sections: BTreeSet<_> = schema.keys.iter().flat_map(|key| sections(key.path)).collect();
    schema.keys.iter().map(|key| key.path).chain(sections).chain([FEATURE_GATES]).collect()
}

/// A key of the same name in another section.
fn elsewhere<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_lowercase();
    candidates.iter().copied().find(|candidate| last(candidate) == last(name))
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", text.escape_debug()),
        other => format!("`{other}`"),
    }
}
