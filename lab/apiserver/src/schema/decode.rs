//! Decodes objects of clients: checks the types of fields and removes unknown ones.

use serde_json::Value;

use super::{Schema, Shape};
use crate::path::Path;

/// The findings of decoding.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    /// Paths of the unknown fields, which were removed.
    pub(crate) unknown: Vec<String>,
}

/// Checks the types of all fields and removes unknown ones. Fails with the message for a field of the wrong type.
pub(crate) fn decode(schema: &Schema, shape: &Shape, value: &mut Value) -> Result<Decoded, String> {
    visit(schema, shape, value, false)
}

/// The same for the result of a patch, which has other messages.
pub(crate) fn restore(schema: &Schema, shape: &Shape, value: &mut Value) -> Result<Decoded, String> {
    visit(schema, shape, value, true)
}

fn visit(schema: &Schema, shape: &Shape, value: &mut Value, restores: bool) -> Result<Decoded, String> {
    let mut walk = Walk { schema, restores, decoded: Decoded::default() };
    let owner = match shape {
        Shape::Type(index) => schema.get(*index).map(super::Type::short).unwrap_or_default(),
        _ => "",
    };
    walk.visit(shape, value, owner, &Path::Top)?;
    Ok(walk.decoded)
}

struct Walk<'a> {
    schema: &'a Schema,
    restores: bool,
    decoded: Decoded,
}

