//! Counters: of single flows, of many together, of tables and of groups.

use std::time::Duration;

use crate::property::end;
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// The class of the statistics that OpenFlow 1.5 itself defines.
const CLASS: u16 = 0x8002;

/// The statistics of OpenFlow 1.5 (OXS), of one flow or of many. Those of other classes are skipped: they do not change the
/// identity of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Oxs {
    /// How long the flow exists.
    pub duration: Option<Duration>,
    /// How long no packet has met it.
    pub idle_time: Option<Duration>,
    /// How many flows are counted together.
    pub flow_count: Option<u32>,
    /// How many packets met it.
    pub packet_count: Option<u64>,
    /// How many bytes these had.
    pub byte_count: Option<u64>,
}

impl Oxs {
    /// Writes the statistics as messages carry them: length, TLVs, padding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_zeros(4);
        for (number, duration) in [(0, self.duration), (1, self.idle_time)] {
            if let Some(duration) = duration {
                put_tlv(out, number, 8);
                put_duration(out, duration);
            }
        }
        for (number, count) in [(4, self.packet_count), (5, self.byte_count)] {
            if let Some(count) = count {
                put_tlv(out, number, 8);
                out.put_u64(count);
            }
        }
        if let Some(count) = self.flow_count {
            put_tlv(out, 3, 4);
            out.put_u32(count);
        }
        out.patch_len(start + 2, start);
        out.pad8_since(start);
    }

    /// Reads statistics as messages carry them.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        reader.skip(2, "statistics")?;
        let length = usize::from(reader.u16("statistics length")?);
        let Some(tlvs) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "statistics", length });
        };
        let mut tlvs = reader.sub(tlvs, "statistics")?;
        reader.skip((8 - length % 8) % 8, "statistics padding")?;
        let mut oxs = Oxs::default();
        while !tlvs.is_empty() {
            let class = tlvs.u16("statistic class")?;
            let number = tlvs.u8("statistic number")? >> 1;
            let length = usize::from(tlvs.u8("statistic length")?);
            let mut value = tlvs.sub(length, "statistic")?;
            match (class, number) {
                (CLASS, 0) => oxs.duration = Some(read_duration(&mut value)?),
                (CLASS, 1) => oxs.idle_time = Some(read_duration(&mut value)?),
                (CLASS, 3) => oxs.flow_count = Some(value.u32("flow count")?),
                (CLASS, 4) => oxs.packet_count = Some(value.u64("packet count")?),
                (CLASS, 5) => oxs.byte_count = Some(value.u64("byte count")?),
                _ => drop(value.rest()),
            }
            end(&value, "statistic")?;
        }
        Ok(oxs)
    }
}

fn put_tlv(out: &mut Vec<u8>, number: u8, length: u8) {
    out.put_u16(CLASS);
    out.put_u8(number << 1);
    out.put_u8(length);
}

/// How many packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counter {
    /// Number of packets counted.
    pub packets: u64,
    /// Number of bytes counted.
    pub bytes: u64,
}

impl Counter {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.put_u64(self.packets);
        out.put_u64(self.bytes);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Counter { packets: reader.u64("packet count")?, bytes: reader.u64("byte count")? })
    }

    pub(crate) fn decode_all(reader: &mut Reader<'_>) -> Decoded<Vec<Self>> {
        let mut counters = Vec::new();
        while !reader.is_empty() {
            counters.push(Self::decode(reader)?);
        }
        Ok(counters)
    }
}

/// Counters of a table: an entry of a table stats reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableStats {
    /// Number of the table.
    pub table: u8,
    /// How many flows it has.
    pub active: u32,
    /// How many packets looked for a flow in it.
    pub lookups: u64,
    /// How many found one.
    pub matched: u64,
}

impl TableStats {
    /// Writes an entry of a table stats reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.table);
        out.put_zeros(3);
        out.put_u32(self.active);
        out.put_u64(self.lookups);
        out.put_u64(self.matched);
    }

    /// Reads an entry of a table stats reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let table = reader.u8("table id")?;
        reader.skip(3, "table stats padding")?;
        Ok(TableStats {
            table,
            active: reader.u32("active flows")?,
            lookups: reader.u64("lookups")?,
            matched: reader.u64("matched packets")?,
        })
    }
}

/// Counters of a group: an entry of a group stats reply.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupStats {
    /// Id of the group.
    pub group: u32,
    /// How many flows and groups lead to it.
    pub ref_count: u32,
    /// All that it was given.
    pub total: Counter,
    /// How long it exists.
    pub duration: Duration,
    /// Counters of each bucket, in the order of the buckets.
    pub buckets: Vec<Counter>,
}

