//! Meters: how much of a kind of traffic may pass.

mod text;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bitflags::bitflags;

use crate::property::end;
use crate::stats::{Counter, put_duration, read_duration};
use crate::text::{ParseError, number, wrong};
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// Number of a meter; the highest numbers are reserved (OFPM_*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MeterId(pub u32);

impl MeterId {
    /// The highest number an ordinary meter can have.
    pub const MAX: MeterId = MeterId(0xffff_0000);
    /// The meter of packets that the datapath hands to ovs-vswitchd.
    pub const SLOWPATH: MeterId = MeterId(0xffff_fffd);
    /// OFPM_CONTROLLER: the meter of packet-ins.
    pub const CONTROLLER: MeterId = MeterId(0xffff_fffe);
    /// In requests: every meter.
    pub const ALL: MeterId = MeterId(0xffff_ffff);

    const NAMES: [(MeterId, &str); 3] =
        [(MeterId::SLOWPATH, "slowpath"), (MeterId::CONTROLLER, "controller"), (MeterId::ALL, "all")];
}

impl fmt::Display for MeterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(id, _)| id == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for MeterId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((id, _)) = Self::NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*id);
        }
        match number(text).and_then(|n| u32::try_from(n).ok()) {
            Some(n) if (1..=Self::MAX.0).contains(&n) => Ok(MeterId(n)),
            _ => wrong(text, "is neither a meter number from 1 to 4294901760 nor controller, slowpath or all"),
        }
    }
}

bitflags! {
    /// Flags of a meter (OFPMF_*).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct MeterFlags: u16 {
        /// Rates are in kilobits a second.
        const KBPS = 1 << 0;
        /// Rates are in packets a second.
        const PKTPS = 1 << 1;
        /// OFPMF_BURST: bands have a burst size.
        const BURST = 1 << 2;
        /// OFPMF_STATS: the switch collects statistics.
        const STATS = 1 << 3;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// A band: what happens above a rate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Band {
    /// OFPMBT_DROP: drops packets above the rate.
    Drop {
        /// The band applies above this rate, in kilobits or packets per second.
        rate: u32,
        /// Burst size in packets or kilobits.
        burst: u32,
    },
    /// Packets become more likely to be dropped later. Open vSwitch refuses it.
    DscpRemark {
        /// The band applies above this rate, in kilobits or packets per second.
        rate: u32,
        /// Burst size in packets or kilobits.
        burst: u32,
        /// By how much their drop precedence grows.
        prec_level: u8,
    },
    /// A band that this crate does not know.
    Unknown {
        /// OFPMBT_* type of the band.
        kind: u16,
        /// The bytes after type and length.
        body: Vec<u8>,
    },
}

impl Band {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, rate, burst, level) = match self {
            Band::Drop { rate, burst } => (1, rate, burst, 0),
            Band::DscpRemark { rate, burst, prec_level } => (2, rate, burst, *prec_level),
            Band::Unknown { kind, body } => {
                let start = out.len();
                out.put_u16(*kind);
                out.put_u16(0);
                out.put(body);
                out.patch_len(start + 2, start);
                return;
            }
        };
        out.put_u16(kind);
        out.put_u16(16);
        out.put_u32(*rate);
        out.put_u32(*burst);
        out.put_u8(level);
        out.put_zeros(3);
    }

    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let kind = reader.u16("meter band type")?;
        let length = usize::from(reader.u16("meter band length")?);
        let Some(body) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "meter band", length });
        };
        let mut body = reader.sub(body, "meter band")?;
        if !matches!(kind, 1 | 2) {
            return Ok(Band::Unknown { kind, body: body.rest().to_vec() });
        }
        let rate = body.u32("meter band rate")?;
        let burst = body.u32("meter band burst size")?;
        let prec_level = body.u8("meter band precedence")?;
        body.skip(3, "meter band padding")?;
        end(&body, "meter band")?;
        Ok(if kind == 1 { Band::Drop { rate, burst } } else { Band::DscpRemark { rate, burst, prec_level } })
    }

    fn decode_all(reader: &mut Reader<'_>) -> Decoded<Vec<Self>> {
        let mut bands = Vec::new();
        while !reader.is_empty() {
            bands.push(Self::decode(reader)?);
        }
        Ok(bands)
    }
}

