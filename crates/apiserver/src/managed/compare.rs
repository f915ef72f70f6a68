//! Which fields an object has, and which differ between two.

use serde_json::{Map, Value};

use super::fields::{Fields, Step};
use crate::schema::{ListKind, MapKind, Schema, Shape};

/// The path step of an item in a keyed list.
pub(super) fn key_step(keys: &[String], item: &Value) -> Step {
    let of = |key: &String| {
        let value = item.get(key).cloned().filter(|value| !value.is_null());
        // The one key with a default in the built-in types.
        let value = value.or_else(|| (key == "protocol").then(|| "TCP".into()));
        value.map(|value| (key.clone(), value))
    };
    format!("k:{}", Value::Object(keys.iter().filter_map(of).collect::<Map<_, _>>()))
}

pub(super) fn value_step(item: &Value) -> Step {
    format!("v:{item}")
}

/// The fields that an applied configuration has an opinion about.
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
                below(format!("f:{key}"), &child(schema, shape, key), value, path, into);
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

/// Whether a value of this shape is owned as one.
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
pub(super) fn child(schema: &Schema, shape: &Shape, name: &str) -> Shape {
    match shape {
        Shape::Type(index) => {
            schema.get(*index).and_then(|kind| kind.field(name)).map_or(Shape::Any, |field| field.shape.clone())
        }
        Shape::Map(item, _) => (**item).clone(),
        _ => Shape::Any,
    }
}

/// What was added or changed, and what was removed, between two objects.
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
        let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned();
        let (olds, news) = (map(old), map(new));
        let (olds, news) = (olds.as_ref().unwrap_or(&nothing), news.as_ref().unwrap_or(&nothing));
        let names = olds.keys().chain(news.keys().filter(|name| !olds.contains_key(*name)));
        for name in names {
            let inner = child(self.schema, shape, name);
            let (mut before, after) = (olds.get(name), news.get(name));
            // Fields that are always there were there, with nothing to say, in an object that left them out.
            let empty = self.implied(shape, name, &inner);
            if before.is_none() && old.is_some() {
                before = empty.as_ref();
            }
            self.path.push(format!("f:{name}"));
            self.visit(&inner, before, after);
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

    fn lists(&mut self, item: &Shape, old: Option<&Value>, new: Option<&Value>, step: impl Fn(&Value) -> Step) {
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let (olds, news) = (list(old), list(new));
        for value in &olds {
            let this = step(value);
            let after = news.iter().find(|new| step(new) == this);
            self.path.push(this);
            self.visit(item, Some(value), after);
            self.path.pop();
        }
        for value in &news {
            let this = step(value);
            if olds.iter().all(|old| step(old) != this) {
                self.path.push(this);
                self.visit(item, None, Some(value));
                self.path.pop();
            }
        }
    }
}
