//! The Node that Services are computed for, and which of them it serves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::service::{PROXY_NAME_LABEL, Service};

/// Selects the Services that the Node serves.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Serving {
    /// Serve Services with this value of label [`PROXY_NAME_LABEL`]; if `None`, Services without the label.
    pub proxy_name: Option<String>,
    /// Services to ignore: `namespace/name`, or a cluster IP.
    pub skip: BTreeSet<String>,
    /// Whether to serve the addresses in `status.loadBalancer` too.
    pub load_balancers: bool,
}

impl Default for Serving {
    fn default() -> Self {
        Self { proxy_name: None, skip: BTreeSet::new(), load_balancers: true }
    }
}

/// The Node that Services are computed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Viewpoint<'a> {
    /// Name of the Node: endpoints with this `nodeName` are local.
    pub node: &'a str,
    /// The Node's own addresses: a local endpoint with one of them is on the host network, not a Pod behind a port.
    pub addresses: &'a BTreeSet<IpAddr>,
    /// Zone of the Node, from its topology label.
    pub zone: Option<&'a str>,
    /// Which Services the Node serves.
    pub serving: &'a Serving,
}

impl Viewpoint<'_> {
    pub(crate) fn serves(&self, service: &Service) -> bool {
        let spec = &service.spec;
        let has_address = spec.kind != "ExternalName" && spec.cluster_ip != "None";
        let is_ours = service.metadata.labels.get(PROXY_NAME_LABEL) == self.serving.proxy_name.as_ref();
        let skip = &self.serving.skip;
        let is_skipped = !skip.is_empty()
            && (skip.contains(&service.metadata.object_name().to_string())
                || spec.cluster_ips.iter().chain([&spec.cluster_ip]).any(|ip| skip.contains(ip)));
        has_address && is_ours && !is_skipped
    }
}