/// A meter; in text `meter=1 pktps burst stats bands=type=drop rate=100 burst_size=50`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    /// Number of the meter.
    pub id: MeterId,
    /// Unit of rates, burst and statistics.
    pub flags: MeterFlags,
    /// Bands; the one with the highest exceeded rate applies.
    pub bands: Vec<Band>,
}

impl Meter {
    /// A meter that drops packets above `rate` packets per second, after a burst of `burst` packets.
    pub fn drop_pktps(id: MeterId, rate: u32, burst: u32) -> Self {
        let flags = MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS;
        Meter { id, flags, bands: vec![Band::Drop { rate, burst }] }
    }

    /// Writes an entry of a meter config reply.
    pub fn encode_config(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        self.encode_body(out);
        out.patch_len(start, start);
    }

    /// Reads an entry of a meter config reply.
    pub fn decode_config(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("meter config length")?);
        let Some(body) = length.checked_sub(2) else {
            return Err(DecodeError::BadLength { what: "meter config", length });
        };
        Self::decode_body(&mut reader.sub(body, "meter config")?)
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags.bits());
        out.put_u32(self.id.0);
        for band in &self.bands {
            band.encode(out);
        }
    }

    fn decode_body(reader: &mut Reader<'_>) -> Decoded<Self> {
        let flags = MeterFlags::from_bits_retain(reader.u16("meter flags")?);
        let id = MeterId(reader.u32("meter id")?);
        let mut bands = Band::decode_all(reader)?;
        for band in &mut bands {
            match band {
                // Without BURST the burst size is meaningless.
                Band::Drop { burst, .. } | Band::DscpRemark { burst, .. } if !flags.contains(MeterFlags::BURST) => {
                    *burst = 0;
                }
                _ => {}
            }
        }
        Ok(Meter { id, flags, bands })
    }
}

/// OFPT_METER_MOD (`struct ofp_meter_mod`), by command.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MeterMod {
    /// A new meter; fails if it exists.
    Add(Meter),
    /// Another definition for a meter; fails if it does not exist.
    Modify(Meter),
    /// The meter, or all of them, go; one that does not exist is no error.
    Delete(MeterId),
}

impl MeterMod {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            MeterMod::Add(meter) => {
                out.put_u16(0);
                meter.encode_body(out);
            }
            MeterMod::Modify(meter) => {
                out.put_u16(1);
                meter.encode_body(out);
            }
            MeterMod::Delete(id) => {
                out.put_u16(2);
                out.put_u16(0);
                out.put_u32(id.0);
            }
        }
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let command = reader.u16("meter command")?;
        let meter = Meter::decode_body(reader)?;
        match command {
            0 => Ok(MeterMod::Add(meter)),
            1 => Ok(MeterMod::Modify(meter)),
            2 => Ok(MeterMod::Delete(meter.id)),
            _ => Err(DecodeError::BadValue { what: "meter command", value: u64::from(command) }),
        }
    }
}

/// Counters of a meter: an entry of a meter stats reply.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterStats {
    /// Number of the meter.
    pub id: MeterId,
    /// Number of flows that use it; always 0 in Open vSwitch.
    pub flow_count: u32,
    /// All that came in.
    pub input: Counter,
    /// How long the meter exists.
    pub duration: Duration,
    /// For each band, the packets above its rate.
    pub bands: Vec<Counter>,
}

impl MeterStats {
    /// Writes an entry of a meter stats reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(self.id.0);
        out.put_zeros(8);
        out.put_u32(self.flow_count);
        self.input.encode(out);
        put_duration(out, self.duration);
        for band in &self.bands {
            band.encode(out);
        }
        out.patch_len(start + 4, start);
    }

    /// Reads an entry of a meter stats reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let id = MeterId(reader.u32("meter id")?);
        let length = usize::from(reader.u16("meter stats length")?);
        let Some(body) = length.checked_sub(6) else {
            return Err(DecodeError::BadLength { what: "meter stats", length });
        };
        let mut body = reader.sub(body, "meter stats")?;
        body.skip(6, "meter stats padding")?;
        let flow_count = body.u32("meter flow count")?;
        let input = Counter::decode(&mut body)?;
        let duration = read_duration(&mut body)?;
        Ok(MeterStats { id, flow_count, input, duration, bands: Counter::decode_all(&mut body)? })
    }
}

#[cfg(test)]
mod tests;
