//! The kinds of objects that can be watched.

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use types::ObjectName;
use types::antrea::{ExternalEntity, Group, Policy, Tier};
use types::config_map::ConfigMap;
use types::network_policy::NetworkPolicy;
use types::node::{Namespace, Node};
use types::pod::Pod;
use types::service::{EndpointSlice, Service};

/// An API object that can be watched.
pub trait Watched: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The API group; empty for the core group.
    const GROUP: &'static str;
    /// The API version, such as `v1`.
    const VERSION: &'static str;
    /// The kind, such as `Pod`.
    const KIND: &'static str;
    /// The resource, such as `pods`.
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
    ExternalEntity: "crd.antrea.io" "v1alpha2" "externalentities";
    Tier: "crd.antrea.io" "v1beta1" "tiers";
}

/// Kinds of Antrea with and without a namespace share a type.
macro_rules! watched_as {
    ($($(#[$doc:meta])* $name:ident($object:ident): $kind:literal $plural:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $object);

        impl Watched for $name {
            const GROUP: &'static str = "crd.antrea.io";
            const VERSION: &'static str = "v1beta1";
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;

            fn object_name(&self) -> ObjectName {
                self.0.metadata.object_name()
            }
        }
    )*};
}

watched_as! {
    /// A policy of Antrea for the whole cluster.
    ClusterNetworkPolicy(Policy): "ClusterNetworkPolicy" "clusternetworkpolicies";
    /// A policy of Antrea in a namespace.
    AntreaNetworkPolicy(Policy): "NetworkPolicy" "networkpolicies";
    /// A group of Antrea for the whole cluster.
    ClusterGroup(Group): "ClusterGroup" "clustergroups";
    /// A group of Antrea in a namespace.
    NamespacedGroup(Group): "Group" "groups";
}
