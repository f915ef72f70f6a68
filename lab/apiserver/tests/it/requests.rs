use apiserver::{Options, Patch};
use serde_json::json;

use crate::client::{Client, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_read_changed_and_deleted() {
    let (_server, client) = start(Options::default()).await;
    let (code, made) =
        client.post(MAPS, &json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}})).await;
    assert_eq!((code, &made["kind"]), (201, &json!("ConfigMap")));
    assert_eq!(client.get(&format!("{MAPS}/a")).await, (200, made.clone()));
    let (code, again) = client.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((code, again["message"].as_str()), (409, Some("configmaps \"a\" already exists")));
    let (code, patched) = client.patch(&format!("{MAPS}/a"), "merge-patch+json", &json!({"data": {"k": "w"}})).await;
    assert_eq!((code, &patched["data"]["k"]), (200, &json!("w")));
    let mut stale = made.clone();
    stale["data"]["k"] = json!("z");
    let (code, conflict) = client.send("PUT", &format!("{MAPS}/a"), "application/json", &stale.to_string()).await;
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")));
    let (_, listed) = client.get(&format!("{MAPS}?labelSelector=x%3D1")).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(listed["items"][0].get("kind").is_none());
    let (code, gone) = client.send("DELETE", &format!("{MAPS}/a"), "application/json", "").await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
    assert_eq!(client.get(&format!("{MAPS}/a")).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_the_list_at_the_revision_of_the_first_page() {
    let (server, client) = start(Options::default()).await;
    for index in 0..5 {
        client.post(MAPS, &json!({"metadata": {"name": format!("m{index}"), "labels": {"page": "yes"}}})).await;
    }
    let (_, first) = client.get(&format!("{MAPS}?limit=2&labelSelector=page")).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    client.send("DELETE", &format!("{MAPS}/m3"), "application/json", "").await;
    let (_, rest) = client.get(&format!("{MAPS}?labelSelector=page&continue={token}")).await;
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["m2", "m3", "m4"]);
    client.post(MAPS, &json!({"metadata": {"name": "later"}})).await;
    server.compact();
    let (code, expired) = client.get(&format!("{MAPS}?labelSelector=page&continue={token}")).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_invalid_field() {
    let (_server, client) = start(Options::default()).await;
    let (code, _) = client.send("POST", MAPS, "application/json", "{\"a\"").await;
    assert_eq!(code, 400);
    let (code, status) =
        client.post(&format!("{MAPS}?fieldValidation=Strict"), &json!({"metadata": {"name": "a"}, "dat": 1})).await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"dat\""), "{status}");
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let block = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}]}});
    let (code, status) = client.post(policies, &block).await;
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("spec.ingress[0].from[0].ipBlock.cidr")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_no_role_allows_is_forbidden() {
    let (server, admin) = start(Options::default()).await;
    assert_eq!(Client::new(&server, None).get(MAPS).await.0, 403);
    assert_eq!(Client::new(&server, Some("x.y.z".into())).get(MAPS).await.0, 401);
    let client = Client::new(&server, Some(server.token_for("default", "default").unwrap()));
    let (code, status) = client.get(MAPS).await;
    let message = "configmaps is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \"configmaps\" in API \
        group \"\" in the namespace \"default\"";
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    admin.post(&format!("{rbac}/roles"), &role).await;
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    });
    admin.post(&format!("{rbac}/rolebindings"), &binding).await;
    assert_eq!(client.get(MAPS).await.0, 200);
    assert_eq!(client.get("/api/v1/configmaps").await.0, 403);

    // A role for one object allows to list and to watch that object.
    let secrets = "/api/v1/namespaces/default/secrets";
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["list"]},
    ]});
    admin.patch(&format!("{rbac}/roles/r"), "merge-patch+json", &role).await;
    assert_eq!(client.get(&format!("{secrets}?fieldSelector=metadata.name%3Done")).await.0, 200);
    assert_eq!(client.get(&format!("{secrets}?fieldSelector=metadata.name%3D%3Done,type%3DOpaque")).await.0, 200);
    for other in ["", "?fieldSelector=metadata.name%3Dtwo", "?fieldSelector=metadata.name!%3Done"] {
        assert_eq!(client.get(&format!("{secrets}{other}")).await.0, 403, "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_serves_a_resource_at_once() {
    let (_server, client) = start(Options::default()).await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "default": "slow"},
    }}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]},
    });
    let (code, made) = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(code, 201, "{made}");
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |size: i64| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size}});
    assert_eq!(client.post(widgets, &widget(0)).await.0, 422);
    let (code, made) = client.post(widgets, &widget(1)).await;
    assert_eq!((code, &made["spec"]["mode"]), (201, &json!("slow")));
    let (_, status) = client
        .patch(&format!("{widgets}/w/status"), "merge-patch+json", &json!({"status": {"a": 1}, "spec": {"size": 5}}))
        .await;
    assert_eq!(status["spec"]["size"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_stays_until_its_last_object_is_deleted() {
    let (_server, client) = start(Options::default()).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    client.post(definitions, &definition).await;
    for (name, finalizers) in [("free", json!([])), ("held", json!(["example.com/mine"]))] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": finalizers}});
        assert_eq!(client.post("/apis/example.com/v1/widgets", &widget).await.0, 201);
    }
    let definition = format!("{definitions}/widgets.example.com");
    client.send("DELETE", &definition, "application/json", "").await;
    client.becomes("/apis/example.com/v1/widgets/free", |code, _| code == 404).await;
    let marked =
        |code: u16, widget: &serde_json::Value| code == 200 && widget["metadata"]["deletionTimestamp"].is_string();
    client.becomes("/apis/example.com/v1/widgets/held", marked).await;
    assert_eq!(client.get(&definition).await.0, 200, "it waits");
    let patch = json!({"metadata": {"finalizers": null}});
    client.patch("/apis/example.com/v1/widgets/held", "merge-patch+json", &patch).await;
    client.becomes(&definition, |code, _| code == 404).await;
    client.becomes("/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com", |code, _| code == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_the_same_in_both_groups() {
    let (_server, client) = start(Options::default()).await;
    let (old, new) = ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "note": "it runs",
        "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "me", "reportingInstance": "me-1", "action": "Run",
        "reason": "Runs", "type": "Normal",
    });
    let (code, made) = client.post(new, &event).await;
    assert_eq!((code, &made["note"]), (201, &json!("it runs")));
    let (_, seen) = client.get(&format!("{old}?fieldSelector=involvedObject.name%3Dp")).await;
    assert_eq!(seen["items"][0]["message"], "it runs");
    let (_, seen) = client.get(new).await;
    assert_eq!((&seen["kind"], &seen["items"][0]["note"]), (&json!("EventList"), &json!("it runs")));
    client.patch(&format!("{old}/e"), "merge-patch+json", &json!({"message": "it ran"})).await;
    let path = format!(
        "{new}?watch=true&resourceVersion={}&timeoutSeconds=1",
        made["metadata"]["resourceVersion"].as_str().unwrap()
    );
    let (_, change) = client.get(&path).await;
    assert_eq!((&change["type"], &change["object"]["note"]), (&json!("MODIFIED"), &json!("it ran")));
    assert_eq!((&change["object"]["apiVersion"], change["object"].get("message")), (&json!("events.k8s.io/v1"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_expires_with_the_object_that_it_is_bound_to() {
    let (server, client) = start(Options::default()).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/pods", &pod).await.0, 201);
    let request = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let (code, answer) = client.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).await;
    assert_eq!(code, 201, "{answer}");
    let bound = Client::new(&server, Some(answer["status"]["token"].as_str().unwrap().to_owned()));
    assert_eq!(bound.get("/version").await.0, 200);
    client.send("DELETE", "/api/v1/namespaces/default/pods/p", "application/json", "").await;
    assert_eq!(bound.get("/version").await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_applies_of_an_object_all_take_effect() {
    let (server, _client) = start(Options::default()).await;
    let writers = ["a", "b", "c", "d"];
    for round in 0..50 {
        let name = format!("map-{round}");
        let (local, ready) = (server.local(), std::sync::Barrier::new(writers.len()));
        std::thread::scope(|scope| {
            for writer in writers {
                let config =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {writer: "x"}});
                let (local, name, ready) = (local.named(writer), &name, &ready);
                scope.spawn(move || {
                    ready.wait();
                    local.patch("v1", "configmaps", "default", name, "", Patch::Apply, &config).unwrap();
                });
            }
        });
        let made = local.get("v1", "configmaps", "default", &name).unwrap();
        assert_eq!(made["data"].as_object().unwrap().len(), writers.len(), "{made}");
    }
}
