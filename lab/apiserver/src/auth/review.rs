//! TokenReviews and access reviews.

use serde_json::{Value, json};

use super::{Access, Rbac, User};
use crate::core::Core;
use crate::failure::{Failure, FieldError};
use crate::objects::PolicyRule;
use crate::value::{at, items, set, text};

/// Answers a review with the same object and its status.
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
    if kind.ends_with("AccessReview") {
        check_spec(kind, at(&review, "spec"))?;
    }
    let status = match kind {
        "TokenReview" if text(&review, "spec.token").is_empty() => {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        "TokenReview" => token(core, &review),
        "SelfSubjectReview" => {
            set(&mut review, "metadata.creationTimestamp", crate::moment::now());
            json!({"userInfo": asker.to_json()})
        }
        "SelfSubjectAccessReview" => access(core, rbac, asker, &Access::of_review(at(&review, "spec"))),
        "SelfSubjectRulesReview" => {
            let rules = rules(rbac.rules(core, asker, text(&review, "spec.namespace")));
            // The answer does not contain the token.
            set(&mut review, "spec", json!({}));
            rules
        }
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

/// An access review needs a subject, and attributes of exactly one kind.
fn check_spec(kind: &str, spec: &Value) -> Result<(), Failure> {
    let mut errors = Vec::new();
    if at(spec, "resourceAttributes").is_null() == at(spec, "nonResourceAttributes").is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", at(spec, "resourceAttributes"), why));
    }
    if !kind.starts_with("Self") && text(spec, "user").is_empty() && items(spec, "groups").is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), why));
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid("authorization.k8s.io", "", "", &errors)) }
}

fn token(core: &Core, review: &Value) -> Value {
    let audiences: Vec<_> = items(review, "spec.audiences").iter().filter_map(Value::as_str).collect();
    match core.authenticate_token(text(review, "spec.token"), &audiences) {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user.to_json(), "audiences": audiences}),
        Err(why) => json!({"user": {}, "error": why}),
    }
}

fn access(core: &Core, rbac: &Rbac, user: &User, access: &Access) -> Value {
    match rbac.allows(core, user, access) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}

fn rules(rules: Vec<PolicyRule>) -> Value {
    let (others, resources): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| !rule.non_resource_urls.is_empty());
    json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false})
}
