//! Descriptions of ports, and notifications of changes.

use std::fmt;

use bitflags::bitflags;

use crate::port::Port;
use crate::property::{UnknownProperty, end, put_property, read_property};
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// How many bytes a port's name takes, a zero at the end included.
const NAME_LEN: usize = 16;
/// The property with the speeds.
const ETHERNET: u16 = 0;

bitflags! {
    /// How a port was set up.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct PortConfig: u32 {
        /// OFPPC_PORT_DOWN: the port is administratively down.
        const PORT_DOWN = 1 << 0;
        /// OFPPC_NO_RECV: received packets are dropped.
        const NO_RECV = 1 << 2;
        /// OFPPC_NO_FWD: packets sent to the port are dropped.
        const NO_FWD = 1 << 5;
        /// OFPPC_NO_PACKET_IN: received packets cause no packet-ins.
        const NO_PACKET_IN = 1 << 6;
        /// Any other bit is kept.
        const _ = !0;
    }
}

bitflags! {
    /// How a port is.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct PortState: u32 {
        /// OFPPS_LINK_DOWN: the link has no carrier.
        const LINK_DOWN = 1 << 0;
        /// Spanning tree or the like keeps it shut.
        const BLOCKED = 1 << 1;
        /// Good for a fast failover group.
        const LIVE = 1 << 2;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// Link properties of an Ethernet port; features are OFPPF_* bits, speeds are in kbps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ethernet {
    /// Features in use (OFPPF_*).
    pub current: u32,
    /// Features that the port advertises.
    pub advertised: u32,
    /// Features that the port supports.
    pub supported: u32,
    /// Features that the peer advertises.
    pub peer: u32,
    /// Current speed in kbps.
    pub current_speed: u32,
    /// Maximum speed in kbps.
    pub max_speed: u32,
}

/// A port: an entry of a port description reply, and the body of a port status message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortDesc {
    /// OpenFlow number of the port.
    pub port: Port,
    /// Hardware address of the port.
    pub mac: [u8; 6],
    /// Its name, of at most 15 bytes: a longer one is cut here but not in the database.
    pub name: String,
    /// How it was set up.
    pub config: PortConfig,
    /// State of the link (OFPPS_*).
    pub state: PortState,
    /// Link features and speeds, for Ethernet ports.
    pub ethernet: Option<Ethernet>,
    /// Properties that this crate does not know.
    pub unknown: Vec<UnknownProperty>,
}

impl PortDesc {
    /// Writes an entry of a port description reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(self.port.0);
        out.put_zeros(4);
        out.put(&self.mac);
        out.put_zeros(2);
        let name = cut(&self.name).as_bytes();
        out.put(name);
        out.put_zeros(NAME_LEN - name.len());
        out.put_u32(self.config.bits());
        out.put_u32(self.state.bits());
        if let Some(link) = self.ethernet {
            put_property(out, ETHERNET, |out| {
                out.put_zeros(4);
                let Ethernet { current, advertised, supported, peer, current_speed, max_speed } = link;
                for value in [current, advertised, supported, peer, current_speed, max_speed] {
                    out.put_u32(value);
                }
            });
        }
        for property in &self.unknown {
            property.encode(out);
        }
        out.patch_len(start + 4, start);
    }

    /// Reads an entry of a port description reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let port = Port(reader.u32("port number")?);
        let length = usize::from(reader.u16("port length")?);
        let Some(body) = length.checked_sub(6) else {
            return Err(DecodeError::BadLength { what: "port", length });
        };
        let mut body = reader.sub(body, "port")?;
        body.skip(2, "port padding")?;
        let mac = body.array("port address")?;
        body.skip(2, "port padding")?;
        let name = body.take(NAME_LEN, "port name")?;
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let mut desc = PortDesc {
            port,
            mac,
            name: cut(&String::from_utf8_lossy(name)).to_owned(),
            config: PortConfig::from_bits_retain(body.u32("port config")?),
            state: PortState::from_bits_retain(body.u32("port state")?),
            ethernet: None,
            unknown: Vec::new(),
        };
        while !body.is_empty() {
            match read_property(&mut body)? {
                (ETHERNET, mut value) => {
                    value.skip(4, "ethernet padding")?;
                    desc.ethernet = Some(Ethernet {
                        current: value.u32("ethernet features")?,
                        advertised: value.u32("ethernet features")?,
                        supported: value.u32("ethernet features")?,
                        peer: value.u32("ethernet features")?,
                        current_speed: value.u32("ethernet speed")?,
                        max_speed: value.u32("ethernet speed")?,
                    });
                    end(&value, "ethernet property")?;
                }
                (kind, value) => desc.unknown.push(UnknownProperty::keep(kind, value)),
            }
        }
        Ok(desc)
    }
}

