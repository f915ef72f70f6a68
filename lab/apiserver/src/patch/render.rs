//! Values in the format of messages about patches.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::schema::{Schema, Shape};

/// A patched object as JSON. Objects that the patch changed have their fields in alphabetical order, others in that of
/// the type.
pub(crate) fn render(schema: &Schema, shape: &Shape, value: &Value, patch: &Value) -> String {
    let mut text = String::new();
    write(schema, shape, value, Some(&reached(patch)), &mut text);
    text
}

/// The changed objects in the form of a merge patch; of a JSON patch, by its paths.
fn reached(patch: &Value) -> Value {
    let Some(operations) = patch.as_array() else { return patch.clone() };
    let mut all = Value::Object(Map::new());
    for path in operations.iter().filter_map(|operation| operation.get("path").and_then(Value::as_str)) {
        let mut at = &mut all;
        for name in path.split('/').skip(1) {
            at = crate::value::object(at).entry(name.replace("~1", "/").replace("~0", "~")).or_insert(Value::Null);
        }
    }
    all
}

fn write(schema: &Schema, shape: &Shape, value: &Value, patch: Option<&Value>, to: &mut String) {
    match value {
        Value::Object(map) => {
            let kind = match shape {
                Shape::Type(index) => schema.get(*index),
                _ => None,
            };
            let mut fields: Vec<_> = map.iter().collect();
            if patch.is_none() {
                let number = |name: &str| Some(kind?.field(name)?.number.0);
                fields.sort_by_key(|(name, _)| number(name));
            }
            to.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                to.push_str(if index > 0 { "," } else { "" });
                // Writing to memory does not fail.
                let _ = write!(to, "{}:", Value::from(name.as_str()));
                let inner = match (kind, shape) {
                    (Some(kind), _) => kind.field(name).map_or(Shape::Any, |field| field.shape.clone()),
                    (None, Shape::Map(item, _)) => (**item).clone(),
                    (None, _) => Shape::Any,
                };
                let patch = patch.and_then(|patch| patch.get(name)).filter(|patch| patch.is_object());
                write(schema, &inner, value, patch, to);
            }
            to.push('}');
        }
        Value::Array(items) => {
            let inner = if let Shape::List(item, _) = shape { (**item).clone() } else { Shape::Any };
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                to.push_str(if index > 0 { "," } else { "" });
                write(schema, &inner, item, None, to);
            }
            to.push(']');
        }
        other => to.push_str(&other.to_string()),
    }
}

/// A value in the format of Go.
pub(crate) fn go(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(go).collect())),
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| format!("{name}:{}", go(value)));
            format!("map[{}]", joined(fields.collect()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_objects_are_sorted_and_others_have_the_order_of_their_type() {
        let schema = Schema::builtin();
        let map = json!({"metadata": {"uid": "u", "name": "n"}, "data": {"b": 1, "a": [2]}, "x": null});
        let text = render(schema, &schema.named("core.v1.ConfigMap"), &map, &json!({"data": {"b": 1}}));
        assert_eq!(text, r#"{"data":{"a":[2],"b":1},"metadata":{"name":"n","uid":"u"},"x":null}"#);
    }

    #[test]
    fn values_are_printed_in_the_format_of_go() {
        assert_eq!(
            go(&json!({"image": "img:4", "list": [1, "b"], "no": null})),
            "map[image:img:4 list:[1 b] no:<nil>]"
        );
    }
}
