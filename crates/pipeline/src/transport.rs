//! The transport bridge: passes tunnel packets between the uplink and the switch, where the datapath is in userspace.
//!
//! The kernel does not give tunnel packets to the userspace datapath, so the uplink is also a port of a bridge of its own. The
//! kernel keeps the uplink's addresses and handles all other packets. The switch sends the packets that it encapsulates into
//! the bridge as if they came from the uplink, and decapsulates packets that the bridge sends to its local port.

use std::net::Ipv4Addr;

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::{Match, ip_proto};
use openflow::port::Port;
use serde::{Deserialize, Serialize};
use types::host::Guard;
use types::network::TunnelPackets;

use crate::arp;
use crate::priority::{MISS, transport};

/// The bridge has one table only.
const TABLE: u8 = 0;

/// The transport bridge of a Node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct TransportBridge {
    /// OpenFlow port of the uplink.
    pub uplink: Port,
    /// The Node's end of its tunnels.
    pub address: Ipv4Addr,
    /// The packets of these tunnels.
    pub tunnel: TunnelPackets,
}

impl TransportBridge {
    /// All flows of the bridge.
    pub fn flows(&self) -> Vec<Flow> {
        let address = u128::from(self.address.to_bits());
        let from_uplink = |matches: Match| matches.with(Field::InPort, self.uplink.0);
        let flow = |priority, matches, port| Flow::at(TABLE, priority).when(matches).then(Action::Output(port));
        let protocol = |number: u8| from_uplink(Match::ip()).with(Field::IpProto, number);
        // Packets that the switch has just encapsulated have no ports yet.
        let (sent, received) = match self.tunnel {
            TunnelPackets::Udp(port) => (protocol(ip_proto::UDP), protocol(ip_proto::UDP).with(Field::UdpDst, port)),
            TunnelPackets::Gre => (protocol(Guard::GRE), protocol(Guard::GRE)),
        };
        let request = from_uplink(Match::arp()).with(Field::ArpOp, arp::REQUEST).with(Field::ArpSpa, address);
        let reply = from_uplink(Match::arp()).with(Field::ArpOp, arp::REPLY).with(Field::ArpTpa, address);
        vec![
            flow(transport::FROM_SWITCH, sent.with(Field::Ipv4Src, address), Port::IN_PORT),
            // The switch resolves a next hop by itself that the agent has not resolved for it.
            flow(transport::FROM_SWITCH, request, Port::IN_PORT),
            flow(transport::TO_SWITCH, reply, Port::LOCAL),
            flow(transport::TO_SWITCH, received.with(Field::Ipv4Dst, address), Port::LOCAL),
            // Copies of packets that the kernel handles.
            Flow::at(TABLE, MISS),
        ]
    }
}
