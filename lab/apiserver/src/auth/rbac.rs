//! RBAC: roles and their bindings.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::User;
use crate::core::Core;
use crate::objects::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};

const GROUP: &str = "rbac.authorization.k8s.io";
const PLURALS: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

/// The attributes of a request that roles decide about.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
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
    subjects: Vec<Subject>,
    rules: Vec<PolicyRule>,
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
            let name = qualified(&subject.name, &subject.namespace);
            Some(format!("{} {} {name:?}", grant.binding, subject.kind))
        })
    }

    /// The rules that a user has in a namespace.
    pub(crate) fn rules(&self, core: &Core, user: &User, namespace: &str) -> Vec<PolicyRule> {
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
    let cluster_wide = core.read_all::<ClusterRoleBinding>().into_iter().map(|ClusterRoleBinding(binding)| binding);
    cluster_wide.chain(core.read_all::<RoleBinding>()).filter_map(|binding| grant(core, binding)).collect()
}

fn grant(core: &Core, binding: RoleBinding) -> Option<Grant> {
    let (of, role) = (&binding.metadata, &binding.role_ref);
    let Role { rules } = match role.kind.as_str() {
        "Role" => core.read(&of.namespace, &role.name)?,
        _ => core.read::<ClusterRole>("", &role.name)?.0,
    };
    let name = qualified(&of.name, &of.namespace);
    let why = format!("RBAC: allowed by {} {name:?} of {} {:?} to", binding.kind, role.kind, role.name);
    Some(Grant { binding: why, namespace: binding.metadata.namespace, subjects: binding.subjects, rules })
}

fn qualified(name: &str, namespace: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{name}/{namespace}") }
}

fn is(subject: &Subject, namespace: &str, user: &User) -> bool {
    let name = &subject.name;
    match subject.kind.as_str() {
        "User" => *name == user.name,
        "Group" => user.groups.contains(name),
        "ServiceAccount" => {
            let of = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
            user.name == format!("system:serviceaccount:{of}:{name}")
        }
        _ => false,
    }
}

fn permits(rule: &PolicyRule, access: &Access) -> bool {
    let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    if !any(&rule.verbs, &access.verb) {
        return false;
    }
    if !access.path.is_empty() {
        return rule.non_resource_urls.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => access.path.starts_with(prefix),
            None => *pattern == access.path,
        });
    }
    let resource = if access.subresource.is_empty() {
        access.resource.clone()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let any_of_sub = format!("*/{}", access.subresource);
    any(&rule.api_groups, &access.group)
        && (any(&rule.resources, &resource) || (!access.subresource.is_empty() && rule.resources.contains(&any_of_sub)))
        && (rule.resource_names.is_empty() || rule.resource_names.contains(&access.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::read;

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
        let rule = read(&json!({
            "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"], "resourceNames": ["a"],
        }));
        assert!(permits(&rule, &access("get", "pods", "", "a")));
        assert!(permits(&rule, &access("get", "x", "scale", "a")));
        assert!(!permits(&rule, &access("get", "pods", "", "b")));
        assert!(!permits(&rule, &access("get", "pods", "status", "a")));
        assert!(!permits(&rule, &access("delete", "pods", "", "a")));
        let paths = read(&json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        let path = |path: &str| Access { verb: "get".into(), path: path.into(), ..Access::default() };
        assert!(
            permits(&paths, &path("/api/v1"))
                && permits(&paths, &path("/healthz"))
                && !permits(&paths, &path("/healthz/x"))
        );
    }
}
