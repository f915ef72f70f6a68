//! Strategic merge patches: lists of built-in types are merged by the fields that identify their items.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::schema::{ListKind, Schema, Shape};

/// Applies a strategic merge patch to an object of a built-in type.
pub(crate) fn strategic(schema: &Schema, shape: &Shape, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    match patch {
        Value::Object(patch) => object(schema, shape, crate::value::object(target), patch),
        _ => Err(super::not_a("map[string]interface {}", patch)),
    }
}

fn object(
    schema: &Schema,
    shape: &Shape,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Failure> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            target.clear();
            target.extend(
                patch.iter().filter(|(key, _)| *key != "$patch").map(|(key, value)| (key.clone(), value.clone())),
            );
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => {
            let rendered = super::go(&Value::Object(patch.clone()));
            return Err(Failure::new(500, "", format!("unknown patch type: {other} in map: {rendered}")));
        }
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if key == "$patch" || key == "$retainKeys" {
            continue;
        }
        if let Some(of) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(list) = target.get_mut(of).and_then(Value::as_array_mut) {
                list.retain(|item| !value.as_array().is_some_and(|gone| gone.contains(item)));
            }
            continue;
        }
        if let Some(of) = key.strip_prefix("$setElementOrder/") {
            // The order is set after the list was merged.
            if !patch.contains_key(of) {
                let before = list_at(target, of);
                order(&field(schema, shape, of), target.get_mut(of), value, &before);
            }
            continue;
        }
        if value.is_null() {
            target.remove(key);
            continue;
        }
        let inner = field(schema, shape, key);
        if let (Some(order), Some(items)) = (patch.get(&format!("$setElementOrder/{key}")), value.as_array()) {
            in_order(&inner, items, order)?;
        }
        let before = list_at(target, key);
        let place = target.entry(key.clone()).or_insert(Value::Null);
        one(schema, &inner, place, value)?;
        if let Some(wanted) = patch.get(&format!("$setElementOrder/{key}")) {
            order(&inner, Some(place), wanted, &before);
        }
    }
    Ok(())
}

