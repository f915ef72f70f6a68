//! TokenReviews and access reviews.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Access, Rbac, User};
use crate::core::Core;
use crate::failure::{Failure, FieldError};
use crate::objects::{PolicyRule, nullable, read};
use crate::value::{at, default_to, set};

/// The spec of a review of any kind.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    token: String,
    #[serde(deserialize_with = "nullable")]
    audiences: Vec<String>,
    namespace: String,
    user: String,
    uid: String,
    #[serde(deserialize_with = "nullable")]
    groups: Vec<String>,
    resource_attributes: Option<Access>,
    non_resource_attributes: Option<Access>,
}

impl Spec {
    fn access(&self) -> Access {
        match (&self.non_resource_attributes, &self.resource_attributes) {
            (Some(Access { verb, path, .. }), _) => {
                Access { verb: verb.clone(), path: path.clone(), ..Access::default() }
            }
            (None, Some(access)) => Access { path: String::new(), ..access.clone() },
            (None, None) => Access::default(),
        }
    }
}

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
    default_to(&mut review, "metadata", json!({}));
    let spec: Spec = review.get("spec").map(read).unwrap_or_default();
    if kind.ends_with("AccessReview") {
        check_spec(kind, &spec, &review)?;
    }
    let status = match kind {
        "TokenReview" if spec.token.is_empty() => {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        "TokenReview" => token(core, &spec),
        "SelfSubjectReview" => {
            set(&mut review, "metadata.creationTimestamp", crate::moment::now());
            json!({"userInfo": asker.to_json()})
        }
        "SelfSubjectAccessReview" => access(core, rbac, asker, &spec.access()),
        "SelfSubjectRulesReview" => {
            let rules = rules(rbac.rules(core, asker, &spec.namespace));
            // The answer does not contain the token.
            set(&mut review, "spec", json!({}));
            rules
        }
        _ => {
            let mut wanted = spec.access();
            let user = User { name: spec.user, uid: spec.uid, groups: spec.groups, extra: Value::Null };
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
fn check_spec(kind: &str, spec: &Spec, review: &Value) -> Result<(), Failure> {
    let mut errors = Vec::new();
    if spec.resource_attributes.is_some() == spec.non_resource_attributes.is_some() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", at(review, "spec.resourceAttributes"), why));
    }
    if !kind.starts_with("Self") && spec.user.is_empty() && spec.groups.is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), why));
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid("authorization.k8s.io", "", "", &errors)) }
}

fn token(core: &Core, spec: &Spec) -> Value {
    let audiences: Vec<_> = spec.audiences.iter().map(String::as_str).collect();
    match core.authenticate_token(&spec.token, &audiences) {
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
