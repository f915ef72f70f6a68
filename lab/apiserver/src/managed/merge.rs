//! Merges an applied configuration into an object, and removes fields.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::compare::{atomic, by_step, child, key_step, value_step};
use super::fields::Step;
use crate::schema::{ListKind, Schema, Shape};

/// Merges `config` into `target` by the kinds of lists and maps.
pub(super) fn merge(schema: &Schema, shape: &Shape, target: &mut Value, config: &Value) {
    match (shape, config) {
        (_, Value::Object(fields)) if !atomic(schema, shape) => {
            if fields.is_empty() && target.is_object() {
                return;
            }
            let target = crate::value::object(target);
            for (key, value) in fields {
                merge(schema, child(schema, shape, key), target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Shape::List(item, ListKind::Keyed(keys)), Value::Array(values)) => {
            list(target, values, |value| key_step(keys, value), |place, value| merge(schema, item, place, value));
        }
        (Shape::List(_, ListKind::Set), Value::Array(values)) => list(target, values, value_step, |_, _| {}),
        _ => *target = config.clone(),
    }
}

/// Common items have the order of the configuration; others stay after the item that they followed, and existing items
/// come before new ones.
fn list(target: &mut Value, config: &[Value], step: impl Fn(&Value) -> Step, join: impl Fn(&mut Value, &Value)) {
    let old = match target.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let (olds, news): (Vec<_>, Vec<_>) = (old.iter().map(&step).collect(), config.iter().map(&step).collect());
    let (there, given) = (by_step(&old, &step), news.iter().collect::<HashSet<_>>());
    let mut shared = news.iter().filter(|step| there.contains_key(*step)).peekable();
    let mut merged = Vec::with_capacity(old.len() + config.len());
    let mut left = olds.iter().zip(&old).peekable();
    for (new, value) in news.iter().zip(config) {
        while let Some((step, kept)) = left.next_if(|(step, _)| shared.peek() != Some(step)) {
            // Items that the configuration has elsewhere are added there.
            if !given.contains(step) {
                merged.push(kept.clone());
            }
        }
        if shared.next_if_eq(&new).is_some() {
            left.next_if(|(step, _)| *step == new);
        }
        let mut item = there.get(new).copied().cloned();
        match &mut item {
            Some(item) => join(item, value),
            None => item = Some(value.clone()),
        }
        merged.extend(item);
    }
    merged.extend(left.filter(|(step, _)| !given.contains(step)).map(|(_, kept)| kept.clone()));
    *target = merged.into();
}

/// Removes the value at a path from an object.
pub(super) fn remove(target: &mut Value, path: &[Step]) {
    let [first, rest @ ..] = path else { return };
    let Some((kind, text)) = first.split_at_checked(2) else { return };
    match (kind, target) {
        ("f:", Value::Object(map)) if rest.is_empty() => drop(map.remove(text)),
        ("f:", Value::Object(map)) => {
            if let Some(inner) = map.get_mut(text) {
                remove(inner, rest);
            }
        }
        ("k:", Value::Array(items)) => {
            let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            let names: Vec<_> = keys.keys().cloned().collect();
            let matches = |item: &Value| key_step(&names, item) == *first;
            if rest.is_empty() {
                items.retain(|item| !matches(item));
            } else if let Some(item) = items.iter_mut().find(|item| matches(item)) {
                remove(item, rest);
            }
        }
        ("v:", Value::Array(items)) => items.retain(|item| value_step(item) != *first),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_number_of_computed_steps_is_linear_in_the_number_of_items() {
        let count = 1000;
        let items = |numbers: std::ops::Range<i32>| numbers.map(|number| json!(number)).collect::<Vec<_>>();
        let (mut target, config) = (Value::Array(items(0..count)), items(count / 2..count + count / 2));
        let steps = Cell::new(0);
        let step = |item: &Value| {
            steps.set(steps.get() + 1);
            value_step(item)
        };
        list(&mut target, &config, step, |_, _| {});
        assert_eq!(target, Value::Array(items(0..count + count / 2)));
        assert!(steps.get() <= 4 * count, "{} for {count} items twice", steps.get());
    }
}
