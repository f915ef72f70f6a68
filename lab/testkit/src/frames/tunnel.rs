//! Packets and frames inside other packets.

use std::net::SocketAddr;

use super::segment::{Body, tcp, udp};
use super::{kind, proto};

/// Geneve, to UDP port 6081: a frame in a network.
pub fn geneve(src: SocketAddr, dst: SocketAddr, vni: u32, frame: &[u8]) -> Body {
    udp(src, dst, &[&[0, 0, 0x65, 0x58], &(vni << 8).to_be_bytes()[..], frame].concat())
}

/// VXLAN, to UDP port 4789: a frame in a network.
pub fn vxlan(src: SocketAddr, dst: SocketAddr, vni: u32, frame: &[u8]) -> Body {
    udp(src, dst, &[&[0x08, 0, 0, 0], &(vni << 8).to_be_bytes()[..], frame].concat())
}

/// GRE with a frame in it.
pub fn gre(frame: &[u8]) -> Body {
    Body { proto: proto::GRE, bytes: [&[0, 0, 0x65, 0x58], frame].concat() }
}

/// A packet in a packet.
pub fn ipip(packet: &[u8]) -> Body {
    let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    Body { proto: if is_v6 { proto::IPV6 } else { proto::IPIP }, bytes: packet.to_vec() }
}

/// ESP without a matching key.
pub fn esp(data: &[u8]) -> Body {
    Body { proto: proto::ESP, bytes: [&[0, 0, 1, 0, 0, 0, 0, 1], data].concat() }
}

/// STT, to TCP port 7471: a frame behind a header of 18 bytes, in what looks like the middle of a connection.
pub fn stt(src: SocketAddr, dst: SocketAddr, frame: &[u8]) -> Body {
    let length = u32::try_from(18 + frame.len()).unwrap_or_default() << 16;
    let ethernet = kind::IPV4.to_be_bytes();
    tcp(src, dst, 0x18, (length, 1), &[&[0; 16], &ethernet[..], frame].concat())
}
