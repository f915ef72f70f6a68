use serde_json::{Value, json};

use super::*;

fn shape() -> Shape {
    Schema::builtin().named("core.v1.Pod")
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: "" }
}

fn owned(object: &Value, manager: &str) -> Value {
    let entries = value::items(object, "metadata.managedFields");
    entries.iter().find(|entry| entry["manager"] == manager).map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
        "status": {},
    })
}

fn applied(live: &Value, config: Value, manager: &str, force: bool) -> Result<Value, Failure> {
    if live.is_null() {
        return Ok(apply_new(Schema::builtin(), &shape(), config, writer(manager)));
    }
    apply(Schema::builtin(), &shape(), live, &config, writer(manager), force)
}

#[test]
fn a_creator_owns_the_fields_of_the_object() {
    let mut pod = pod();
    record(Schema::builtin(), &shape(), &Value::Null, &mut pod, writer("me"));
    let expected = json!({
        "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
        }}},
    });
    assert_eq!(owned(&pod, "me"), expected);
}

#[test]
fn a_writer_owns_the_fields_that_it_changes() {
    let mut old = pod();
    record(Schema::builtin(), &shape(), &Value::Null, &mut old, writer("a"));
    let mut new = old.clone();
    value::set(&mut new, "metadata.labels.x", "2");
    record(Schema::builtin(), &shape(), &old, &mut new, writer("b"));
    assert_eq!(owned(&new, "b"), json!({"f:metadata": {"f:labels": {"f:x": {}}}}));
    assert_eq!(owned(&new, "a")["f:metadata"], json!({"f:labels": {}}));
}

#[test]
fn applying_less_removes_fields_applied_before() {
    let config =
        |labels: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": labels}});
    let first = applied(&Value::Null, config(json!({"x": "1", "y": "1"})), "a", false).unwrap();
    let second = applied(&first, config(json!({"x": "1"})), "a", false).unwrap();
    assert_eq!(second["metadata"]["labels"], json!({"x": "1"}));
    assert_eq!(owned(&second, "a"), json!({"f:metadata": {"f:labels": {"f:x": {}}}}));
    let shared = applied(&first, config(json!({"y": "1"})), "b", false).unwrap();
    let less = applied(&shared, config(json!({"x": "1"})), "a", false).unwrap();
    assert_eq!(less["metadata"]["labels"], json!({"x": "1", "y": "1"}), "y is b's as well");
}

#[test]
fn a_conflict_names_the_manager_and_the_field_and_can_be_forced() {
    let mut live = pod();
    record(Schema::builtin(), &shape(), &Value::Null, &mut live, writer("a"));
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "j"}]}});
    let failure = applied(&live, config.clone(), "b", false).unwrap_err();
    assert_eq!(
        failure.message,
        "Apply failed with 1 conflict: conflict with \"a\" using v1: .spec.containers[name=\"c\"].image"
    );
    let forced = applied(&live, config, "b", true).unwrap();
    assert_eq!(forced["spec"]["containers"][0]["image"], "j");
    assert!(owned(&forced, "a")["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"].get("f:image").is_none());
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "j"}]}});
    let first = applied(&Value::Null, config.clone(), "b", false).unwrap();
    assert_eq!(applied(&first, config, "b", false).unwrap(), first);
}

#[test]
fn applied_items_have_the_order_of_the_configuration_among_existing_items() {
    let object = |finalizers: &str| {
        let list: Vec<_> = finalizers.split(' ').map(|name| format!("x/{name}")).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "finalizers": list}})
    };
    for (live, config, merged) in [
        ("a b c d", "d x b", "a c d x b"),
        ("a c d x b", "b y d x z", "a c b y d x z"),
        ("a c b y d x z", "m a n c o", "m a n c b y d x z o"),
        ("a b", "c d", "a b c d"),
    ] {
        let result = applied(&object(live), object(config), "me", false).unwrap();
        assert_eq!(result["metadata"]["finalizers"], object(merged)["metadata"]["finalizers"], "{live} + {config}");
    }
}
