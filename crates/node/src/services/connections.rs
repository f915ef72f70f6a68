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

/// What is sent to Services, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// What clients connect to by UDP, and who answers there.
    udp: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    /// What clients connect to by TCP, but for what is also an endpoint; in order.
    tcp: Vec<SocketAddr>,
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
            for frontend in &port.frontends {
                let ways_in = ways_in(own, frontend);
                match port.protocol {
                    Protocol::Tcp => known.tcp.extend(ways_in.into_iter().filter(|at| !port.serving.contains(at))),
                    Protocol::Udp => {
                        // Where two Services claim one address, the switch follows the first.
                        for at in ways_in {
                            known.udp.entry(at).or_insert_with(|| port.serving.iter().copied().collect());
                        }
                        if let FrontendKind::NodePort { ipv6 } = frontend.kind {
                            known.node_ports.extend(listening(own, frontend.port, ipv6));
                        }
                    }
                    Protocol::Sctp => {}
                }
            }
        }
        known.tcp.sort_unstable();
        known
    }

    /// Whether the switch should forget a connection of TCP that nobody has answered: what its first packet was sent to, and who
    /// would answer it. Its mark says nothing: a packet that is sent again gets it that of a Service, but not its endpoint.
    pub fn is_lost(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        sent_to == answered_by && self.tcp.binary_search(&sent_to).is_ok()
    }

    /// Whether the switch should forget a connection of UDP: what its first packet was sent to, who answers it, and its mark.
    pub fn is_stale(&self, sent_to: SocketAddr, answered_by: SocketAddr, mark: u32) -> bool {
        match self.udp.get(&sent_to) {
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

/// What the switch sees packets to a frontend sent to.
fn ways_in(own: &Own, frontend: &Frontend) -> Vec<SocketAddr> {
    match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::External(ip) => vec![(ip, frontend.port).into()],
        FrontendKind::NodePort { ipv6 } => {
            let behind = own.families().flat_map(|address| [address.virtual_service, address.gateway]);
            let behind = behind.filter(|ip| ip.is_ipv6() == ipv6).map(|ip| (ip, frontend.port).into());
            listening(own, frontend.port, ipv6).chain(behind).collect()
        }
    }
}

/// Where this Node listens for a NodePort.
fn listening(own: &Own, port: u16, ipv6: bool) -> impl Iterator<Item = SocketAddr> {
    let of_family = own.node_port_addresses.iter().filter(move |ip| ip.is_ipv6() == ipv6);
    of_family.map(move |ip| SocketAddr::new(*ip, port))
}

/// Whether a change of a port can make a connection stale. One of TCP gets lost by what was not there before, and by nothing else.
pub(super) fn is_news(before: Option<&ServicePort>, now: Option<&ServicePort>) -> bool {
    let ways_in = |port: &ServicePort| -> BTreeSet<(FrontendKind, u16)> {
        port.frontends.iter().map(|frontend| (frontend.kind, frontend.port)).collect()
    };
    let (known, new) = (before.map(ways_in).unwrap_or_default(), now.map(ways_in).unwrap_or_default());
    match before.or(now).map(|port| port.protocol) {
        Some(Protocol::Tcp) => !new.is_subset(&known),
        Some(Protocol::Udp) => known != new || before.map(|port| &port.serving) != now.map(|port| &port.serving),
        Some(Protocol::Sctp) | None => false,
    }
}
