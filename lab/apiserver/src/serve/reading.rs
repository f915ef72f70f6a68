//! Decodes bodies in JSON, YAML or protobuf.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::Asked;
use crate::failure::Failure;
use crate::path::Path;
use crate::schema::{Schema, from_protobuf};
use crate::syntax::syntax;
use crate::value::text;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A decoded body, and messages about duplicate fields, of which the last one counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Decodes the body as an object of a kind; custom objects must state their kind.
pub(super) fn object(asked: &Asked, body: &[u8], kind: &str, custom: bool) -> Result<Sent, Failure> {
    let unrecognized = |why: &str| {
        let start = summary(body);
        Failure::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({start})"))
    };
    let mut sent = match asked.content_type() {
        PROTOBUF if !custom => {
            let value = from_protobuf(Schema::builtin(), protobuf_type, body);
            Sent { value: value.ok_or_else(|| unrecognized("it is not protobuf"))?, duplicates: Vec::new() }
        }
        "application/yaml" => yaml(body).map_err(|why| unrecognized(&why))?,
        "" | "*/*" | "application/json" => {
            json(body).map_err(|why| unrecognized(&format!("couldn't get version/kind; json parse error: {why}")))?
        }
        _ => {
            let why = "the body of the request was in an unknown format - accepted media types include";
            let why = format!("{why}: application/json, application/yaml, {PROTOBUF}");
            return Err(Failure::new(415, "UnsupportedMediaType", why));
        }
    };
    match &sent.value {
        Value::Null => sent.value = Value::Object(Map::new()),
        Value::Object(_) => {}
        other => {
            let go = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let what = crate::schema::json_kind(other);
            let why = format!("json: cannot unmarshal {what} into Go value of type {go}");
            return Err(unrecognized(&format!("couldn't get version/kind; json parse error: {why}")));
        }
    }
    if custom && text(&sent.value, "kind").is_empty() {
        let rendered = String::from_utf8_lossy(body);
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{rendered}'")));
    }
    Ok(sent)
}

fn protobuf_type(api_version: &str, kind: &str) -> crate::schema::Shape {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next().unwrap_or_default();
    let package = if package.is_empty() { "core" } else { package };
    Schema::builtin().named(&format!("{package}.{version}.{kind}"))
}

/// The options of a delete, in any format.
pub(super) fn delete_options(asked: &Asked, body: &[u8]) -> Result<Value, Failure> {
    match (body.trim_ascii(), asked.content_type()) {
        (b"" | b"null", _) => Ok(Value::Object(Map::new())),
        (body, PROTOBUF) => {
            let schema = Schema::builtin();
            Ok(from_protobuf(schema, |_, _| schema.named("meta.v1.DeleteOptions"), body).unwrap_or_default())
        }
        (body, "application/yaml") => yaml(body).map(|sent| sent.value).map_err(Failure::bad_request),
        (body, _) => json(body)
            .map(|sent| sent.value)
            .map_err(|why| Failure::bad_request(format!("couldn't get version/kind; json parse error: {why}"))),
    }
}

/// Decodes a patch in JSON.
pub(super) fn patch(body: &[u8]) -> Result<Sent, Failure> {
    json(body).map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))
}

/// Decodes a configuration to apply.
pub(super) fn configuration(body: &[u8]) -> Result<Sent, Failure> {
    yaml(body).map_err(|why| Failure::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}")))
}

fn json(body: &[u8]) -> Result<Sent, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut duplicates = Vec::new();
    let read = Reader::<String>::new(&mut duplicates).deserialize(&mut reader);
    let value = read.and_then(|value| reader.end().map(|()| value)).map_err(|error| syntax(body, &error))?;
    Ok(Sent { value, duplicates })
}

fn yaml(body: &[u8]) -> Result<Sent, String> {
    let body = std::str::from_utf8(body).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    // JSON is decoded as such: that is faster, and has fewer special cases than YAML.
    if body.trim_start().starts_with('{')
        && let Ok(sent) = json(body.as_bytes())
    {
        return Ok(sent);
    }
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let mut duplicates = Vec::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(body, options, |reader| {
        Reader::<Spanned<String>>::new(&mut duplicates).deserialize(reader)
    });
    let value = read.map_err(|error| format!("yaml: {}", yaml_syntax(&error)))?;
    Ok(Sent { value, duplicates })
}

