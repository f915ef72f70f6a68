//! Reads and writes JSON values by dotted paths.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at `path`, or null.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |value, key| value.get(key)).unwrap_or(&NULL)
}

/// The string at `path`, or an empty one.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The items of the list at `path`, or none.
pub(crate) fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The items of the list at `path`, to change them; none if there is no list.
pub(crate) fn items_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    at_mut(value, path).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// The value at `path`, to change it.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, key| value.get_mut(key))
}

/// The value as an object; any other value is replaced by an empty object.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable_map(),
    }
}

#[expect(clippy::unreachable, reason = "the caller has just made the value an object")]
fn unreachable_map<'a>() -> &'a mut Map<String, Value> {
    unreachable!()
}

/// Sets the value at `path`, and creates missing objects of the path.
pub(crate) fn set(value: &mut Value, path: &str, new: impl Into<Value>) {
    let last = path.split('.').fold(value, |value, key| object(value).entry(key).or_insert(Value::Null));
    *last = new.into();
}

/// Sets the value at `path` unless it has one other than null.
pub(crate) fn default_to(value: &mut Value, path: &str, new: impl Into<Value>) {
    if at(value, path).is_null() {
        set(value, path, new);
    }
}

/// Like [`default_to`], and replaces the empty string too.
pub(crate) fn default_text(value: &mut Value, path: &str, new: &str) {
    if text(value, path).is_empty() {
        set(value, path, new);
    }
}

/// Removes the value at `path`.
pub(crate) fn remove(value: &mut Value, path: &str) -> Option<Value> {
    match path.rsplit_once('.') {
        Some((parent, key)) => at_mut(value, parent)?.as_object_mut()?.remove(key),
        None => value.as_object_mut()?.remove(path),
    }
}

/// Converts fractions that are whole numbers: `2.0` becomes 2.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
            if let Some(whole) = whole.and_then(|whole| format!("{whole:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Copies the value at `path`, or its absence.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &str) {
    match at(from, path) {
        Value::Null => drop(remove(to, path)),
        value => set(to, path, value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_fractions_become_integers() {
        let mut value = json!({"a": [2.0, 2.5, -0.0, 1e300], "b": 7});
        whole_numbers(&mut value);
        assert_eq!(value, json!({"a": [2, 2.5, 0, 1e300], "b": 7}));
    }

    #[test]
    fn paths_read_and_create_objects() {
        let mut value = json!({"a": {"b": 1}});
        assert_eq!(at(&value, "a.b"), &json!(1));
        assert!(at(&value, "a.b.c").is_null());
        set(&mut value, "a.c.d", "x");
        default_to(&mut value, "a.c.d", "y");
        assert_eq!(remove(&mut value, "a.b"), Some(json!(1)));
        assert_eq!(value, json!({"a": {"c": {"d": "x"}}}));
    }
}
