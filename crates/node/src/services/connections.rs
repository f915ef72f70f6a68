//! Which connections are not what Services are now.
//!
//! One of TCP knows by itself when its endpoint is gone. But one that began before its Service was there, and that nobody has
//! answered, stays as it began: what the client sends again goes where the first packet went, which is nowhere.
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
use proxy::{Frontend, FrontendKind, ServicePort};
use types::meta::Protocol;

use crate::addressing::Own;

/// Where goes what is sent to Services.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// What clients connect to by UDP, and who answers there.
    frontends: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    /// What clients connect to by TCP.
    tcp: BTreeSet<SocketAddr>,
    /// NodePorts, as the host sees them.
    node_ports: BTreeSet<SocketAddr>,
    /// What the host translates NodePorts to.
    virtual_services: BTreeSet<IpAddr>,
}

impl Connections {
    pub(crate) fn new<'a>(own: &Own, ports: impl Iterator<Item = &'a ServicePort>) -> Self {
        let virtual_services = own.families().map(|address| address.virtual_service).collect();
        let mut known = Self { virtual_services, ..Self::default() };
        for port in ports {
            if port.protocol == Protocol::Tcp {
                known.tcp.extend(port.frontends.iter().filter_map(address));
            }
            if port.protocol != Protocol::Udp {
                continue;
            }
            // Where two Services claim one address, the switch follows the first.
            let serving = || port.serving.iter().copied().collect();
            let mut leads = |at: SocketAddr| _ = known.frontends.entry(at).or_insert_with(serving);
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

    /// Whether the switch should forget a connection of TCP that nobody has answered: what its first packet was sent to, and who
    /// would answer it. Its mark says nothing: a packet that is sent again gets it that of a Service, but not its endpoint.
    pub fn is_lost(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        self.tcp.contains(&sent_to) && sent_to == answered_by
    }

    /// Whether the switch should forget a connection of UDP: what its first packet was sent to, who answers it, and its mark.
    pub fn is_stale(&self, sent_to: SocketAddr, answered_by: SocketAddr, mark: u32) -> bool {
        match self.frontends.get(&sent_to) {
            Some(endpoints) => !endpoints.contains(&answered_by),
            None => CT_SERVICE.is_in(mark.into()),
        }
    }

    /// Whether the host should forget a connection of UDP: what its first packet was sent to, and who answers it.
    pub fn is_stale_on_host(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        let translated = self.virtual_services.contains(&answered_by.ip()) && sent_to.ip() != answered_by.ip();
        self.node_ports.contains(&sent_to) != translated
    }
}

/// What a frontend has of its own; NodePorts of TCP are the host's to translate, and reach the switch translated.
fn address(frontend: &Frontend) -> Option<SocketAddr> {
    match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::External(ip) => Some((ip, frontend.port).into()),
        FrontendKind::NodePort { .. } => None,
    }
}

/// Ways in, and who answers.
type Knowledge<'a> = (BTreeSet<(FrontendKind, u16)>, &'a [SocketAddr]);

/// What is to be known of a port: no other change of it makes a connection stale.
pub(super) fn knowledge(port: Option<&ServicePort>) -> Option<Knowledge<'_>> {
    let port = port.filter(|port| matches!(port.protocol, Protocol::Tcp | Protocol::Udp))?;
    let answering = if port.protocol == Protocol::Udp { port.serving.as_ref() } else { &[] };
    Some((port.frontends.iter().map(|frontend| (frontend.kind, frontend.port)).collect(), answering))
}