impl Walk<'_> {
    /// Visits a value; `owner` is the type that has the field.
    fn visit(&mut self, shape: &Shape, value: &mut Value, owner: &str, path: &Path<'_>) -> Result<(), String> {
        let scalar = matches!(shape, Shape::Text | Shape::Int64 | Shape::Double | Shape::Bool);
        // Metadata has a built-in type in all schemas.
        let elsewhere = self.schema.lenient && scalar && !path.is_below("metadata");
        if value.is_null() || elsewhere {
            return Ok(());
        }
        match (shape, &mut *value) {
            (Shape::Any, _) | (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => Ok(()),
            (Shape::Time | Shape::MicroTime, Value::String(text)) => match crate::moment::parse_rfc3339(text) {
                Some(_) => Ok(()),
                None => {
                    let fraction = if *shape == Shape::MicroTime { ".000000" } else { "" };
                    Err(format!(
                        "parsing time \"{text}\" as \"2006-01-02T15:04:05{fraction}Z07:00\": cannot parse \"{text}\" as \"2006\""
                    ))
                }
            },
            (Shape::IntOrText, Value::String(_)) | (Shape::Double, Value::Number(_)) => Ok(()),
            (Shape::Quantity, Value::String(text)) => match crate::quantity::canonical(text) {
                Some(text) => {
                    *value = text.into();
                    Ok(())
                }
                None => {
                    Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                        .into())
                }
            },
            (Shape::Quantity, Value::Number(number)) => {
                *value = number.to_string().into();
                Ok(())
            }
            (Shape::Bytes, Value::String(text)) => {
                use base64::Engine as _;
                match base64::engine::general_purpose::STANDARD.decode(text.as_bytes()) {
                    Ok(_) => Ok(()),
                    Err(base64::DecodeError::InvalidByte(at, _)) => {
                        Err(format!("illegal base64 data at input byte {at}"))
                    }
                    Err(_) => Err(format!("illegal base64 data at input byte {}", text.len() / 4 * 4)),
                }
            }
            (Shape::Int32 | Shape::IntOrText, Value::Number(number)) => match number.as_i64() {
                Some(number) if i32::try_from(number).is_ok() => Ok(()),
                _ => Err(self.mismatch(&format!("number {number}"), shape, owner, path)),
            },
            (Shape::Int64, Value::Number(number)) => match number.as_i64() {
                Some(_) => Ok(()),
                None => Err(self.mismatch(&format!("number {number}"), shape, owner, path)),
            },
            (Shape::List(item, _), Value::Array(values)) => {
                for (index, value) in values.iter_mut().enumerate() {
                    self.visit(item, value, owner, &Path::Item(path, index))?;
                }
                Ok(())
            }
            (Shape::Map(item, _), Value::Object(values)) => {
                for (key, value) in values.iter_mut() {
                    if value.is_null() && **item == Shape::Text && !self.schema.lenient {
                        *value = "".into();
                    }
                    self.visit(item, value, owner, &Path::Key(path, key))?;
                }
                Ok(())
            }
            (Shape::Type(index), Value::Object(values)) => {
                let Some(kind) = self.schema.get(*index) else { return Ok(()) };
                let mut unknown = Vec::new();
                for (key, value) in values.iter_mut() {
                    let path = Path::Field(path, key);
                    match kind.field(key) {
                        Some(field) => self.visit(&field.shape, value, kind.short(), &path)?,
                        None if kind.open => {}
                        None => {
                            self.decoded.unknown.push(path.to_string());
                            unknown.push(key.clone());
                        }
                    }
                }
                if !unknown.is_empty() {
                    values.retain(|key, _| !unknown.contains(key));
                }
                Ok(())
            }
            (shape, value) if self.restores => Err(self.unrestorable(shape, value)),
            (shape, value) => Err(self.mismatch(json_kind(value), shape, owner, path)),
        }
    }

    fn mismatch(&self, what: &str, shape: &Shape, owner: &str, path: &Path<'_>) -> String {
        let (to, fields) = (self.go_name(shape), path.fields());
        if fields.is_empty() {
            return format!("json: cannot unmarshal {what} into Go value of type {to}");
        }
        format!("json: cannot unmarshal {what} into Go struct field {owner}.{fields} of type {to}")
    }

    fn unrestorable(&self, shape: &Shape, value: &Value) -> String {
        let found = match value {
            Value::Array(_) => "slice",
            Value::Object(_) => "map",
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            other => json_kind(other),
        };
        match shape {
            Shape::List(..) => format!("cannot restore slice from {found}"),
            Shape::Map(..) => format!("cannot restore map from {found}"),
            Shape::Type(_) => format!("cannot restore struct from: {found}"),
            shape => format!("cannot convert {found} to {}", self.go_name(shape)),
        }
    }

    /// The name of a type in messages of the real server.
    fn go_name(&self, shape: &Shape) -> String {
        match shape {
            Shape::Text | Shape::Quantity => "string".into(),
            Shape::Int32 | Shape::IntOrText => "int32".into(),
            Shape::Int64 => "int64".into(),
            Shape::Double => "float64".into(),
            Shape::Bool => "bool".into(),
            Shape::Bytes => "[]uint8".into(),
            Shape::Time => "v1.Time".into(),
            Shape::MicroTime => "v1.MicroTime".into(),
            Shape::Any => "interface {}".into(),
            Shape::List(item, _) => format!("[]{}", self.go_name(item)),
            Shape::Map(item, _) => format!("map[string]{}", self.go_name(item)),
            Shape::Type(index) => {
                let name = self.schema.get(*index).map(|kind| kind.name.as_str()).unwrap_or_default();
                name.split_once('.').map_or(name, |(_, rest)| rest).to_owned()
            }
        }
    }
}

/// The name of a JSON type in messages of the real server.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(mut value: Value) -> (Value, Result<Decoded, String>) {
        let schema = Schema::builtin();
        let result = decode(schema, &schema.named("core.v1.Pod"), &mut value);
        (value, result)
    }

    #[test]
    fn unknown_fields_are_reported_and_removed() {
        let (value, result) = pod(json!({"spec": {"containers": [{"name": "c", "imag": "x"}]}, "x": 1}));
        assert_eq!(result.unwrap().unknown, ["spec.containers[0].imag", "x"]);
        assert_eq!(value, json!({"spec": {"containers": [{"name": "c"}]}}));
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_in_the_error() {
        let (_, result) = pod(json!({"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}));
        let message = "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32";
        assert_eq!(result.unwrap_err(), message);
        let (_, result) = pod(json!({"metadata": {"labels": {"a": 1}}}));
        let message = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string";
        assert_eq!(result.unwrap_err(), message);
    }
}
