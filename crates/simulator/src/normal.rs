//! Output to NORMAL: an ordinary switch that learns MACs.

use std::collections::{BTreeMap, BTreeSet};

use openflow::field::Field;
use openflow::port::Port;

use crate::packet::Packet;
use crate::tables::Time;

const AGING: Time = Time::from_secs(300);
const MULTICAST: u128 = 0x0100_0000_0000;
/// Frames to these addresses (01:80:c2:00:00:0x) stay on their link.
const LINK_LOCAL: u128 = 0x0180_c200_0000;

/// Learned ports of MACs, by VLAN.
#[derive(Clone, Debug, Default)]
pub(crate) struct Macs {
    seen: BTreeMap<(u128, u128), (Port, Time)>,
}

impl Macs {
    /// Learns the source of a packet and returns its output ports.
    pub(crate) fn forward(&mut self, now: Time, in_port: Port, packet: &Packet, ports: &BTreeSet<Port>) -> Vec<Port> {
        let vlan = packet.get(Field::VlanVid) & 0xfff;
        let (src, dst) = (packet.get(Field::EthSrc), packet.get(Field::EthDst));
        if dst & !0xf == LINK_LOCAL {
            return Vec::new();
        }
        if src & MULTICAST == 0 {
            self.seen.insert((vlan, src), (in_port, now));
        }
        match self.seen.get(&(vlan, dst)) {
            Some((port, seen)) if dst & MULTICAST == 0 && now < *seen + AGING => {
                Some(*port).into_iter().filter(|port| *port != in_port).collect()
            }
            _ => flood(in_port, ports),
        }
    }
}

/// All ports except the input port.
pub(crate) fn flood(in_port: Port, ports: &BTreeSet<Port>) -> Vec<Port> {
    ports.iter().copied().filter(|port| *port != in_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Arrival;

    #[test]
    fn a_switch_floods_until_it_has_learned_the_mac_which_expires() {
        let mut macs = Macs::default();
        let ports = BTreeSet::from([Port(1), Port(2), Port(3)]);
        let packet = |src: u8, dst: u8| {
            let text = format!("dl_src=02:00:00:00:00:{src:02x},dl_dst=02:00:00:00:00:{dst:02x}");
            text.parse::<Arrival>().unwrap().packet
        };
        assert_eq!(macs.forward(Time::ZERO, Port(1), &packet(1, 2), &ports), [Port(2), Port(3)]);
        assert_eq!(macs.forward(Time::ZERO, Port(2), &packet(2, 1), &ports), [Port(1)]);
        assert_eq!(macs.forward(Time::ZERO, Port(2), &packet(3, 2), &ports), []);
        assert_eq!(macs.forward(AGING, Port(2), &packet(2, 1), &ports), [Port(1), Port(3)]);
    }
}
