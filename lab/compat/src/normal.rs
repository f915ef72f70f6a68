//! Normalises answers: replaces values that differ between runs by placeholders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::text;

/// Labels with hashes that differ between implementations.
const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];
/// Fields that the server allocates if the request has none, and their placeholders.
const ALLOCATED: [(&str, &str); 4] = [
    ("clusterIP", "clusterIP"),
    ("clusterIPs", "clusterIP"),
    ("nodePort", "nodePort"),
    ("healthCheckNodePort", "nodePort"),
];

/// Texts before a revision in messages.
const REVISIONS: [&str; 6] = [
    "resource version: ",
    "resource version: <revision> (",
    ", current: ",
    "ResourceVersion in record (",
    r#""resourceVersion":""#,
    r#"\"resourceVersion\":\""#,
];

/// The placeholders of one area and one server, numbered by first appearance.
pub(crate) struct Normaliser {
    /// Values that were in requests: compared literally.
    given: BTreeSet<String>,
    /// Whether managed fields are compared.
    managed: bool,
    /// Values to replace wherever they appear in a text, and their placeholders.
    words: BTreeMap<String, String>,
    revisions: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Normaliser {
    pub(crate) fn new(managed: bool) -> Self {
        let (given, words, revisions, counts) = Default::default();
        Self { given, managed, words, revisions, counts }
    }

    /// Adds the values of a request, before its variables are replaced.
    pub(crate) fn give(&mut self, request: &Value) {
        match request {
            Value::String(text) if !text.contains("${") => drop(self.given.insert(text.clone())),
            Value::Number(number) => drop(self.given.insert(number.to_string())),
            Value::Array(items) => items.iter().for_each(|item| self.give(item)),
            Value::Object(fields) => fields.values().for_each(|value| self.give(value)),
            Value::String(_) | Value::Null | Value::Bool(_) => {}
        }
    }

    /// The body with placeholders.
    pub(crate) fn body(&mut self, body: &Value) -> Value {
        self.learn(body);
        self.value("", body)
    }

    /// A text with placeholders.
    pub(crate) fn text(&mut self, text: &str) -> String {
        if text.starts_with("-----BEGIN") {
            return "<pem>".into();
        }
        if text.starts_with("eyJ") && text.split('.').count() == 3 {
            return "<token>".into();
        }
        if self.given.contains(text) {
            return text.to_owned();
        }
        let mut done = text::replace(text, |_, rest| {
            if let Some((length, micro)) = text::time(rest) {
                return Some((length, if micro { "<microtime>" } else { "<time>" }.into()));
            }
            let length = text::uid(rest).filter(|length| !self.given.contains(&rest[..*length]))?;
            Some((length, self.word("uid", &rest[..length])))
        });
        for (value, word) in self.words.iter().rev() {
            done = done.replace(value.as_str(), word);
        }
        for before in REVISIONS {
            done = text::replace_number_after(&done, before, "<revision>");
        }
        done = text::replace_number_after(&done, "127.0.0.1:", "<port>");
        let access = "kube-api-access-";
        match done.strip_prefix(access).and_then(|rest| text::generated(rest, 5, 5)) {
            Some(length) => format!("{access}<generated>{}", &done[access.len() + length..]),
            None => done,
        }
    }

    /// Finds names, hashes and addresses that the server has generated.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                let fields: BTreeMap<_, _> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
                for hash in HASHES.iter().filter_map(|label| fields.get(label)?.as_str()) {
                    self.word("hash", hash);
                }
                for (field, word) in ALLOCATED {
                    fields.get(field).into_iter().for_each(|value| self.learn_allocated(word, value));
                }
                let text = |name| fields.get(name).and_then(|value| value.as_str());
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
                    && name.starts_with(prefix)
                {
                    self.word("name", name);
                }
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn learn_allocated(&mut self, word: &str, value: &Value) {
        match value {
            Value::String(address) if !["", "None"].contains(&address.as_str()) && !self.given.contains(address) => {
                self.word(word, address);
            }
            Value::Number(port) if port.as_u64() != Some(0) && !self.given.contains(&port.to_string()) => {
                self.word(word, &port.to_string());
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_allocated(word, item)),
            _ => {}
        }
    }

    fn value(&mut self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) if name == "continue" && !text.is_empty() => "<continue>".into(),
            Value::String(text) => self.text(text).into(),
            Value::Number(number) if ALLOCATED.iter().any(|(field, _)| *field == name) => {
                self.words.get(&number.to_string()).map_or(value.clone(), |word| word.clone().into())
            }
            Value::Array(items) if name == "managedFields" => self.managed_fields(items),
            Value::Array(items) if name == "cells" => items.iter().map(|cell| self.cell(cell)).collect(),
            Value::Array(items) => items.iter().map(|item| self.value("", item)).collect(),
            Value::Object(fields) => self.object(fields).into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut done = Map::new();
        let named = fields.contains_key("uid") || fields.contains_key("name");
        let sorted: BTreeMap<_, _> = fields.iter().collect();
        for (name, value) in sorted {
            let value = match value {
                _ if name == "managedFields" && !self.managed => continue,
                Value::String(revision) if name == "resourceVersion" && named => self.revision(revision).into(),
                Value::String(revision) if name == "resourceVersion" && !revision.is_empty() => "<revision>".into(),
                value => self.value(name, value),
            };
            done.insert(self.text(name), value);
        }
        done
    }

