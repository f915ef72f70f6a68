//! The kinds of objects that can be watched.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use types::ObjectName;
use types::config_map::ConfigMap;
use types::network_policy::NetworkPolicy;
use types::node::{Namespace, Node};
use types::pod::Pod;
use types::service::{EndpointSlice, Service};

/// An object of the API, as `types` knows it.
pub trait Watched: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The group of its API; empty for the core.
    const GROUP: &'static str;
    /// The version.
    const VERSION: &'static str;
    /// What one is called.
    const KIND: &'static str;
    /// What the resource is called.
    const PLURAL: &'static str;

    /// Its namespace and name.
    fn object_name(&self) -> ObjectName;
}

macro_rules! watched {
    ($($object:ident: $group:literal $version:literal $plural:literal;)*) => {$(
        impl Watched for $object {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = stringify!($object);
            const PLURAL: &'static str = $plural;

            fn object_name(&self) -> ObjectName {
                self.metadata.object_name()
            }
        }
    )*};
}

watched! {
    ConfigMap: "" "v1" "configmaps";
    Namespace: "" "v1" "namespaces";
    Node: "" "v1" "nodes";
    Pod: "" "v1" "pods";
    Service: "" "v1" "services";
    EndpointSlice: "discovery.k8s.io" "v1" "endpointslices";
    NetworkPolicy: "networking.k8s.io" "v1" "networkpolicies";
}