fn list_at(target: &Map<String, Value>, key: &str) -> Vec<Value> {
    target.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn field(schema: &Schema, shape: &Shape, name: &str) -> Shape {
    match shape {
        Shape::Type(index) => {
            schema.get(*index).and_then(|kind| kind.field(name)).map_or(Shape::Any, |field| field.shape.clone())
        }
        Shape::Map(item, _) => (**item).clone(),
        _ => Shape::Any,
    }
}

fn one(schema: &Schema, shape: &Shape, place: &mut Value, patch: &Value) -> Result<(), Failure> {
    match (shape, patch) {
        (Shape::List(item, ListKind::Keyed(keys)), Value::Array(patches)) => list(schema, item, keys, place, patches),
        (Shape::List(_, ListKind::Set), Value::Array(patches)) => {
            let before = place.as_array().cloned().unwrap_or_default();
            let mut items = before.clone();
            items.extend(patches.iter().filter(|value| !before.contains(value)).cloned());
            arrange(&mut items, patches, &before, None);
            *place = items.into();
            Ok(())
        }
        (_, Value::Object(patch)) => object(schema, shape, crate::value::object(place), patch),
        _ => {
            *place = patch.clone();
            Ok(())
        }
    }
}

fn list(schema: &Schema, item: &Shape, keys: &[String], place: &mut Value, patches: &[Value]) -> Result<(), Failure> {
    // A list is merged by its first key, even if several identify its items.
    let key = keys.first().map(String::as_str).unwrap_or_default();
    let before = place.as_array().cloned().unwrap_or_default();
    let mut items = before.clone();
    if patches.iter().any(|patch| patch.get("$patch").is_some_and(|how| how == "replace") && patch.get(key).is_none()) {
        items.clear();
    }
    for patch in patches {
        let how = patch.get("$patch").and_then(Value::as_str);
        let Some(id) = patch.get(key) else {
            if how.is_some() {
                continue;
            }
            let message = format!("map: {} does not contain declared merge key: {key}", super::go(patch));
            return Err(Failure::new(500, "", message));
        };
        let found = items.iter_mut().find(|item| item.get(key) == Some(id));
        match (how, found) {
            (Some("delete"), _) => items.retain(|item| item.get(key) != Some(id)),
            (_, Some(found)) => one(schema, item, found, patch)?,
            (_, None) => {
                let mut new = Value::Object(Map::new());
                one(schema, item, &mut new, patch)?;
                items.push(new);
            }
        }
    }
    arrange(&mut items, patches, &before, Some(key));
    *place = items.into();
    Ok(())
}

/// Puts the named items into the order in which they are named. The others stay before the items that they preceded;
/// new ones come as early as possible.
fn arrange(items: &mut Vec<Value>, named: &[Value], before: &[Value], key: Option<&str>) {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut wanted, mut others): (Vec<_>, Vec<_>) =
        std::mem::take(items).into_iter().partition(|item| place(named, item).is_some());
    wanted.sort_by_key(|item| place(named, item));
    others.sort_by_key(|item| place(before, item));
    let mut others = others.into_iter().peekable();
    for item in wanted {
        while let Some(other) = others.next_if(|other| match (place(before, other), place(before, &item)) {
            (Some(other), Some(item)) => other < item,
            _ => false,
        }) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

/// The patched items must be in the order of `$setElementOrder`.
fn in_order(shape: &Shape, items: &[Value], order: &Value) -> Result<(), Failure> {
    let id = |item: &Value| match shape {
        Shape::List(_, ListKind::Keyed(keys)) => keys.first().and_then(|key| item.get(key)).cloned(),
        _ => Some(item.clone()),
    };
    let mut named = order.as_array().into_iter().flatten();
    let mut patched = items.iter().filter(|item| item.get("$patch").is_none());
    if patched.all(|item| named.any(|named| id(named) == id(item))) {
        return Ok(());
    }
    let (items, order) = (super::go(&items.into()), super::go(order));
    let why = format!("The order in patch list:\n{items}\n doesn't match $setElementOrder list:\n{order}\n");
    Err(Failure::new(500, "", why))
}

/// Orders a list that is a field of a patched object.
fn order(shape: &Shape, place: Option<&mut Value>, named: &Value, before: &[Value]) {
    let (Some(Value::Array(items)), Some(named)) = (place, named.as_array()) else { return };
    let key = match shape {
        Shape::List(_, ListKind::Keyed(keys)) => keys.first().map(String::as_str),
        _ => None,
    };
    arrange(items, named, before, key);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut pod: Value, patch: Value) -> Value {
        let schema = Schema::builtin();
        strategic(schema, &schema.named("core.v1.Pod"), &mut pod, &patch).unwrap();
        pod
    }

    #[test]
    fn lists_merge_by_their_key() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "args": ["x"]}]}});
        let patch = json!({"spec": {"containers": [{"name": "b", "args": ["y"]}, {"name": "c"}, {"name": "a", "$patch": "delete"}]}});
        assert_eq!(patched(pod, patch), json!({"spec": {"containers": [{"name": "b", "args": ["y"]}, {"name": "c"}]}}));
    }

    #[test]
    fn sets_can_grow_and_shrink_and_keep_their_order() {
        let pod =
            json!({"metadata": {"finalizers": ["a/b", "c/d"]}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({
            "metadata": {"finalizers": ["e/f"], "$deleteFromPrimitiveList/finalizers": ["a/b"]},
            "spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "1"}]},
        });
        let expected = json!({
            "metadata": {"finalizers": ["e/f", "c/d"]},
            "spec": {"containers": [{"name": "b"}, {"name": "a", "image": "1"}]},
        });
        assert_eq!(patched(pod, patch), expected);
    }

    #[test]
    fn new_items_come_before_existing_ones() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [{"name": "n"}, {"name": "b", "image": "1"}]}});
        let expected = json!({"spec": {"containers": [{"name": "n"}, {"name": "a"}, {"name": "b", "image": "1"}]}});
        assert_eq!(patched(pod, patch), expected);
    }

    #[test]
    fn objects_are_replaced_and_keys_retained_on_request() {
        let pod = json!({"spec": {"securityContext": {"runAsUser": 1}, "volumes": [{"name": "v", "emptyDir": {}}]}});
        let patch = json!({"spec": {
            "securityContext": {"$patch": "replace", "fsGroup": 2},
            "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}],
        }});
        let expected =
            json!({"spec": {"securityContext": {"fsGroup": 2}, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
        assert_eq!(patched(pod, patch), expected);
    }
}
