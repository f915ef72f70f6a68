//! RBAC: roles and their bindings.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::User;
use crate::core::Core;
use crate::value::{at, items, text};

const GROUP: &str = "rbac.authorization.k8s.io";
const PLURALS: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

/// The attributes of a request that roles decide about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Access {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// For requests that are not for a resource.
    pub(crate) path: String,
}

/// A rule of a role, bound to subjects.
struct Grant {
    binding: String,
    /// Empty for cluster-wide rules.
    namespace: String,
    subjects: Vec<Value>,
    rules: Arc<Vec<Value>>,
}

/// The rules of all bindings, read again when roles or bindings change.
#[derive(Default)]
pub(crate) struct Rbac {
    grants: Mutex<(Vec<u64>, Arc<Vec<Grant>>)>,
}

impl Rbac {
    /// The reason why a request is allowed; `None` if it is not.
    pub(crate) fn allows(&self, core: &Core, user: &User, access: &Access) -> Option<String> {
        if user.groups.iter().any(|group| group == "system:masters") {
            return Some(String::new());
        }
        let grants = self.grants(core);
        grants.iter().find_map(|grant| {
            let here = grant.namespace.is_empty() || grant.namespace == access.namespace;
            let subject = grant.subjects.iter().find(|subject| here && is(subject, &grant.namespace, user))?;
            grant.rules.iter().find(|rule| permits(rule, access))?;
            let name = match text(subject, "namespace") {
                "" => text(subject, "name").to_owned(),
                namespace => format!("{}/{namespace}", text(subject, "name")),
            };
            Some(format!("{} {} {name:?}", grant.binding, text(subject, "kind")))
        })
    }

    /// The rules that a user has in a namespace.
    pub(crate) fn rules(&self, core: &Core, user: &User, namespace: &str) -> Vec<Value> {
        let grants = self.grants(core);
        let mine = grants.iter().filter(|grant| {
            (grant.namespace.is_empty() || grant.namespace == namespace)
                && grant.subjects.iter().any(|subject| is(subject, &grant.namespace, user))
        });
        mine.flat_map(|grant| grant.rules.iter().cloned()).collect()
    }

    fn grants(&self, core: &Core) -> Arc<Vec<Grant>> {
        let now: Vec<_> =
            PLURALS.iter().map(|plural| core.store.latest(&crate::resources::group_resource(GROUP, plural))).collect();
        let mut cached = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.0 != now {
            *cached = (now, Arc::new(read(core)));
        }
        cached.1.clone()
    }
}

fn read(core: &Core) -> Vec<Grant> {
    let mut grants = Vec::new();
    for plural in ["clusterrolebindings", "rolebindings"] {
        for binding in core.all(GROUP, plural, "") {
            let (namespace, name) = (text(&binding, "metadata.namespace"), text(&binding, "roleRef.name"));
            let role = match text(&binding, "roleRef.kind") {
                "Role" => core.find(GROUP, "roles", namespace, name),
                _ => core.find(GROUP, "clusterroles", "", name),
            };
            let Some(role) = role else { continue };
            let kind = text(&binding, "kind");
            let of = match namespace {
                "" => text(&binding, "metadata.name").to_owned(),
                namespace => format!("{}/{namespace}", text(&binding, "metadata.name")),
            };
            let why = format!("RBAC: allowed by {kind} {of:?} of {} {name:?} to", text(&binding, "roleRef.kind"));
            grants.push(Grant {
                binding: why,
                namespace: namespace.to_owned(),
                subjects: items(&binding, "subjects").to_vec(),
                rules: Arc::new(items(&role, "rules").to_vec()),
            });
        }
    }
    grants
}

fn is(subject: &Value, namespace: &str, user: &User) -> bool {
    let name = text(subject, "name");
    match text(subject, "kind") {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let of = if text(subject, "namespace").is_empty() { namespace } else { text(subject, "namespace") };
            user.name == format!("system:serviceaccount:{of}:{name}")
        }
        _ => false,
    }
}

fn permits(rule: &Value, access: &Access) -> bool {
    let any = |list: &str, wanted: &str| items(rule, list).iter().any(|item| item == "*" || item == wanted);
    if !any("verbs", &access.verb) {
        return false;
    }
    if !access.path.is_empty() {
        return items(rule, "nonResourceURLs").iter().filter_map(Value::as_str).any(|pattern| {
            match pattern.strip_suffix('*') {
                Some(prefix) => access.path.starts_with(prefix),
                None => pattern == access.path,
            }
        });
    }
    let resource = if access.subresource.is_empty() {
        access.resource.clone()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let any_of_sub = format!("*/{}", access.subresource);
    let names = items(rule, "resourceNames");
    any("apiGroups", &access.group)
        && (any("resources", &resource)
            || (!access.subresource.is_empty() && items(rule, "resources").iter().any(|item| *item == any_of_sub)))
        && (names.is_empty() || names.iter().any(|name| *name == access.name))
}

impl Access {
    /// The attributes in the spec of an access review.
    pub(super) fn of_review(spec: &Value) -> Self {
        let path = at(spec, "nonResourceAttributes");
        if !path.is_null() {
            return Self {
                verb: text(path, "verb").to_owned(),
                path: text(path, "path").to_owned(),
                ..Self::default()
            };
        }
        let of = |key: &str| text(at(spec, "resourceAttributes"), key).to_owned();
        Self {
            verb: of("verb"),
            group: of("group"),
            resource: of("resource"),
            subresource: of("subresource"),
            namespace: of("namespace"),
            name: of("name"),
            path: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn access(verb: &str, resource: &str, subresource: &str, name: &str) -> Access {
        let own = str::to_owned;
        Access {
            verb: own(verb),
            resource: own(resource),
            subresource: own(subresource),
            name: own(name),
            ..Access::default()
        }
    }

    #[test]
    fn a_rule_permits_only_what_it_names() {
        let rule = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"], "resourceNames": ["a"]});
        assert!(permits(&rule, &access("get", "pods", "", "a")));
        assert!(permits(&rule, &access("get", "x", "scale", "a")));
        assert!(!permits(&rule, &access("get", "pods", "", "b")));
        assert!(!permits(&rule, &access("get", "pods", "status", "a")));
        assert!(!permits(&rule, &access("delete", "pods", "", "a")));
        let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]});
        let path = |path: &str| Access { verb: "get".into(), path: path.into(), ..Access::default() };
        assert!(
            permits(&paths, &path("/api/v1"))
                && permits(&paths, &path("/healthz"))
                && !permits(&paths, &path("/healthz/x"))
        );
    }
}
