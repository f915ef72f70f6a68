//! Objects that exist from the start: namespaces, the first roles, the Service of the API itself.

use serde_json::{Value, json};

use crate::auth::FRONT_PROXY;
use crate::core::{Core, Write};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Creates those that do not exist yet.
pub(crate) fn bootstrap(core: &Core) {
    for service in core.all("", "services", "") {
        core.allocator.mark(&service);
    }
    let write = Write::by("kube-apiserver");
    let make = |group: &str, plural: &str, namespace: &str, object: Value| {
        let Ok(resource) = core.builtin(group, plural) else { return };
        let name = crate::value::text(&object, "metadata.name").to_owned();
        if core.get(&resource, namespace, &name).is_err()
            && let Err(failure) = core.create(&resource, namespace, object, &write)
        {
            tracing::warn!(%failure, name, "cannot create a bootstrap object");
        }
    };
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        make("", "namespaces", "", json!({"metadata": {"name": name}}));
    }
    for (name, rules) in roles() {
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        make(RBAC, "clusterroles", "", json!({"metadata": metadata, "rules": rules}));
    }
    for (name, role, groups) in BINDINGS {
        let subjects: Vec<_> =
            groups.iter().map(|group| json!({"kind": "Group", "apiGroup": RBAC, "name": group})).collect();
        let metadata = json!({
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        });
        let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
        make(
            RBAC,
            "clusterrolebindings",
            "",
            json!({"metadata": metadata, "roleRef": reference, "subjects": subjects}),
        );
    }
    let mut service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
    });
    if let Some(address) = core.allocator.first() {
        crate::value::set(&mut service, "spec.clusterIP", address.to_string());
    }
    make("", "services", "default", service);
    make("", "configmaps", "kube-system", delegation(&core.ca_pem));
    let reader = "extension-apiserver-authentication-reader";
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [DELEGATION], "verbs": ["get", "list", "watch"]});
    make(RBAC, "roles", "kube-system", json!({"metadata": {"name": reader}, "rules": [rule]}));
    core.register();
}

const DELEGATION: &str = "extension-apiserver-authentication";

/// The ConfigMap from which backends of APIServices learn which proxy to trust for the user of a request.
fn delegation(ca: &str) -> Value {
    let list = |text: &str| json!([text]).to_string();
    let data = json!({
        "client-ca-file": ca, "requestheader-client-ca-file": ca, "requestheader-allowed-names": list(FRONT_PROXY),
        "requestheader-username-headers": list("X-Remote-User"), "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
    });
    json!({"metadata": {"name": DELEGATION}, "data": data})
}

/// The ClusterIP of the API server.
pub(crate) fn service_address(core: &Core) -> Option<String> {
    let service = core.find("", "services", "default", "kubernetes")?;
    Some(crate::value::text(&service, "spec.clusterIP").to_owned()).filter(|address| !address.is_empty())
}

const BINDINGS: &[(&str, &str, &[&str])] = &[
    ("cluster-admin", "cluster-admin", &["system:masters"]),
    ("system:basic-user", "system:basic-user", &["system:authenticated"]),
    ("system:discovery", "system:discovery", &["system:authenticated"]),
    ("system:public-info-viewer", "system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", "system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

fn roles() -> Vec<(&'static str, Value)> {
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let reviews = json!({"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]});
    let myself =
        json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]});
    let delegated = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let namespaced = [
        "configmaps",
        "events",
        "pods",
        "pods/log",
        "pods/status",
        "serviceaccounts",
        "services",
        "services/status",
        "namespaces",
    ];
    let look = json!([
        {"apiGroups": [""], "resources": namespaced, "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io", "networking.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]);
    let change = json!([
        {"apiGroups": [""], "resources": ["configmaps", "events", "pods", "secrets", "serviceaccounts", "services"],
         "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
        {"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/portforward"], "verbs": ["create", "get"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["apps", "networking.k8s.io"], "resources": ["*"],
         "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
    ]);
    let issuer = [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
    ];
    vec![
        ("cluster-admin", everything),
        ("edit", change),
        ("view", look),
        ("system:auth-delegator", delegated),
        ("system:basic-user", json!([reviews, myself])),
        ("system:discovery", json!([{"nonResourceURLs": discovery, "verbs": ["get"]}])),
        ("system:public-info-viewer", json!([{"nonResourceURLs": health, "verbs": ["get"]}])),
        ("system:service-account-issuer-discovery", json!([{"nonResourceURLs": issuer, "verbs": ["get"]}])),
    ]
}
