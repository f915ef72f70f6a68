//! Parses paths of requests.

use http::Method;

use super::query::{Query, decode};

/// A resource, or one object of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    /// Empty for a collection.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The path after the subresource.
    pub(crate) rest: String,
    /// Whether the path has the legacy prefix `watch`.
    pub(crate) watches: bool,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Resource(Place),
    Path,
}

impl Target {
    pub(crate) fn parse(path: &str) -> Self {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Path,
        };
        // The legacy form of a watch: the verb in the path.
        let (watches, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let mut place = Place { watches, group: group.to_owned(), version: version.to_owned(), ..Place::default() };
        let rest = match rest {
            [] => return Self::Path,
            // Subresources of a namespace; anything else below it is a resource in it.
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                place.namespace = (*name).to_owned();
                &["namespaces", name, sub][..]
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                place.namespace = (*namespace).to_owned();
                rest
            }
            ["namespaces", name] => {
                place.namespace = (*name).to_owned();
                rest
            }
            rest => rest,
        };
        let part = |index: usize| rest.get(index).map(|part| (*part).to_owned()).unwrap_or_default();
        (place.resource, place.name, place.subresource) = (part(0), part(1), part(2));
        place.rest = rest.get(3..).unwrap_or_default().join("/");
        Self::Resource(place)
    }

    /// The verb of a request, by its method.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> &'static str {
        let one = matches!(self, Self::Resource(place) if !place.name.is_empty());
        let watches = query.flag("watch") || matches!(self, Self::Resource(place) if place.watches);
        match (method.as_str(), one) {
            ("GET" | "HEAD", _) if watches => "watch",
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> (String, String, String, String, String) {
        match Target::parse(path) {
            Target::Resource(place) => (place.group, place.namespace, place.resource, place.name, place.subresource),
            Target::Path => panic!("{path}"),
        }
    }

    #[test]
    fn paths_name_resources() {
        let own = |a: &str, b: &str, c: &str, d: &str, e: &str| (a.into(), b.into(), c.into(), d.into(), e.into());
        assert_eq!(place("/api/v1/pods"), own("", "", "pods", "", ""));
        assert_eq!(place("/api/v1/namespaces/a/pods/b/status"), own("", "a", "pods", "b", "status"));
        assert_eq!(place("/api/v1/watch/namespaces/a/pods/b"), own("", "a", "pods", "b", ""));
        assert_eq!(place("/api/v1/namespaces/a"), own("", "a", "namespaces", "a", ""));
        assert_eq!(place("/api/v1/namespaces/a/finalize"), own("", "a", "namespaces", "a", "finalize"));
        assert_eq!(place("/apis/apps/v1/namespaces/a/deployments"), own("apps", "a", "deployments", "", ""));
        assert_eq!(place("/apis/rbac/v1/clusterroles/system%3Ax"), own("rbac", "", "clusterroles", "system:x", ""));
        assert_eq!(Target::parse("/apis/apps"), Target::Path);
        assert_eq!(Target::parse("/api/v1"), Target::Path);
        assert_eq!(Target::parse("/healthz"), Target::Path);
    }
}
