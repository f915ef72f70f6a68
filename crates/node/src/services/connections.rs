//! Which connections of UDP are not what Services are now.
//!
//! UDP has no end, so a client that goes on sending keeps its connection as the switch remembers it: to an endpoint that is
//! gone, or to none, if there was no Service when it began. Such connections have to be forgotten. Whoever does looks at those that
//! there are: so it does not matter what happened while nobody looked.
//!
//! One whose endpoint still answers stays, also where new ones would go elsewhere by now: endpoints about to end, hints and
//! policies are about new connections only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use pipeline::regs::CT_SERVICE;
use proxy::{FrontendKind, ServicePort};
use types::meta::Protocol;

use crate::addressing::Own;

/// Where UDP goes that is sent to Services.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UdpConnections {
    /// What clients connect to, and who answers there.
    frontends: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    /// NodePorts, as the host sees them.
    node_ports: BTreeSet<SocketAddr>,
    /// What the host translates NodePorts to.
    virtual_services: BTreeSet<IpAddr>,
}

impl UdpConnections {
    pub(crate) fn new<'a>(own: &Own, ports: impl Iterator<Item = &'a ServicePort>) -> Self {
        let virtual_services = own.families().map(|address| address.virtual_service).collect();
        let mut known = Self { virtual_services, ..Self::default() };
        for port in ports.filter(|port| port.protocol == Protocol::Udp) {
            // Where two Services claim one address, the switch follows the first.
            let mut leads = |at: SocketAddr| {
                _ = known.frontends.entry(at).or_insert_with(|| port.serving.iter().copied().collect())
            };
            for frontend in &port.frontends {
                match frontend.kind {
                    FrontendKind::ClusterIp(ip) | FrontendKind::External(ip) => {
                        leads((ip, frontend.port).into());
                    }
                    FrontendKind::NodePort { ipv6 } => {
                        let of_family = |ip: &IpAddr| ip.is_ipv6() == ipv6;
                        let behind = own.families().flat_map(|address| [address.virtual_service, address.gateway]);
                        let listening = own.node_port_addresses.iter().copied().filter(of_family);
                        let at = |ip| SocketAddr::new(ip, frontend.port);
                        known.node_ports.extend(listening.clone().map(at));
                        listening.chain(behind.filter(of_family)).map(at).for_each(&mut leads);
                    }
                }
            }
        }
        known
    }

    /// Whether the switch should forget a connection: what its first packet was sent to, who answers it, and its mark.
    pub fn is_stale(&self, sent_to: SocketAddr, answered_by: SocketAddr, mark: u32) -> bool {
        match self.frontends.get(&sent_to) {
            Some(endpoints) => !endpoints.contains(&answered_by),
            None => CT_SERVICE.is_in(mark.into()),
        }
    }

    /// Whether the host should forget a connection: what its first packet was sent to, and who answers it.
    pub fn is_stale_on_host(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        let translated = self.virtual_services.contains(&answered_by.ip()) && sent_to.ip() != answered_by.ip();
        self.node_ports.contains(&sent_to) != translated
    }
}

/// Ways in, and who answers.
type Knowledge<'a> = (BTreeSet<(FrontendKind, u16)>, &'a [SocketAddr]);

/// What is to be known of a port: no other change of it makes a connection stale.
pub(super) fn knowledge(port: Option<&ServicePort>) -> Option<Knowledge<'_>> {
    let port = port.filter(|port| port.protocol == Protocol::Udp)?;
    Some((port.frontends.iter().map(|frontend| (frontend.kind, frontend.port)).collect(), &port.serving))
}
