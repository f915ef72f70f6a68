//! The fields of an object, and those that differ between two objects.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::fields::{Fields, Step};
use crate::schema::{ListKind, MapKind, Schema, Shape};

/// The path step of an item in a keyed list.
pub(super) fn key_step(keys: &[String], item: &Value) -> Step {
    let of = |key: &String| {
        let value = item.get(key).cloned().filter(|value| !value.is_null());
        // The only key with a default in the built-in types.
        let value = value.or_else(|| (key == "protocol").then(|| "TCP".into()));
        value.map(|value| (key.clone(), value))
    };
    format!("k:{}", Value::Object(keys.iter().filter_map(of).collect::<Map<_, _>>()))
}

pub(super) fn value_step(item: &Value) -> Step {
    format!("v:{item}")
}

/// The fields of an applied configuration.
pub(super) fn fields_of(schema: &Schema, shape: &Shape, value: &Value) -> Fields {
    let mut fields = Fields::default();
    collect(schema, shape, value, &mut Vec::new(), &mut fields);
    fields
}

fn collect(schema: &Schema, shape: &Shape, value: &Value, path: &mut Vec<Step>, into: &mut Fields) {
    let below = |step: Step, shape: &Shape, value: &Value, path: &mut Vec<Step>, into: &mut Fields| {
        path.push(step);
        collect(schema, shape, value, path, into);
        path.pop();
    };
    match (shape, value) {
        (_, Value::Object(map)) if !map.is_empty() && !atomic(schema, shape) => {
            for (key, value) in map {
                below(format!("f:{key}"), child(schema, shape, key), value, path, into);
            }
        }
        (Shape::List(item, ListKind::Keyed(keys)), Value::Array(items)) if !items.is_empty() => {
            for value in items {
                let step = key_step(keys, value);
                path.push(step.clone());
                into.insert(path);
                path.pop();
                below(step, item, value, path, into);
            }
        }
        (Shape::List(_, ListKind::Set), Value::Array(items)) if !items.is_empty() => {
            for value in items {
                path.push(value_step(value));
                into.insert(path);
                path.pop();
            }
        }
        _ => into.insert(path),
    }
}

/// Whether a value of this shape has a single owner.
pub(super) fn atomic(schema: &Schema, shape: &Shape) -> bool {
    match shape {
        Shape::Type(index) => schema.get(*index).is_some_and(|kind| kind.atomic),
        Shape::Map(_, kind) => *kind == MapKind::Atomic,
        Shape::List(_, kind) => *kind == ListKind::Atomic,
        Shape::Any => false,
        _ => true,
    }
}

/// The shape of a field of an object.
pub(super) fn child<'a>(schema: &'a Schema, shape: &'a Shape, name: &str) -> &'a Shape {
    static ANY: Shape = Shape::Any;
    match shape {
        Shape::Type(index) => schema.get(*index).and_then(|kind| kind.field(name)).map_or(&ANY, |field| &field.shape),
        Shape::Map(item, _) => item,
        _ => &ANY,
    }
}

/// The first item of each step.
pub(super) fn by_step<'a>(
    items: impl IntoIterator<Item = &'a Value>,
    step: impl Fn(&Value) -> Step,
) -> HashMap<Step, &'a Value> {
    let mut all = HashMap::new();
    for item in items {
        all.entry(step(item)).or_insert(item);
    }
    all
}

/// The fields that were added or changed, and those that were removed.
pub(super) fn compare(schema: &Schema, shape: &Shape, old: &Value, new: &Value) -> (Fields, Fields) {
    let mut walk = Walk { schema, path: Vec::new(), changed: Fields::default(), removed: Fields::default() };
    walk.visit(shape, Some(old), Some(new));
    let Walk { mut changed, mut removed, .. } = walk;
    changed.strip(&[]);
    removed.strip(&[]);
    (changed, removed)
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Vec<Step>,
    changed: Fields,
    removed: Fields,
}

impl Walk<'_> {
    fn visit(&mut self, shape: &Shape, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        match (old, new) {
            (None, Some(_)) => self.changed.insert(&self.path),
            (Some(_), None) => self.removed.insert(&self.path),
            _ => {}
        }
        let objects = |value: Option<&Value>| value.is_none_or(|value| value.is_object() || value.is_null());
        let lists = |value: Option<&Value>| value.is_none_or(|value| value.is_array() || value.is_null());
        match shape {
            Shape::List(item, ListKind::Keyed(keys)) if lists(old) && lists(new) => {
                self.lists(item, old, new, |item| key_step(keys, item));
            }
            Shape::List(item, ListKind::Set) if lists(old) && lists(new) => self.lists(item, old, new, value_step),
            Shape::Type(_) | Shape::Map(..) | Shape::Any
                if !atomic(self.schema, shape) && objects(old) && objects(new) =>
            {
                self.objects(shape, old, new);
            }
            _ if old.is_some() && new.is_some() => self.changed.insert(&self.path),
            _ => {}
        }
    }

    fn objects(&mut self, shape: &Shape, old: Option<&Value>, new: Option<&Value>) {
        let nothing = Map::new();
        let olds = old.and_then(Value::as_object).unwrap_or(&nothing);
        let news = new.and_then(Value::as_object).unwrap_or(&nothing);
        let names = olds.keys().chain(news.keys().filter(|name| !olds.contains_key(*name)));
        for name in names {
            let inner = child(self.schema, shape, name);
            let (mut before, after) = (olds.get(name), news.get(name));
            // Fields that are always written have an empty value in an object that leaves them out.
            let empty = self.implied(shape, name, inner);
            if before.is_none() && old.is_some() {
                before = empty.as_ref();
            }
            self.path.push(format!("f:{name}"));
            self.visit(inner, before, after);
            self.path.pop();
        }
    }

    fn implied(&self, shape: &Shape, name: &str, inner: &Shape) -> Option<Value> {
        let Shape::Type(index) = shape else { return None };
        let always = self.schema.get(*index)?.field(name)?.always;
        always.then(|| match inner {
            Shape::Type(_) => Value::Object(Map::new()),
            _ => Value::Null,
        })
    }

    fn lists<'a>(
        &mut self,
        item: &Shape,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
        step: impl Fn(&Value) -> Step,
    ) {
        let list = |value: Option<&'a Value>| value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let (olds, news) = (list(old), list(new));
        let (before, after) = (by_step(olds, &step), by_step(news, &step));
        for value in olds {
            let this = step(value);
            let after = after.get(&this).copied();
            self.path.push(this);
            self.visit(item, Some(value), after);
            self.path.pop();
        }
        for value in news {
            let this = step(value);
            if !before.contains_key(&this) {
                self.path.push(this);
                self.visit(item, None, Some(value));
                self.path.pop();
            }
        }
    }
}
