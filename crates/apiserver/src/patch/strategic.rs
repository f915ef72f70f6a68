//! Strategic merge patches: lists of built-in types are merged by the fields that identify their items.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::schema::{ListKind, Schema, Shape};

/// Applies a strategic merge patch to an object of a built-in type.
pub(crate) fn strategic(schema: &Schema, shape: &Shape, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    object(schema, shape, crate::value::object(target), patch)
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
        Some(other) => return Err(Failure::bad_request(format!("unknown patch type: {other}"))),
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
            // The order is put right after the list was merged.
            if !patch.contains_key(of) {
                order(schema, &field(schema, shape, of), target.get_mut(of), value);
            }
            continue;
        }
        if value.is_null() {
            target.remove(key);
            continue;
        }
        let inner = field(schema, shape, key);
        let place = target.entry(key.clone()).or_insert(Value::Null);
        one(schema, &inner, place, value)?;
        if let Some(wanted) = patch.get(&format!("$setElementOrder/{key}")) {
            order(schema, &inner, Some(place), wanted);
        }
    }
    Ok(())
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
            let old = place.as_array().cloned().unwrap_or_default();
            // What is new comes first.
            let mut items: Vec<_> = patches.iter().filter(|value| !old.contains(value)).cloned().collect();
            items.extend(old);
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
    // A list is merged by its first key, whatever else tells its items apart.
    let key = keys.first().map(String::as_str).unwrap_or_default();
    let mut items = place.as_array().cloned().unwrap_or_default();
    if patches.iter().any(|patch| patch.get("$patch").is_some_and(|how| how == "replace") && patch.get(key).is_none()) {
        items.clear();
    }
    for patch in patches {
        let how = patch.get("$patch").and_then(Value::as_str);
        let Some(id) = patch.get(key) else {
            if how.is_some() {
                continue;
            }
            let message = format!("map: {patch} does not contain declared merge key: {key}");
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
    *place = items.into();
    Ok(())
}

/// Sorts the items that are named into the order in which they are; the others stay behind the one they followed.
fn order(_: &Schema, shape: &Shape, place: Option<&mut Value>, wanted: &Value) {
    let (Some(Value::Array(items)), Some(wanted)) = (place, wanted.as_array()) else { return };
    let key = match shape {
        Shape::List(_, ListKind::Keyed(keys)) => keys.first(),
        _ => None,
    };
    let rank = |item: &Value| {
        wanted.iter().position(|wanted| match key {
            Some(key) => wanted.get(key) == item.get(key),
            None => wanted == item,
        })
    };
    let mut last = 0;
    let mut ranked: Vec<_> = std::mem::take(items)
        .into_iter()
        .map(|item| {
            last = rank(&item).map_or(last, |rank| rank + 1);
            (last, item)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    *items = ranked.into_iter().map(|(_, item)| item).collect();
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
    fn sets_grow_and_shrink_and_order_is_kept() {
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
