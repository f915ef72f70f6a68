//! Patches: JSON patch (RFC 6902) and merge patch (RFC 7386); strategic merge patches are in [`strategic`].

use serde_json::Value;

use crate::failure::Failure;

mod render;
mod strategic;
pub(crate) use render::{go, render};
pub(crate) use strategic::strategic;

/// Applies a merge patch, which has to be an object.
pub(crate) fn merge_object(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    if !patch.is_object() {
        return Err(not_a("map[string]interface {}", patch));
    }
    merge(target, patch);
    Ok(())
}

fn not_a(wanted: &str, patch: &Value) -> Failure {
    let kind = crate::schema::json_kind(patch);
    Failure::bad_request(format!("error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}"))
}

/// Applies a merge patch: objects by field, null removes, everything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = crate::value::object(target);
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch completely or not at all.
pub(crate) fn json(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(operations) = patch.as_array() else {
        return Err(not_a("[]handlers.jsonPatchOp", patch));
    };
    if operations.len() > 10_000 {
        let message = "The allowed maximum operations in a JSON patch is 10000";
        return Err(Failure::new(413, "RequestEntityTooLarge", format!("{message}, got {}", operations.len())));
    }
    if let Some(other) = operations.iter().find(|operation| !operation.is_object()) {
        return Err(not_a("handlers.jsonPatchOp", other));
    }
    let mut result = target.clone();
    for operation in operations {
        step(&mut result, operation).map_err(|why| {
            tracing::debug!(why, "JSON patch does not apply");
            Failure::new(422, "Invalid", REJECTED).about(serde_json::json!({}))
        })?;
    }
    *target = result;
    Ok(())
}

const REJECTED: &str = "the server rejected our request due to an error in our request";

fn step(target: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path").ok_or_else(|| "it has no path".to_owned())?;
    let value = || operation.get("value").cloned().unwrap_or_default();
    let from = || text("from").ok_or_else(|| "it does not say from where".to_owned());
    let missing =
        |op: &str, path: &str| format!("{op} operation does not apply: doc is missing path: {path}: missing value");
    match text("op").unwrap_or_default() {
        "add" => add(target, path, value()).ok_or_else(|| missing("add", path)),
        "remove" => take(target, path).map(drop).ok_or_else(|| missing("remove", path)),
        "replace" => match target.pointer_mut(path) {
            Some(place) => {
                *place = value();
                Ok(())
            }
            // Lenient, as the real server is, if the parent exists.
            None => add(target, path, value()).ok_or_else(|| missing("replace", path)),
        },
        "move" => {
            let from = from()?;
            let value = take(target, from).ok_or_else(|| missing("move", from))?;
            add(target, path, value).ok_or_else(|| missing("move", path))
        }
        "copy" => {
            let from = from()?;
            let value = target.pointer(from).cloned().ok_or_else(|| missing("copy", from))?;
            add(target, path, value).ok_or_else(|| missing("copy", path))
        }
        "test" => match target.pointer(path) {
            Some(found) if *found == value() => Ok(()),
            None if value().is_null() => Ok(()),
            _ => Err(format!("testing value {path} failed: test failed")),
        },
        other => Err(format!("unexpected kind of operation: {other}")),
    }
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(map) => drop(map.insert(last, value)),
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let index: usize = last.parse().ok().filter(|&index| index <= list.len())?;
            list.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let index: usize = last.parse().ok().filter(|&index| index < list.len())?;
            Some(list.remove(index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_merges_objects_and_replaces_the_rest() {
        let mut value = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        merge(&mut value, &json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "l": [3]}));
        assert_eq!(value, json!({"a": {"c": 2, "d": {"f": 1}}, "l": [3]}));
    }

    #[test]
    fn a_json_patch_is_applied_completely_or_not_at_all() {
        let mut value = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let patch = json!([
            {"op": "test", "path": "/a/b~1c", "value": 1},
            {"op": "add", "path": "/l/1", "value": 9},
            {"op": "add", "path": "/l/-", "value": 3},
            {"op": "move", "from": "/a/b~1c", "path": "/m"},
            {"op": "copy", "from": "/l/0", "path": "/n"},
            {"op": "remove", "path": "/l/0"},
            {"op": "replace", "path": "/m", "value": "x"},
        ]);
        super::json(&mut value, &patch).unwrap();
        assert_eq!(value, json!({"a": {}, "l": [9, 2, 3], "m": "x", "n": 1}));
        let before = value.clone();
        let patch = json!([{"op": "add", "path": "/z", "value": 1}, {"op": "remove", "path": "/nowhere"}]);
        assert_eq!(super::json(&mut value, &patch).unwrap_err().code, 422);
        assert_eq!(value, before);
    }
}