/// The error of invalid YAML: a message that clients know, or the first line of the parser's message.
fn yaml_syntax(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let line = error.location().map_or(0, |location| location.line());
    if text.contains("mapping values are not allowed in this context") {
        return "mapping values are not allowed in this context".to_owned();
    }
    if text.contains("unexpected character") {
        return format!("line {line}: found character that cannot start any token");
    }
    text.lines().next().unwrap_or_default().to_owned()
}

/// The name of a field, as the parser of a format yields it.
trait Name<'de>: Deserialize<'de> {
    fn text(&self) -> &str;
    fn into_text(self) -> String;
    /// The message for a duplicate of this field in the object at `before`.
    fn again(&self, before: &Path<'_>) -> String;
}

impl<'de> Name<'de> for String {
    fn text(&self) -> &str {
        self
    }

    fn into_text(self) -> String {
        self
    }

    fn again(&self, before: &Path<'_>) -> String {
        format!("duplicate field \"{}\"", Path::Field(before, self))
    }
}

impl<'de> Name<'de> for Spanned<String> {
    fn text(&self) -> &str {
        &self.value
    }

    fn into_text(self) -> String {
        self.value
    }

    fn again(&self, _: &Path<'_>) -> String {
        format!("line {}: key {:?} already set in map", self.referenced.line(), self.value)
    }
}

/// Deserializes a value, and notes duplicate fields.
struct Reader<'a, N> {
    path: Path<'a>,
    duplicates: &'a mut Vec<String>,
    name: PhantomData<N>,
}

impl<'a, N> Reader<'a, N> {
    fn new(duplicates: &'a mut Vec<String>) -> Self {
        Self { path: Path::Top, duplicates, name: PhantomData }
    }
}

impl<'de, N: Name<'de>> DeserializeSeed<'de> for Reader<'_, N> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de, N: Name<'de>> Visitor<'de> for Reader<'_, N> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Self { path, duplicates, name } = self;
        let mut list = Vec::new();
        loop {
            let item = Reader { path: Path::Item(&path, list.len()), duplicates: &mut *duplicates, name };
            match items.next_element_seed(item)? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let Self { path, duplicates, name: of } = self;
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<N>()? {
            let again = map.contains_key(name.text()).then(|| name.again(&path));
            let key = name.into_text();
            let field = Reader { path: Path::Field(&path, &key), duplicates: &mut *duplicates, name: of };
            let value = fields.next_value_seed(field)?;
            map.insert(key, value);
            let news = again.filter(|again| !duplicates.contains(again));
            duplicates.extend(news);
        }
        Ok(map.into())
    }
}

/// The start of a body for messages: an object as it is, anything else in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    const MAX_LENGTH: usize = 30;
    let start = body.get(..MAX_LENGTH).unwrap_or(body);
    let more = if body.len() > MAX_LENGTH { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_fields_are_reported_and_the_last_one_counts() {
        let expected = json!({"a": {"b": 3}, "l": [{"x": 2}]});
        let sent = json(br#"{"a": {"b": 1, "b": 2, "b": 3}, "l": [{"x": 1, "x": 2}]}"#).unwrap();
        assert_eq!(sent.value, expected);
        assert_eq!(sent.duplicates, ["duplicate field \"a.b\"", "duplicate field \"l[0].x\""]);
        let sent = yaml(b"a:\n  b: 1\n  b: 3\nl:\n- x: 1\n  x: 2\n").unwrap();
        assert_eq!(sent.value, expected);
        assert_eq!(sent.duplicates, ["line 3: key \"b\" already set in map", "line 6: key \"x\" already set in map"]);
    }

    #[test]
    fn yaml_has_the_types_that_clients_expect() {
        let body = "a: 1\nb: 1.5\nc: yes\nd: \"1\"\ne: ~\nf: 10.0.0.1\ng: [x, 2]\nh: |\n  text\n1: one\n";
        let expected = json!({"a": 1, "b": 1.5, "c": true, "d": "1", "e": null, "f": "10.0.0.1", "g": ["x", 2],
            "h": "text\n", "1": "one"});
        assert_eq!(yaml(body.as_bytes()).unwrap().value, expected);
        assert_eq!(yaml(b"a: b: c").unwrap_err(), "yaml: mapping values are not allowed in this context");
    }

    #[test]
    fn messages_have_the_start_of_a_body() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"hello"), "68656c6c6f");
        assert_eq!(summary(format!("{{{}", "x".repeat(40)).as_bytes()), format!("{{{} ...", "x".repeat(29)));
    }
}
