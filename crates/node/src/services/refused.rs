//! External addresses that a Service claims but must not get.
//!
//! Users who may write Services choose their external addresses, and Kubernetes allows any address for traffic from Pods. The
//! Node's own traffic must not be redirected: it has to reach other Nodes, the API and Pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proxy::{FrontendKind, ServicePort};
use types::service::Service;
use types::{InvalidField, ObjectName};

use super::RenderContext;
use crate::brain::Problem;
use crate::host;
use crate::underlay::Role;

/// The rejected addresses of a Service, with reasons.
pub(super) struct Refused {
    /// External addresses of this Service that are cluster IPs of other Services.
    owners: BTreeMap<IpAddr, ObjectName>,
    found: BTreeMap<FrontendKind, String>,
}

impl Refused {
    pub(super) fn new(owners: BTreeMap<IpAddr, ObjectName>) -> Self {
        Self { owners, found: BTreeMap::new() }
    }

    /// Removes frontends that are rejected completely from a port, and records those that only the host does not use.
    pub(super) fn remove_from(&mut self, port: &mut ServicePort, context: &RenderContext<'_>) {
        let kinds = port.frontends.iter().map(|frontend| frontend.kind);
        let reasons: Vec<_> = kinds.filter_map(|kind| Some((kind, self.reason(kind, port, context)?))).collect();
        let removed = |kind: &FrontendKind| reasons.iter().any(|(refused, why)| refused == kind && why.is_for_all);
        if reasons.iter().any(|(_, why)| why.is_for_all) {
            let kept = port.frontends.iter().filter(|frontend| !removed(&frontend.kind)).cloned();
            port.frontends = kept.collect();
        }
        self.found.extend(reasons.into_iter().map(|(kind, why)| (kind, why.text)));
    }

    fn reason(&self, kind: FrontendKind, port: &ServicePort, context: &RenderContext<'_>) -> Option<Reason> {
        if let FrontendKind::External(ip) = kind {
            // The host reaches Pods and cluster IPs through the bridge, so flows alone would redirect their addresses.
            let pods =
                context.underlay.pod_subnet(ip).map(|(cidr, node)| format!("in {cidr}, the Pod subnet of Node {node}"));
            let owned = || self.owners.get(&ip).map(|owner| format!("the cluster IP of Service {owner}"));
            if let Some(what) = pods.or_else(owned) {
                let text = format!("{ip} is {what}, and is not served; choose another address");
                return Some(Reason { text, is_for_all: true });
            }
        }
        let features = context.own.features;
        let role = host::refusal(context.underlay, &port.service, kind)?;
        let (FrontendKind::ClusterIp(ip) | FrontendKind::External(ip)) = kind else { return None };
        // A Service at this Node's own address is expected.
        let is_news = features.antrea_proxy && features.proxy_all && *role != Role::Own;
        is_news.then(|| Reason {
            text: format!(
                "{ip} is {role}, so this Node itself does not reach the Service there; choose another address"
            ),
            is_for_all: false,
        })
    }

    /// One problem for each rejected address.
    pub(super) fn problems(self, service: &Service) -> impl Iterator<Item = Problem> {
        self.found.into_iter().map(|(kind, problem)| {
            let field = match kind {
                FrontendKind::External(ip) if has(&service.spec.external_ips, ip) => "spec.externalIPs",
                FrontendKind::External(_) => "status.loadBalancer.ingress",
                FrontendKind::ClusterIp(_) | FrontendKind::NodePort { .. } => "spec.clusterIPs",
            };
            let name = service.metadata.object_name();
            Problem::Field(InvalidField { kind: "Service", name, field: field.to_owned(), problem })
        })
    }
}

struct Reason {
    text: String,
    /// Whether it gets no flows either.
    is_for_all: bool,
}

fn has(written: &[String], ip: IpAddr) -> bool {
    written.iter().any(|text| text.parse() == Ok(ip))
}
