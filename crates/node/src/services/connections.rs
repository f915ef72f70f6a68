//! Which tracked connections no longer match the Services.
//!
//! A TCP client notices by itself that its endpoint is gone. But an unanswered connection that began before its Service existed
//! keeps its conntrack entry: retransmissions follow the first packet, to nowhere.
//!
//! UDP has no end of connection, so a client that keeps sending keeps its conntrack entry: to an endpoint that is gone, or to
//! none, if there was no Service when it began. Such entries have to be deleted. The agent compares the current entries with
//! this description, so no history is needed.
//!
//! A connection stays while its endpoint still serves, even if new connections would use another one: terminating endpoints,
//! topology hints and policies affect new connections only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use pipeline::regs::CT_SERVICE;
use proxy::{Frontend, FrontendKind, ServicePort};
use types::meta::Protocol;

use crate::addressing::Own;

/// Frontends and endpoints of the Services on this Node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// UDP frontends with their serving endpoints.
    udp: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    /// Sorted TCP frontends, except those that are also an endpoint.
    tcp: Vec<SocketAddr>,
    /// NodePorts at the host's addresses.
    node_ports: BTreeSet<SocketAddr>,
    /// Virtual addresses that the host DNATs NodePorts to.
    virtual_services: BTreeSet<IpAddr>,
}

impl Connections {
    pub(crate) fn new<'a>(own: &Own, ports: impl Iterator<Item = &'a ServicePort>) -> Self {
        let virtual_services = own.families().map(|address| address.virtual_service).collect();
        let mut known = Self { virtual_services, ..Self::default() };
        for port in ports {
            for frontend in &port.frontends {
                let frontends_of = frontends_of(own, frontend);
                match port.protocol {
                    Protocol::Tcp => known.tcp.extend(frontends_of.into_iter().filter(|at| !port.serving.contains(at))),
                    Protocol::Udp => {
                        // If two Services claim the same address, the switch uses the first.
                        for at in frontends_of {
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

    /// Whether the switch should delete an unanswered TCP connection with this original destination and reply source.
    /// `ct_mark` cannot be used here: a retransmitted SYN is marked as Service traffic without being DNATed.
    pub fn is_lost(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        sent_to == answered_by && self.tcp.binary_search(&sent_to).is_ok()
    }

    /// Whether the switch should delete a UDP connection with this original destination, reply source and mark.
    pub fn is_stale(&self, sent_to: SocketAddr, answered_by: SocketAddr, mark: u32) -> bool {
        match self.udp.get(&sent_to) {
            Some(endpoints) => !endpoints.contains(&answered_by),
            None => CT_SERVICE.is_in(mark.into()),
        }
    }

    /// Whether the host should delete a UDP connection with this original destination and reply source.
    pub fn is_stale_on_host(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        let translated = self.virtual_services.contains(&answered_by.ip()) && sent_to.ip() != answered_by.ip();
        self.node_ports.contains(&sent_to) != translated
    }
}

/// The destinations of packets to a frontend, as the switch sees them.
fn frontends_of(own: &Own, frontend: &Frontend) -> Vec<SocketAddr> {
    match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::External(ip) => vec![(ip, frontend.port).into()],
        FrontendKind::NodePort { ipv6 } => {
            let behind = own.families().flat_map(|address| [address.virtual_service, address.gateway]);
            let behind = behind.filter(|ip| ip.is_ipv6() == ipv6).map(|ip| (ip, frontend.port).into());
            listening(own, frontend.port, ipv6).chain(behind).collect()
        }
    }
}

/// The addresses and port of a NodePort on this Node.
fn listening(own: &Own, port: u16, ipv6: bool) -> impl Iterator<Item = SocketAddr> {
    let of_family = own.node_port_addresses.iter().filter(move |ip| ip.is_ipv6() == ipv6);
    of_family.map(move |ip| SocketAddr::new(*ip, port))
}

/// Whether a change of a port can make a connection stale. A TCP connection is lost only if a frontend is new.
pub(super) fn is_news(before: Option<&ServicePort>, now: Option<&ServicePort>) -> bool {
    let frontends_of = |port: &ServicePort| -> BTreeSet<(FrontendKind, u16)> {
        port.frontends.iter().map(|frontend| (frontend.kind, frontend.port)).collect()
    };
    let (known, new) = (before.map(frontends_of).unwrap_or_default(), now.map(frontends_of).unwrap_or_default());
    match before.or(now).map(|port| port.protocol) {
        Some(Protocol::Tcp) => !new.is_subset(&known),
        Some(Protocol::Udp) => known != new || before.map(|port| &port.serving) != now.map(|port| &port.serving),
        Some(Protocol::Sctp) | None => false,
    }
}
