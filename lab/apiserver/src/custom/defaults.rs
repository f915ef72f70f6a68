//! Defaults in structural schemas.

use serde_json::Value;

use crate::value::at;

/// Sets the defaults of missing fields. Null counts as missing, unless the schema has `nullable`.
pub(crate) fn defaults(given: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(properties) = at(given, "properties").as_object() {
                for (name, inner) in properties {
                    if map.get(name).is_some_and(Value::is_null) && at(inner, "nullable") != true {
                        map.remove(name);
                    }
                    if let Some(default) = inner.get("default").filter(|_| !map.contains_key(name)) {
                        map.insert(name.clone(), default.clone());
                    }
                    if let Some(value) = map.get_mut(name) {
                        defaults(inner, value);
                    }
                }
            }
            if let Some(inner) = given.get("additionalProperties").filter(|inner| inner.is_object()) {
                map.values_mut().for_each(|value| defaults(inner, value));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| defaults(at(given, "items"), value)),
        _ => {}
    }
}
