//! Authentication and authorization by the API server: TokenReview and SubjectAccessReview.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use crate::client::{Client, RequestError};

/// A user, authenticated by the API server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    /// The name that roles are bound to.
    pub name: String,
    /// The uid, if the API server knows one.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes, such as the Node that a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A request to be authorized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Access to API objects.
    Objects {
        /// Such as `get` or `list`.
        verb: String,
        /// The API group; empty for the core group.
        group: String,
        /// The plural of the resource.
        resource: String,
        /// All namespaces if empty.
        namespace: String,
        /// All objects if empty.
        name: String,
    },
    /// `get` of a non-resource path.
    Path(String),
}

impl Client {
    /// The user of a token; `None` if the token is invalid.
    pub async fn review_token(&self, token: &str) -> Result<Option<User>, RequestError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.kube.clone());
        let answer = self.in_time(api.create(&PostParams::default(), &review)).await;
        let status = answer.map_err(|error| RequestError::new("TokenReview", "", error))?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    /// Whether a user is allowed to do something.
    pub async fn allows(&self, user: &User, access: &Access) -> Result<bool, RequestError> {
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match access {
            Access::Objects { verb, group, resource, namespace, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: Some(verb.clone()),
                    group: Some(group.clone()),
                    resource: Some(resource.clone()),
                    namespace: Some(namespace.clone()),
                    name: Some(name.clone()),
                    ..ResourceAttributes::default()
                });
            }
            Access::Path(path) => {
                let verb = Some("get".to_owned());
                spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path.clone()), verb });
            }
        }
        let api: Api<SubjectAccessReview> = Api::all(self.kube.clone());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.in_time(api.create(&PostParams::default(), &review)).await;
        let answer = answer.map_err(|error| RequestError::new("SubjectAccessReview", &user.name, error))?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}
