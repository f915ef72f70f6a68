//! Whose Services, seen from where.

use std::collections::BTreeSet;

use types::service::{PROXY_NAME_LABEL, Service};

/// Which Services are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serving {
    /// Those of whose label [`PROXY_NAME_LABEL`] this is the value; without it, those that have no such label.
    pub proxy_name: Option<String>,
    /// Not these: `namespace/name`, or a cluster IP.
    pub skip: BTreeSet<String>,
    /// Whether also at the addresses of their load balancers.
    pub load_balancers: bool,
}

impl Default for Serving {
    fn default() -> Self {
        Self { proxy_name: None, skip: BTreeSet::new(), load_balancers: true }
    }
}

/// The Node from which Services are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Viewpoint<'a> {
    /// Its name.
    pub node: &'a str,
    /// The zone that it is in.
    pub zone: Option<&'a str>,
    /// What it serves.
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