/// The name, truncated to fit.
fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_LEN - 1)).unwrap_or_default()
}

impl fmt::Display for PortDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        write!(f, "{}({}): addr:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}", self.port, self.name)?;
        write!(f, " config:{:#x} state:{:#x}", self.config.bits(), self.state.bits())
    }
}

/// What happened to a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortReason {
    /// OFPPR_ADD: the port was added.
    Add,
    /// OFPPR_DELETE: the port was removed.
    Delete,
    /// Something about it changed.
    Modify,
}

impl PortReason {
    const ALL: [PortReason; 3] = [PortReason::Add, PortReason::Delete, PortReason::Modify];
}

/// OFPT_PORT_STATUS: something happened to a port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortStatus {
    /// What happened to the port.
    pub reason: PortReason,
    /// The port, as it is now or was at the end.
    pub desc: PortDesc,
}

impl PortStatus {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.reason as u8);
        out.put_zeros(7);
        self.desc.encode(out);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let code = reader.u8("port status reason")?;
        let Some(reason) = PortReason::ALL.get(usize::from(code)).copied() else {
            return Err(DecodeError::BadValue { what: "port status reason", value: u64::from(code) });
        };
        reader.skip(7, "port status padding")?;
        let desc = PortDesc::decode(reader)?;
        end(reader, "port status")?;
        Ok(PortStatus { reason, desc })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::hex;

    #[test]
    fn the_port_status_of_open_vswitch_is_read() {
        // From ovs-vswitchd 3.1.0, after the header: port p3 was deleted.
        let bytes = hex(concat!(
            "01000000000000000000000300480000aa55aa5500120000",
            "703300000000000000000000000000000000000000000004",
            "000000200000000000000000000000000000000000000000",
            "0000000000000000",
        ));
        let status = PortStatus::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(status.reason, PortReason::Delete);
        assert_eq!(status.desc.to_string(), "3(p3): addr:aa:55:aa:55:00:12 config:0x0 state:0x4");
        assert_eq!(status.desc.ethernet, Some(Ethernet::default()));
        let mut out = Vec::new();
        status.encode(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(cut("antrea-tun0"), "antrea-tun0");
        assert_eq!(cut("abcdefghijklmnop"), "abcdefghijklmno");
        assert_eq!(cut("abcdefghijklmn\u{e9}"), "abcdefghijklmn");
    }

    #[test]
    fn a_port_with_an_impossible_length_is_refused() {
        let error = PortDesc::decode(&mut Reader::new(&[0, 0, 0, 1, 0, 5, 0, 0])).unwrap_err();
        assert_eq!(error, DecodeError::BadLength { what: "port", length: 5 });
    }

    proptest! {
        #[test]
        fn values_survive_encoding_and_decoding(
            port: u32, mac: [u8; 6], name in "[a-z0-9-]{0,15}", bits: [u32; 2], link: Option<[u32; 6]>,
            kind in 1u16.., value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let ethernet = link.map(|[current, advertised, supported, peer, current_speed, max_speed]| Ethernet {
                current, advertised, supported, peer, current_speed, max_speed,
            });
            let desc = PortDesc {
                port: Port(port), mac, name, ethernet,
                config: PortConfig::from_bits_retain(bits[0]),
                state: PortState::from_bits_retain(bits[1]),
                unknown: vec![UnknownProperty { kind, value }],
            };
            let status = PortStatus { reason: PortReason::Modify, desc };
            let mut out = Vec::new();
            status.encode(&mut out);
            prop_assert_eq!(PortStatus::decode(&mut Reader::new(&out)).unwrap(), status);
        }
    }
}
