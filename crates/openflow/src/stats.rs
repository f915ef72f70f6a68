//! Counters that the switch reports.

use std::time::Duration;

use crate::wire::{DecodeError, Decoded, Put, Reader};

const OXS_CLASS: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// OpenFlow 1.5's list of counters; what the switch leaves out is `None`, what this crate does not know is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Oxs {
    /// How long the flow has been there.
    pub duration: Option<Duration>,
    /// How long it has matched nothing.
    pub idle_time: Option<Duration>,
    /// How many flows are counted together.
    pub flow_count: Option<u32>,
    /// How many packets.
    pub packet_count: Option<u64>,
    /// How many bytes.
    pub byte_count: Option<u64>,
}

impl Oxs {
    /// Appends the list: reserved, length, counters, padding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u16(0);
        for (kind, time) in [(DURATION, self.duration), (IDLE_TIME, self.idle_time)] {
            if let Some(time) = time {
                put_header(out, kind, 8);
                out.put_u32(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
                out.put_u32(time.subsec_nanos());
            }
        }
        if let Some(count) = self.flow_count {
            put_header(out, FLOW_COUNT, 4);
            out.put_u32(count);
        }
        for (kind, count) in [(PACKET_COUNT, self.packet_count), (BYTE_COUNT, self.byte_count)] {
            if let Some(count) = count {
                put_header(out, kind, 8);
                out.put_u64(count);
            }
        }
        out.patch_len(start + 2, start);
        out.pad8_since(start);
    }

    /// Reads the list.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        reader.skip(2, "counters")?;
        let length = usize::from(reader.u16("counters length")?);
        let Some(len) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "counters", length });
        };
        let mut body = reader.sub(len, "counters")?;
        reader.skip((8 - length % 8) % 8, "counters padding")?;
        let mut oxs = Oxs::default();
        while !body.is_empty() {
            let class = body.u16("counter class")?;
            let kind = body.u8("counter type")? >> 1;
            let len = usize::from(body.u8("counter length")?);
            let mut value = body.sub(len, "counter")?;
            match (class, kind) {
                (OXS_CLASS, DURATION) => oxs.duration = Some(read_time(&mut value)?),
                (OXS_CLASS, IDLE_TIME) => oxs.idle_time = Some(read_time(&mut value)?),
                (OXS_CLASS, FLOW_COUNT) => oxs.flow_count = Some(value.u32("flow count")?),
                (OXS_CLASS, PACKET_COUNT) => oxs.packet_count = Some(value.u64("packet count")?),
                (OXS_CLASS, BYTE_COUNT) => oxs.byte_count = Some(value.u64("byte count")?),
                _ => {}
            }
        }
        Ok(oxs)
    }
}

fn put_header(out: &mut Vec<u8>, kind: u8, len: u8) {
    out.put_u16(OXS_CLASS);
    out.put_u8(kind << 1);
    out.put_u8(len);
}

fn read_time(value: &mut Reader<'_>) -> Decoded<Duration> {
    let seconds = value.u32("seconds")?;
    let nanos = value.u32("nanoseconds")?;
    Ok(Duration::from_secs(u64::from(seconds)) + Duration::from_nanos(u64::from(nanos)))
}
