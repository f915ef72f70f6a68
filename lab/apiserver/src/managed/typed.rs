//! Checks an applied configuration against its type, with the messages of the real server.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::compare::{key_step, value_step};
use super::fields::{Step, display};
use crate::patch::go;
use crate::schema::{ListKind, Schema, Shape, json_kind};

/// Reports fields that the type does not have, and duplicate items.
pub(crate) fn check(schema: &Schema, shape: &Shape, config: &Value) -> Result<(), String> {
    let mut walk = Walk { schema, path: Vec::new(), wrong: Vec::new() };
    walk.visit(shape, config);
    match walk.wrong.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Vec<Place<'a>>,
    wrong: Vec<String>,
}

/// A step of the path to the current value.
enum Place<'a> {
    Field(&'a str),
    Item(usize),
    Step(Step),
}

impl Place<'_> {
    fn display(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Item(index) => format!("[{index}]"),
            Self::Step(step) => display(std::slice::from_ref(step)),
        }
    }
}

impl<'a> Walk<'a> {
    fn visit(&mut self, shape: &Shape, value: &'a Value) {
        match (shape, value) {
            (_, Value::Null) | (Shape::Any, _) => {}
            (Shape::Type(index), Value::Object(fields)) => self.object(*index, fields),
            (Shape::Map(item, _), Value::Object(fields)) => {
                for (name, value) in fields {
                    self.below(Place::Field(name), item, value);
                }
            }
            (Shape::List(item, kind), Value::Array(items)) => self.list(item, kind, items),
            // The real server prints the value in a format that varies.
            (Shape::Type(_) | Shape::Map(..), other) => self.mismatch("map", &format!("&{{{}}}", go(other))),
            (Shape::List(..), other) => self.mismatch("list", &format!("&{{{}}}", go(other))),
            (Shape::Int32 | Shape::Int64 | Shape::Double, value) if !value.is_number() => {
                self.mismatch("numeric (int or float)", json_kind(value));
            }
            (Shape::Bool, value) if !value.is_boolean() => self.mismatch("boolean", &format!("&{{{}}}", go(value))),
            (Shape::Text | Shape::Bytes | Shape::Time | Shape::MicroTime, value) if !value.is_string() => {
                self.mismatch("string", &format!("&value.valueUnstructured{{Value:{value}}}"));
            }
            _ => {}
        }
    }

    fn object(&mut self, index: usize, fields: &'a Map<String, Value>) {
        let Some(kind) = self.schema.get(index) else { return };
        for (name, value) in fields {
            match kind.field(name) {
                Some(field) => self.below(Place::Field(name), &field.shape, value),
                None if kind.open => {}
                None => {
                    self.say(Some(Place::Field(name)), "field not declared in schema");
                    // Fields after it are not checked.
                    break;
                }
            }
        }
    }

    fn list(&mut self, item: &Shape, kind: &ListKind, items: &'a [Value]) {
        let step: &dyn Fn(&Value) -> Step = match kind {
            ListKind::Keyed(keys) => &|item| key_step(keys, item),
            ListKind::Set => &value_step,
            // Items of atomic lists are identified by their index, so there are no duplicates.
            ListKind::Atomic => {
                for (index, value) in items.iter().enumerate() {
                    self.below(Place::Item(index), item, value);
                }
                return;
            }
        };
        let steps: Vec<_> = items.iter().map(step).collect();
        let mut before = BTreeSet::new();
        for this in &steps {
            if !before.insert(this) {
                self.say(None, &format!("duplicate entries for key {}", display(std::slice::from_ref(this))));
            }
        }
        for (value, step) in items.iter().zip(steps) {
            self.below(Place::Step(step), item, value);
        }
    }

    fn below(&mut self, place: Place<'a>, shape: &Shape, value: &'a Value) {
        self.path.push(place);
        self.visit(shape, value);
        self.path.pop();
    }

    fn mismatch(&mut self, wanted: &str, found: &str) {
        self.say(None, &format!("expected {wanted}, got {found}"));
    }

    fn say(&mut self, last: Option<Place<'a>>, what: &str) {
        let path: String = self.path.iter().chain(&last).map(Place::display).collect();
        self.wrong.push(format!("{path}: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(service: Value) -> String {
        let schema = Schema::builtin();
        check(schema, &schema.named("core.v1.Service"), &service).unwrap_err()
    }

    #[test]
    fn unknown_fields_are_reported_with_their_path() {
        assert_eq!(wrong(json!({"dat": {}})), ".dat: field not declared in schema");
        let port = json!({"spec": {"ports": [{"port": "eighty"}]}});
        let message = ".spec.ports[port=\"eighty\",protocol=\"TCP\"].port: expected numeric (int or float), got string";
        assert_eq!(wrong(port), message);
        assert_eq!(wrong(json!({"spec": []})), ".spec: expected map, got &{[]}");
    }

    #[test]
    fn duplicate_items_are_reported_with_their_key() {
        let ports = json!({"spec": {"ports": [{"port": 81}, {"port": 81, "name": "x"}]}});
        assert_eq!(wrong(ports), ".spec.ports: duplicate entries for key [port=81,protocol=\"TCP\"]");
    }
}
