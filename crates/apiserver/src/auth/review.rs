//! Questions about who somebody is and what they may do.

use serde_json::{Value, json};

use super::{Access, Rbac, User};
use crate::core::Core;
use crate::failure::Failure;
use crate::value::{at, items, set, text};

/// Answers a review: the same object with its status.
pub(crate) fn answer(
    core: &Core,
    rbac: &Rbac,
    asker: &User,
    kind: &str,
    namespace: &str,
    mut review: Value,
) -> Result<Value, Failure> {
    let group = if matches!(kind, "TokenReview" | "SelfSubjectReview") { "authentication" } else { "authorization" };
    set(&mut review, "kind", kind);
    set(&mut review, "apiVersion", format!("{group}.k8s.io/v1"));
    if at(&review, "metadata").is_null() {
        set(&mut review, "metadata", json!({}));
    }
    let status = match kind {
        "TokenReview" if text(&review, "spec.token").is_empty() => {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        "TokenReview" => token(core, &review),
        "SelfSubjectReview" => json!({"userInfo": asker.to_json()}),
        "SelfSubjectAccessReview" => access(core, rbac, asker, &Access::of_review(at(&review, "spec"))),
        "SelfSubjectRulesReview" => rules(&rbac.rules(core, asker, text(&review, "spec.namespace"))),
        _ => {
            let spec = at(&review, "spec");
            let groups = items(spec, "groups").iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let user = User {
                name: text(spec, "user").to_owned(),
                uid: text(spec, "uid").to_owned(),
                groups,
                extra: Value::Null,
            };
            let mut wanted = Access::of_review(spec);
            if kind == "LocalSubjectAccessReview" {
                if wanted.namespace != namespace {
                    let why = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
                    return Err(Failure::bad_request(why));
                }
                wanted.namespace = namespace.to_owned();
            }
            access(core, rbac, &user, &wanted)
        }
    };
    set(&mut review, "status", status);
    Ok(review)
}

fn token(core: &Core, review: &Value) -> Value {
    let audiences: Vec<_> = items(review, "spec.audiences").iter().filter_map(Value::as_str).collect();
    match core.whose(text(review, "spec.token"), &audiences) {
        Some((user, audiences)) => json!({"authenticated": true, "user": user.to_json(), "audiences": audiences}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}

fn access(core: &Core, rbac: &Rbac, user: &User, access: &Access) -> Value {
    match rbac.allows(core, user, access) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}

fn rules(rules: &[Value]) -> Value {
    let paths = |rule: &&Value| !items(rule, "nonResourceURLs").is_empty();
    let resources: Vec<_> = rules.iter().filter(|rule| !paths(rule)).collect();
    let others: Vec<_> = rules.iter().filter(paths).collect();
    json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
}
