//! Shapes of structural schemas.

use serde_json::Value;

use crate::schema::{Field, ListKind, MapKind, Schema, Shape, Type};
use crate::value::{at, items, text};

/// The types of a custom resource, and the shape of its objects.
pub(super) fn build(given: &Value) -> (Schema, Shape) {
    let mut schema = Schema::lenient();
    let meta = metadata(&mut schema);
    let field =
        |name: &str, shape| Field { name: name.to_owned(), required: false, always: false, shape, number: (0, 0) };
    let mut fields = properties(&mut schema, given);
    fields.retain(|field| !matches!(field.name.as_str(), "apiVersion" | "kind" | "metadata"));
    fields.extend([field("apiVersion", Shape::Text), field("kind", Shape::Text)]);
    fields.push(Field { always: true, ..field("metadata", meta) });
    let open = at(given, "x-kubernetes-preserve-unknown-fields") == true;
    let root = schema.add(Type { name: String::new(), fields, atomic: false, open });
    (schema, Shape::Type(root))
}

/// The built-in metadata type, added to a custom schema.
fn metadata(schema: &mut Schema) -> Shape {
    let builtin = Schema::builtin();
    let find = |name: &str| match builtin.named(name) {
        Shape::Type(index) => builtin.get(index).cloned(),
        _ => None,
    };
    let owner = find("meta.v1.OwnerReference").map_or(Shape::Any, |owner| Shape::Type(schema.add(owner)));
    let Some(mut meta) = find("meta.v1.ObjectMeta") else { return Shape::Any };
    for field in &mut meta.fields {
        match field.name.as_str() {
            "ownerReferences" => {
                field.shape = Shape::List(Box::new(owner.clone()), ListKind::Keyed(vec!["uid".into()]));
            }
            "managedFields" => field.shape = Shape::List(Box::new(Shape::Any), ListKind::Atomic),
            _ => {}
        }
    }
    Shape::Type(schema.add(meta))
}

fn properties(schema: &mut Schema, given: &Value) -> Vec<Field> {
    let required = items(given, "required");
    let properties = at(given, "properties").as_object().cloned().unwrap_or_default();
    properties
        .into_iter()
        .map(|(name, inner)| Field {
            required: required.iter().any(|required| *required == name),
            always: false,
            shape: shape(schema, &inner),
            number: (0, 0),
            name,
        })
        .collect()
}

fn shape(schema: &mut Schema, given: &Value) -> Shape {
    if at(given, "x-kubernetes-int-or-string") == true {
        return Shape::Any;
    }
    let atomic = text(given, "x-kubernetes-map-type") == "atomic";
    match text(given, "type") {
        "array" => {
            let item = Box::new(shape(schema, at(given, "items")));
            let kind = match text(given, "x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => {
                    let keys = items(given, "x-kubernetes-list-map-keys");
                    ListKind::Keyed(keys.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                }
                _ => ListKind::Atomic,
            };
            Shape::List(item, kind)
        }
        "object" => {
            let open = at(given, "x-kubernetes-preserve-unknown-fields") == true;
            let embedded = at(given, "x-kubernetes-embedded-resource") == true;
            let has_properties = at(given, "properties").as_object().is_some_and(|properties| !properties.is_empty());
            match at(given, "additionalProperties") {
                inner @ Value::Object(_) if !has_properties => {
                    let kind = if atomic { MapKind::Atomic } else { MapKind::Granular };
                    Shape::Map(Box::new(shape(schema, inner)), kind)
                }
                Value::Bool(true) => Shape::Any,
                _ => {
                    let fields = properties(schema, given);
                    Shape::Type(schema.add(Type { name: String::new(), fields, atomic, open: open || embedded }))
                }
            }
        }
        "string" => Shape::Text,
        "integer" => Shape::Int64,
        "number" => Shape::Double,
        "boolean" => Shape::Bool,
        _ => Shape::Any,
    }
}
