use apiserver::Options;
use serde_json::{Value, json};

use crate::client::start;

/// All references in a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_references(document: &Value, of: &str) {
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(!found.is_empty(), "{of} has no references");
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{of}: {reference} does not resolve");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reference_resolves_and_every_kind_has_a_type() {
    let (_server, client) = start(Options::default()).await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let (code, index) = client.get("/openapi/v3").await;
    assert_eq!(code, 200);
    let paths = index["paths"].as_object().unwrap();
    assert!(
        paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1") && paths.contains_key("apis/example.com/v1")
    );
    for (path, entry) in paths {
        let (code, document) = client.get(entry["serverRelativeURL"].as_str().unwrap()).await;
        assert_eq!(code, 200, "{path}");
        check_references(&document, path);
    }
    let (code, all) = client.get("/openapi/v2").await;
    assert_eq!(code, 200);
    check_references(&all, "v2");
    let kinds: Vec<_> = all["definitions"].as_object().unwrap().values().collect();
    for kind in ["Pod", "Deployment", "NetworkPolicy", "Widget"] {
        let of = |schema: &&&Value| schema["x-kubernetes-group-version-kind"][0]["kind"] == kind;
        assert!(kinds.iter().any(|schema| of(&schema)), "no type for {kind}");
    }
}