impl GroupStats {
    /// Writes an entry of a group stats reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_zeros(4);
        out.put_u32(self.group);
        out.put_u32(self.ref_count);
        out.put_zeros(4);
        self.total.encode(out);
        put_duration(out, self.duration);
        for bucket in &self.buckets {
            bucket.encode(out);
        }
        out.patch_len(start, start);
    }

    /// Reads an entry of a group stats reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("group stats length")?);
        let Some(body) = length.checked_sub(2) else {
            return Err(DecodeError::BadLength { what: "group stats", length });
        };
        let mut body = reader.sub(body, "group stats")?;
        body.skip(2, "group stats padding")?;
        let group = body.u32("group id")?;
        let ref_count = body.u32("group references")?;
        body.skip(4, "group stats padding")?;
        let total = Counter::decode(&mut body)?;
        let duration = read_duration(&mut body)?;
        Ok(GroupStats { group, ref_count, total, duration, buckets: Counter::decode_all(&mut body)? })
    }
}

/// Writes seconds and nanoseconds.
pub(crate) fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    out.put_u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    out.put_u32(duration.subsec_nanos());
}

/// Decodes seconds and nanoseconds. Nanoseconds are limited to one second: -1 means unknown.
pub(crate) fn read_duration(reader: &mut Reader<'_>) -> Decoded<Duration> {
    let seconds = reader.u32("seconds")?;
    let nanos = reader.u32("nanoseconds")?;
    Ok(Duration::new(u64::from(seconds), nanos.min(999_999_999)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::hex;

    #[test]
    fn the_aggregate_of_open_vswitch_is_read() {
        // Body of an aggregate reply of ovs-vswitchd 3.1.0 without any flow.
        let bytes = hex("0000002480020808000000000000000080020a08000000000000000080020604000000000000000000");
        let bytes = &bytes[..40];
        let oxs = Oxs::decode(&mut Reader::new(bytes)).unwrap();
        let none = Oxs { flow_count: Some(0), packet_count: Some(0), byte_count: Some(0), ..Oxs::default() };
        assert_eq!(oxs, none);
        let mut out = Vec::new();
        oxs.encode(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn the_statistics_of_a_flow_are_read() {
        // From a flow description of ovs-vswitchd 3.1.0: alive for 1.019 s, idle for 1 s.
        let bytes = hex(concat!(
            "0000003480020008000000010121eac0800202080000000100000000",
            "80020808000000000000000080020a08000000000000000000000000",
        ));
        let oxs = Oxs::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((oxs.duration, oxs.idle_time), (Some(Duration::from_millis(1019)), Some(Duration::from_secs(1))));
        assert_eq!((oxs.packet_count, oxs.flow_count), (Some(0), None));
        let mut out = Vec::new();
        oxs.encode(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn statistics_of_another_class_are_skipped() {
        let bytes = hex("00000015ffff020500002320098002060400000007000000");
        let oxs = Oxs::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(oxs, Oxs { flow_count: Some(7), ..Oxs::default() });
    }

    #[test]
    fn the_group_stats_of_open_vswitch_are_read() {
        // One entry of ovs-vswitchd 3.1.0: group 5 with two buckets.
        let bytes = hex(concat!(
            "00480000000000050000000000000000000000000000000000000000000000000000000001e84800",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ));
        let stats = GroupStats::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((stats.group, stats.buckets.len()), (5, 2));
        assert_eq!(stats.duration, Duration::from_millis(32));
        let mut out = Vec::new();
        stats.encode(&mut out);
        assert_eq!(out, bytes);
    }

    fn durations() -> impl Strategy<Value = Duration> {
        (any::<u32>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(u64::from(seconds), nanos))
    }

    proptest! {
        #[test]
        fn values_survive_encoding_and_decoding(
            duration in prop::option::of(durations()), idle_time in prop::option::of(durations()),
            flow_count: Option<u32>, packet_count: Option<u64>, byte_count: Option<u64>,
            table: u8, active: u32, lookups: u64, matched: u64,
        ) {
            let mut out = Vec::new();
            let oxs = Oxs { duration, idle_time, flow_count, packet_count, byte_count };
            oxs.encode(&mut out);
            prop_assert_eq!(Oxs::decode(&mut Reader::new(&out)).unwrap(), oxs);

            out.clear();
            let table = TableStats { table, active, lookups, matched };
            table.encode(&mut out);
            prop_assert_eq!(TableStats::decode(&mut Reader::new(&out)).unwrap(), table);
        }
    }
}
