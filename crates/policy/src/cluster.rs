//! The objects that policies are about.

use std::collections::BTreeMap;

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
    /// The policies.
    pub policies: BTreeMap<ObjectName, NetworkPolicy>,
}

impl Cluster {
    /// Takes a Pod in; one on the Node's network, without an address or at its end is no end of any connection.
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
