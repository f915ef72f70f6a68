//! Decodes objects in protobuf, as `kubectl create` and typed Go clients send them.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::{Schema, Shape};

/// The prefix of each body.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum nesting of messages.
const MAX_DEPTH: usize = 64;

/// Decodes a body into an object with `kind` and `apiVersion`; `None` if it is invalid.
pub(crate) fn from_protobuf(schema: &Schema, shape_of: impl Fn(&str, &str) -> Shape, body: &[u8]) -> Option<Value> {
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in fields(body.strip_prefix(MAGIC)?) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for field in fields(meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = String::from_utf8(text.to_vec()).ok()?,
                        (2, Wire::Bytes(text)) => kind = String::from_utf8(text.to_vec()).ok()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = Value::Object(Map::new());
    message(schema, &shape_of(&api_version, &kind), raw, &mut object, MAX_DEPTH)?;
    crate::value::set(&mut object, "apiVersion", api_version);
    crate::value::set(&mut object, "kind", kind);
    Some(object)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; `None` at the first invalid one.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u32, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = field(&mut bytes);
        if field.is_none() {
            bytes = &[];
        }
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Wire<'a>)> {
    let key = varint(bytes)?;
    let mut take = |length: usize| {
        let (taken, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(taken)
    };
    let number = u32::try_from(key >> 3).ok()?;
    let wire = match key & 7 {
        1 => Wire::Number(u64::from_le_bytes(take(8)?.try_into().ok()?)),
        5 => Wire::Number(u64::from(u32::from_le_bytes(take(4)?.try_into().ok()?))),
        0 => Wire::Number(varint(bytes)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (taken, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Wire::Bytes(taken)
        }
        _ => return None,
    };
    Some((number, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(schema: &Schema, shape: &Shape, bytes: &[u8], object: &mut Value, depth: usize) -> Option<()> {
    let Shape::Type(index) = shape else { return None };
    let kind = schema.get(*index)?;
    let depth = depth.checked_sub(1)?;
    for field in fields(bytes) {
        let (number, wire) = field?;
        if let Some(field) = kind.fields.iter().find(|field| field.number == (number, 0)) {
            put(schema, &field.shape, &field.name, wire, object, depth)?;
        } else if let Wire::Bytes(inner) = wire {
            for field in fields(inner) {
                let (second, wire) = field?;
                if let Some(field) = kind.fields.iter().find(|field| field.number == (number, second)) {
                    put(schema, &field.shape, &field.name, wire, object, depth)?;
                }
            }
        }
    }
    Some(())
}

fn put(schema: &Schema, shape: &Shape, name: &str, wire: Wire<'_>, object: &mut Value, depth: usize) -> Option<()> {
    let place = crate::value::object(object).entry(name).or_insert(Value::Null);
    match (shape, wire) {
        (Shape::List(item, _), wire) => {
            let value = value(schema, item, wire, depth)?;
            match place {
                Value::Array(list) => list.push(value),
                place => *place = vec![value].into(),
            }
        }
        (Shape::Map(item, _), Wire::Bytes(entry)) => {
            let (mut key, mut held) = (String::new(), None);
            for field in fields(entry) {
                match field? {
                    (1, Wire::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                    (2, wire) => held = Some(value(schema, item, wire, depth)?),
                    _ => {}
                }
            }
            crate::value::object(place).insert(key, held.unwrap_or_else(|| "".into()));
        }
        (shape, wire) => *place = value(schema, shape, wire, depth)?,
    }
    Some(())
}

fn value(schema: &Schema, shape: &Shape, wire: Wire<'_>, depth: usize) -> Option<Value> {
    let part = |bytes: &[u8], wanted: u32| -> Option<Option<u64>> {
        let found = fields(bytes).find_map(|field| match field {
            Some((number, Wire::Number(value))) if number == wanted => Some(value),
            _ => None,
        });
        Some(found)
    };
    let string = |bytes: &[u8], wanted: u32| {
        fields(bytes).find_map(|field| match field {
            Some((number, Wire::Bytes(text))) if number == wanted => String::from_utf8(text.to_vec()).ok(),
            _ => None,
        })
    };
    Some(match (shape, wire) {
        (Shape::Text, Wire::Bytes(text)) => String::from_utf8(text.to_vec()).ok()?.into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        (Shape::Bool, Wire::Number(number)) => (number != 0).into(),
        (Shape::Int32 | Shape::Int64, Wire::Number(number)) => number.cast_signed().into(),
        (Shape::Double, Wire::Number(number)) => f64::from_bits(number).into(),
        (Shape::Quantity, Wire::Bytes(inner)) => string(inner, 1).unwrap_or_default().into(),
        (Shape::IntOrText, Wire::Bytes(inner)) => match part(inner, 1)? {
            Some(1) => string(inner, 3).unwrap_or_default().into(),
            _ => part(inner, 2)?.unwrap_or(0).cast_signed().into(),
        },
        (Shape::Time | Shape::MicroTime, Wire::Bytes(inner)) => match part(inner, 1)? {
            Some(seconds) => crate::moment::rfc3339(seconds).into(),
            None => Value::Null,
        },
        // Raw extensions contain JSON.
        (Shape::Any, Wire::Bytes(inner)) => {
            string(inner, 1).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
        }
        (Shape::List(..) | Shape::Map(..), wire) => {
            let mut holder = Value::Object(Map::new());
            put(schema, shape, "x", wire, &mut holder, depth.checked_sub(1)?)?;
            crate::value::remove(&mut holder, "x")?
        }
        (Shape::Type(_), Wire::Bytes(inner)) => {
            let mut object = Value::Object(Map::new());
            message(schema, shape, inner, &mut object, depth)?;
            object
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_map(body: &[u8]) -> Option<Value> {
        from_protobuf(Schema::builtin(), |_, _| Schema::builtin().named("core.v1.ConfigMap"), body)
    }

    #[test]
    fn a_config_map_is_decoded_and_truncated_input_does_not_panic() {
        let inner = b"\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
        let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
        body.push(u8::try_from(inner.len()).unwrap());
        body.extend_from_slice(inner);
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        assert_eq!(config_map(&body), Some(expected));
        for end in 0..body.len() {
            // A truncated body is decoded or rejected.
            let _ = config_map(&body[..end]);
        }
        assert_eq!(config_map(b"{}"), None);
    }
}
