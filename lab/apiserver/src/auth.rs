//! Authentication and authorization of requests.

use serde_json::{Value, json};

mod certificate;
mod rbac;
mod review;
mod token;
pub(crate) use certificate::{Authority, FRONT_PROXY, Identity, KUBELET_CLIENT, certified};
pub(crate) use rbac::{Access, Rbac};
pub(crate) use review::answer;
pub(crate) use token::{AUDIENCE, Signer, TokenRequestSpec, create_private, write_private};

/// An authenticated user, or the anonymous one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: Value,
}

impl User {
    pub(crate) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: Value::Null,
        }
    }

    pub(crate) fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().chain(&["system:authenticated"]).map(|group| (*group).to_owned()).collect();
        Self { name: name.to_owned(), uid: String::new(), groups, extra: Value::Null }
    }

    /// In the form of TokenReview and SelfSubjectReview.
    pub(crate) fn to_json(&self) -> Value {
        let mut user = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            crate::value::set(&mut user, "uid", self.uid.as_str());
        }
        if !self.extra.is_null() {
            crate::value::set(&mut user, "extra", self.extra.clone());
        }
        user
    }
}
