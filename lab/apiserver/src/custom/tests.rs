use serde_json::json;

use super::*;
use crate::failure::Failure;
use crate::schema::decode;

fn definition() -> Value {
    json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "net": {"type": "string", "format": "cidr"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }}}],
    }})
}

fn widget() -> Resource {
    resources(&definition()).remove(0)
}

fn message(spec: Value) -> String {
    let widget = widget();
    let mut errors = Vec::new();
    validate(widget.custom.as_ref().unwrap(), &json!({"spec": spec}), "", &mut errors);
    Failure::invalid("example.com", "Widget", "w", &errors).message
}

#[test]
fn a_definition_makes_a_resource() {
    let widget = widget();
    assert_eq!((widget.api_version().as_str(), &*widget.group_resource), ("example.com/v1", "example.com/widgets"));
    assert!(widget.has("status") && !widget.has("scale") && widget.namespaced);
}

#[test]
fn unknown_fields_are_pruned_unless_they_are_preserved() {
    let widget = widget();
    let mut object = json!({"metadata": {"name": "w", "x": 1}, "spec": {"size": 1, "y": 2, "free": {"z": 3}}});
    let decoded = decode(widget.schema(), &widget.shape, &mut object).unwrap();
    assert_eq!(decoded.unknown, ["metadata.x", "spec.y"]);
    assert_eq!(object["spec"], json!({"size": 1, "free": {"z": 3}}));
}

#[test]
fn defaults_are_filled_in() {
    let mut object = json!({"spec": {"size": 1}});
    defaults(&widget().custom.as_ref().unwrap().given, &mut object);
    assert_eq!(object["spec"]["mode"], "a");
}

#[test]
fn errors_have_the_words_of_the_real_server() {
    assert_eq!(message(json!({})), "Widget.example.com \"w\" is invalid: spec.size: Required value");
    assert_eq!(
        message(json!({"size": "x"})),
        "Widget.example.com \"w\" is invalid: spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""
    );
    assert_eq!(
        message(json!({"size": 10, "mode": "c"})),
        "Widget.example.com \"w\" is invalid: [spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\", spec.size: Invalid \
         value: 10: spec.size in body should be less than or equal to 9]"
    );
    assert!(message(json!({"size": 1, "net": "10.0.0.0/99"})).contains("must be of type cidr"));
}
