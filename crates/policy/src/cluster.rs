//! The input of [`compute`](crate::compute).

use std::collections::BTreeMap;

use types::antrea;
use types::meta::Labels;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;
use types::{InvalidField, ObjectName};

use crate::endpoint::Endpoint;

/// Everything that policies depend on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// Labels of the namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// The Pods that have a network of their own.
    pub pods: BTreeMap<ObjectName, Endpoint>,
    /// NetworkPolicies by namespace and name.
    pub policies: BTreeMap<ObjectName, NetworkPolicy>,
    /// Tiers by their names.
    pub tiers: BTreeMap<String, antrea::Tier>,
    /// Antrea policies by namespace and name; ClusterNetworkPolicies have no namespace.
    pub antrea_policies: BTreeMap<ObjectName, antrea::Policy>,
    /// Groups by namespace and name; ClusterGroups have no namespace.
    pub groups: BTreeMap<ObjectName, antrea::Group>,
    /// ExternalEntities by namespace and name.
    pub entities: BTreeMap<ObjectName, antrea::ExternalEntity>,
}

impl Cluster {
    /// Adds a Pod, unless it uses the host network, has no address, or has terminated.
    pub fn add_pod(&mut self, pod: &Pod) -> Result<(), InvalidField> {
        let name = pod.metadata.object_name();
        self.pods.remove(&name);
        let (endpoint, problems) = Endpoint::read(pod.clone());
        if let Some(endpoint) = endpoint.ok().filter(|endpoint| !endpoint.member.addresses.is_empty()) {
            self.pods.insert(name, endpoint);
        }
        problems.into_iter().next().map_or(Ok(()), Err)
    }
}