    /// Entries of the same second may come in any order.
    fn managed_fields(&mut self, entries: &[Value]) -> Value {
        let mut entries: Vec<_> = entries.iter().map(|entry| self.value("", entry)).collect();
        entries.sort_by_key(|entry| {
            ["manager", "operation", "subresource", "apiVersion"].map(|field| entry[field].to_string())
        });
        entries.into()
    }

    fn cell(&mut self, cell: &Value) -> Value {
        match cell.as_str() {
            Some(text) if text::age(text) == Some(text.len()) => "<age>".into(),
            _ => self.value("", cell),
        }
    }

    fn revision(&mut self, revision: &str) -> String {
        let next = self.revisions.len() + 1;
        self.revisions.entry(revision.to_owned()).or_insert_with(|| format!("<revision {next}>")).clone()
    }

    fn word(&mut self, kind: &str, value: &str) -> String {
        if let Some(word) = self.words.get(value) {
            return word.clone();
        }
        let count = self.counts.entry(kind.to_owned()).or_default();
        *count += 1;
        let word = format!("<{kind} {count}>");
        self.words.insert(value.to_owned(), word.clone());
        word
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "0b6a5f0e-1c2d-4e3f-8a9b-0c1d2e3f4a5b";

    #[test]
    fn equal_values_get_equal_placeholders_and_different_ones_do_not() {
        let mut words = Normaliser::new(false);
        let pod = |name: &str, uid: &str, revision: &str| {
            json!({"metadata": {"generateName": "a-", "name": name, "uid": uid, "resourceVersion": revision,
                "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": []}})
        };
        let first = words.body(&pod("a-x4kz9", UID, "7"));
        let expected = json!({"metadata": {"generateName": "a-", "name": "<name 1>", "uid": "<uid 1>",
            "resourceVersion": "<revision 1>", "creationTimestamp": "<time>"}});
        assert_eq!(first, expected);
        assert_eq!(words.body(&pod("a-x4kz9", UID, "7")), first);
        assert_eq!(words.body(&pod("a-x4kz9", UID, "8"))["metadata"]["resourceVersion"], "<revision 2>");
        assert_eq!(
            words.body(&json!({"message": format!("pod a-x4kz9 has {UID}")}))["message"],
            "pod <name 1> has <uid 1>"
        );
    }

    #[test]
    fn values_of_the_request_are_kept() {
        let mut words = Normaliser::new(false);
        words.give(&json!({"spec": {"clusterIP": "10.96.0.7", "ports": [{"nodePort": 30080}]}}));
        let service = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{"nodePort": 30080}]});
        assert_eq!(words.body(&service), service);
        let other = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": [{"nodePort": 31111}]});
        let expected = json!({"clusterIP": "<clusterIP 1>", "clusterIPs": ["<clusterIP 1>"], "ports": [{"nodePort": "<nodePort 1>"}]});
        assert_eq!(words.body(&other), expected);
    }

    #[test]
    fn list_revisions_ages_and_tokens_are_replaced() {
        let mut words = Normaliser::new(false);
        let table =
            json!({"metadata": {"resourceVersion": "99", "continue": "abc"}, "rows": [{"cells": ["web", "2m10s"]}]});
        let expected = json!({"metadata": {"resourceVersion": "<revision>", "continue": "<continue>"}, "rows": [{"cells": ["web", "<age>"]}]});
        assert_eq!(words.body(&table), expected);
        assert_eq!(
            words.text("too old resource version: 1 (345)"),
            "too old resource version: <revision> (<revision>)"
        );
        assert_eq!(words.text("eyJhbGciOi.eyJhdWQ.c2ln"), "<token>");
    }
}
