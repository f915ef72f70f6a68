//! The kernel of a Node, as far as packets depend on it: routes, NodePorts, masquerading, and kube-proxy where it
//! serves Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::field::Field;
use proxy::{Frontend, FrontendKind, Serving, Viewpoint};
use simulator::Packet;
use types::host::{Desired, NodePort, Route, Virtual};
use types::meta::Protocol;

use crate::cluster::Objects;

/// Source and destination of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tuple {
    pub(crate) src: (IpAddr, u16),
    pub(crate) dst: (IpAddr, u16),
}

impl Tuple {
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let (src_port, dst_port) = packet.ports()?;
        Some(Self { src: (packet.src()?, src_port), dst: (packet.dst()?, dst_port) })
    }

    fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }
}

/// A connection after NAT in the kernel: original and translated addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translation {
    pub(crate) original: Tuple,
    pub(crate) translated: Tuple,
}

/// Reverses the NAT of a reply, the last translation first.
pub(crate) fn untranslate(translations: &[Translation], packet: &mut Packet) -> bool {
    let mut is_reply = false;
    for known in translations.iter().rev() {
        if Tuple::of(packet) == Some(known.translated.reversed()) {
            set_tuple(packet, known.original.reversed());
            is_reply = true;
        }
    }
    is_reply
}

/// DNAT of a packet to a NodePort, to the virtual Service address.
pub(crate) fn node_port(desired: &Desired, packet: &mut Packet, protocol: Protocol) -> Option<Translation> {
    let firewall = desired.firewall.as_ref()?;
    let original = Tuple::of(packet)?;
    let (ip, port) = original.dst;
    if !firewall.node_ports.contains(&NodePort { ip, protocol, port }) {
        return None;
    }
    let virtual_service: IpAddr = match ip {
        IpAddr::V4(_) => firewall.virtual_service.v4?.into(),
        IpAddr::V6(_) => firewall.virtual_service.v6?.into(),
    };
    Some(translate(packet, original, Tuple { dst: (virtual_service, port), ..original }))
}

/// DNAT of a packet to a cluster IP, to an endpoint, as kube-proxy does.
pub(crate) fn kube_proxy(
    objects: &Objects,
    node: &str,
    packet: &mut Packet,
    protocol: Protocol,
) -> Option<Translation> {
    let original = Tuple::of(packet)?;
    let (ip, port) = original.dst;
    let serving = Serving::default();
    let viewpoint = Viewpoint { node, addresses: &BTreeSet::new(), zone: None, serving: &serving };
    let leads_here = |frontend: &Frontend| frontend.kind == FrontendKind::ClusterIp(ip) && frontend.port == port;
    let endpoint = objects.services.values().find_map(|service| {
        let name = service.metadata.object_name();
        let slices = objects.slices.values().filter(|slice| {
            slice.metadata.namespace == name.namespace && slice.service_name() == Some(name.name.as_str())
        });
        let ports = proxy::compute(service, slices, &viewpoint).ports;
        let port = ports.iter().find(|port| port.protocol == protocol && port.frontends.iter().any(leads_here))?;
        port.endpoints.first().copied()
    })?;
    Some(translate(packet, original, Tuple { dst: (endpoint.address, endpoint.port), ..original }))
}

/// SNAT of a packet that leaves the Node: from a Pod to an address outside of the cluster, or from the virtual Service
/// address.
pub(crate) fn masquerade(desired: &Desired, packet: &mut Packet, node: IpAddr) -> Option<Translation> {
    let firewall = desired.firewall.as_ref()?;
    let original = Tuple::of(packet)?;
    let (src, dst) = (original.src.0, original.dst.0);
    let is_pod = firewall.masquerade.iter().any(|net| net.contains(&src));
    let is_inside = firewall.cluster.iter().any(|net| net.contains(&dst));
    let Virtual { v4, v6 } = firewall.virtual_service;
    let is_virtual = v4.map(IpAddr::from) == Some(src) || v6.map(IpAddr::from) == Some(src);
    if src.is_ipv4() == node.is_ipv4() && (is_pod && !is_inside || is_virtual) {
        return translate_source(packet, node);
    }
    None
}

/// Sets the source address of a packet.
pub(crate) fn translate_source(packet: &mut Packet, address: IpAddr) -> Option<Translation> {
    let original = Tuple::of(packet)?;
    Some(translate(packet, original, Tuple { src: (address, original.src.1), ..original }))
}

/// The most specific of our routes to a destination.
pub(crate) fn route(desired: &Desired, destination: IpAddr) -> Option<&Route> {
    let matching = desired.routes.iter().filter(|route| route.destination.contains(&destination));
    matching.max_by_key(|route| route.destination.prefix_len())
}

fn translate(packet: &mut Packet, original: Tuple, translated: Tuple) -> Translation {
    set_tuple(packet, translated);
    Translation { original, translated }
}

fn set_tuple(packet: &mut Packet, Tuple { src, dst }: Tuple) {
    for ((address, _), v4, v6) in [(src, Field::Ipv4Src, Field::Ipv6Src), (dst, Field::Ipv4Dst, Field::Ipv6Dst)] {
        match address {
            IpAddr::V4(ip) => packet.set(v4, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => packet.set(v6, u128::from(ip)),
        }
    }
    // A packet has the header of one protocol; fields of others are not written.
    for field in [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc] {
        packet.set(field, u128::from(src.1));
    }
    for field in [Field::TcpDst, Field::UdpDst, Field::SctpDst] {
        packet.set(field, u128::from(dst.1));
    }
}
