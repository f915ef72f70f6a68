//! Requests whose answer may take many messages: lists of flows, groups, meters, ports and counters.

use crate::flow::{FlowRequest, FlowStats};
use crate::group::Group;
use crate::meter::{Meter, MeterId, MeterStats};
use crate::monitor::{MonitorRequest, MonitorUpdate};
use crate::port::Port;
use crate::ports::PortDesc;
use crate::property::end;
use crate::stats::{GroupStats, Oxs, TableStats};
use crate::wire::{Decoded, Put, Reader};

/// The flag of a message that is not the last of its request or reply.
const MORE: u16 = 1;

/// Multipart types, as numbered by OpenFlow 1.5.
pub mod kind {
    /// OFPMP_DESC: vendor and version of the switch.
    pub const DESC: u16 = 0;
    /// Flows with their counters. (Type 17, counters without actions, is not known to Open vSwitch 3.1.)
    pub const FLOW: u16 = 1;
    /// Counters of many flows together.
    pub const AGGREGATE: u16 = 2;
    /// OFPMP_TABLE_STATS: counters of tables.
    pub const TABLE: u16 = 3;
    /// OFPMP_GROUP_STATS: counters of groups.
    pub const GROUP: u16 = 6;
    /// OFPMP_GROUP_DESC: groups with their buckets.
    pub const GROUP_DESC: u16 = 7;
    /// OFPMP_METER_STATS: counters of meters.
    pub const METER: u16 = 9;
    /// OFPMP_METER_DESC: meters with their bands.
    pub const METER_CONFIG: u16 = 10;
    /// OFPMP_PORT_DESC: ports with their state.
    pub const PORT_DESC: u16 = 13;
    /// OFPMP_FLOW_MONITOR: flow monitors and their updates.
    pub const FLOW_MONITOR: u16 = 16;
}

/// The name of a multipart type in the style of `ovs-ofctl ofp-print`.
pub(crate) fn name(kind: u16) -> Option<&'static str> {
    Some(match kind {
        kind::DESC => "OFPST_DESC",
        kind::FLOW => "OFPST_FLOW",
        kind::AGGREGATE => "OFPST_AGGREGATE",
        kind::TABLE => "OFPST_TABLE",
        kind::GROUP => "OFPST_GROUP",
        kind::GROUP_DESC => "OFPST_GROUP_DESC",
        kind::METER => "OFPST_METER",
        kind::METER_CONFIG => "OFPST_METER_CONFIG",
        kind::PORT_DESC => "OFPST_PORT_DESC",
        kind::FLOW_MONITOR => "OFPST_FLOW_MONITOR",
        _ => return None,
    })
}

/// OFPT_MULTIPART_REQUEST (`struct ofp_multipart_request`), by type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MultipartRequest {
    /// Flows with their counters.
    Flow(FlowRequest),
    /// Counters of flows together.
    Aggregate(FlowRequest),
    /// Counters of all tables.
    Table,
    /// Counters of a group, or of [`crate::group::ALL_GROUPS`].
    Group(u32),
    /// A group, or [`crate::group::ALL_GROUPS`].
    GroupDesc(u32),
    /// Counters of a meter, or of [`MeterId::ALL`].
    Meter(MeterId),
    /// A meter, or [`MeterId::ALL`].
    MeterConfig(MeterId),
    /// A port, or [`Port::ANY`].
    PortDesc(Port),
    /// Changes of flow monitors.
    FlowMonitor(Vec<MonitorRequest>),
    /// A request that this crate does not decode.
    Unknown {
        /// OFPMP_* type of the request.
        kind: u16,
        /// OFPMPF_* flags of the request.
        flags: u16,
        /// The bytes after type and flags.
        body: Vec<u8>,
    },
}

impl MultipartRequest {
    /// The OFPMP_* type of the request.
    pub fn kind(&self) -> u16 {
        match self {
            MultipartRequest::Flow(_) => kind::FLOW,
            MultipartRequest::Aggregate(_) => kind::AGGREGATE,
            MultipartRequest::Table => kind::TABLE,
            MultipartRequest::Group(_) => kind::GROUP,
            MultipartRequest::GroupDesc(_) => kind::GROUP_DESC,
            MultipartRequest::Meter(_) => kind::METER,
            MultipartRequest::MeterConfig(_) => kind::METER_CONFIG,
            MultipartRequest::PortDesc(_) => kind::PORT_DESC,
            MultipartRequest::FlowMonitor(_) => kind::FLOW_MONITOR,
            MultipartRequest::Unknown { kind, .. } => *kind,
        }
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.kind());
        out.put_u16(if let MultipartRequest::Unknown { flags, .. } = self { *flags } else { 0 });
        out.put_zeros(4);
        match self {
            MultipartRequest::Flow(request) | MultipartRequest::Aggregate(request) => request.encode(out),
            MultipartRequest::Table => {}
            MultipartRequest::Group(id)
            | MultipartRequest::GroupDesc(id)
            | MultipartRequest::Meter(MeterId(id))
            | MultipartRequest::MeterConfig(MeterId(id))
            | MultipartRequest::PortDesc(Port(id)) => {
                out.put_u32(*id);
                out.put_zeros(4);
            }
            MultipartRequest::FlowMonitor(requests) => requests.iter().for_each(|request| request.encode(out)),
            MultipartRequest::Unknown { body, .. } => out.put(body),
        }
    }

    /// Decodes the message body. Requests in several messages are not assembled: their parts are
    /// `Unknown`.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let kind = reader.u16("multipart type")?;
        let flags = reader.u16("multipart flags")?;
        reader.skip(4, "multipart padding")?;
        let request = match (flags, kind) {
            (0, kind::FLOW) => MultipartRequest::Flow(FlowRequest::decode(reader)?),
            (0, kind::AGGREGATE) => MultipartRequest::Aggregate(FlowRequest::decode(reader)?),
            (0, kind::TABLE) => MultipartRequest::Table,
            (0, kind::GROUP) => MultipartRequest::Group(one_id(reader)?),
            (0, kind::GROUP_DESC) => MultipartRequest::GroupDesc(one_id(reader)?),
            (0, kind::METER) => MultipartRequest::Meter(MeterId(one_id(reader)?)),
            (0, kind::METER_CONFIG) => MultipartRequest::MeterConfig(MeterId(one_id(reader)?)),
            (0, kind::PORT_DESC) => MultipartRequest::PortDesc(Port(one_id(reader)?)),
            (0, kind::FLOW_MONITOR) => MultipartRequest::FlowMonitor(all(reader, MonitorRequest::decode)?),
            _ => MultipartRequest::Unknown { kind, flags, body: reader.rest().to_vec() },
        };
        end(reader, "multipart request")?;
        Ok(request)
    }
}

/// OFPT_MULTIPART_REPLY: a part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultipartReply {
    /// Whether other parts with the same xid follow.
    pub more: bool,
    /// Content of this part.
    pub body: ReplyBody,
}

/// Content of one part of a reply. Entries are never split between parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// Flows with their counters.
    Flow(Vec<FlowStats>),
    /// Counters of flows together.
    Aggregate(Oxs),
    /// Counters of tables, by table number.
    Table(Vec<TableStats>),
    /// Counters of groups and buckets.
    Group(Vec<GroupStats>),
    /// Groups with their buckets.
    GroupDesc(Vec<Group>),
    /// Counters of meters and bands.
    Meter(Vec<MeterStats>),
    /// Meters with their bands.
    MeterConfig(Vec<Meter>),
    /// Ports with their state.
    PortDesc(Vec<PortDesc>),
    /// Updates of flow monitors.
    FlowMonitor(Vec<MonitorUpdate>),
    /// A reply that this crate does not decode.
    Unknown {
        /// OFPMP_* type of the reply.
        kind: u16,
        /// The bytes after the multipart header.
        body: Vec<u8>,
    },
}

impl ReplyBody {
    /// The OFPMP_* type of the reply.
    pub fn kind(&self) -> u16 {
        match self {
            ReplyBody::Flow(_) => kind::FLOW,
            ReplyBody::Aggregate(_) => kind::AGGREGATE,
            ReplyBody::Table(_) => kind::TABLE,
            ReplyBody::Group(_) => kind::GROUP,
            ReplyBody::GroupDesc(_) => kind::GROUP_DESC,
            ReplyBody::Meter(_) => kind::METER,
            ReplyBody::MeterConfig(_) => kind::METER_CONFIG,
            ReplyBody::PortDesc(_) => kind::PORT_DESC,
            ReplyBody::FlowMonitor(_) => kind::FLOW_MONITOR,
            ReplyBody::Unknown { kind, .. } => *kind,
        }
    }
}

impl MultipartReply {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.body.kind());
        out.put_u16(if self.more { MORE } else { 0 });
        out.put_zeros(4);
        match &self.body {
            ReplyBody::Flow(flows) => flows.iter().for_each(|flow| flow.encode(out)),
            ReplyBody::Aggregate(stats) => stats.encode(out),
            ReplyBody::Table(tables) => tables.iter().for_each(|table| table.encode(out)),
            ReplyBody::Group(groups) => groups.iter().for_each(|group| group.encode(out)),
            ReplyBody::GroupDesc(groups) => groups.iter().for_each(|group| group.encode_desc(out)),
            ReplyBody::Meter(meters) => meters.iter().for_each(|meter| meter.encode(out)),
            ReplyBody::MeterConfig(meters) => meters.iter().for_each(|meter| meter.encode_config(out)),
            ReplyBody::PortDesc(ports) => ports.iter().for_each(|port| port.encode(out)),
            ReplyBody::FlowMonitor(updates) => updates.iter().for_each(|update| update.encode(out)),
            ReplyBody::Unknown { body, .. } => out.put(body),
        }
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let kind = reader.u16("multipart type")?;
        let more = reader.u16("multipart flags")? & MORE != 0;
        reader.skip(4, "multipart padding")?;
        let body = match kind {
            kind::FLOW => ReplyBody::Flow(all(reader, FlowStats::decode)?),
            kind::AGGREGATE => ReplyBody::Aggregate(Oxs::decode(reader)?),
            kind::TABLE => ReplyBody::Table(all(reader, TableStats::decode)?),
            kind::GROUP => ReplyBody::Group(all(reader, GroupStats::decode)?),
            kind::GROUP_DESC => ReplyBody::GroupDesc(all(reader, Group::decode_desc)?),
            kind::METER => ReplyBody::Meter(all(reader, MeterStats::decode)?),
            kind::METER_CONFIG => ReplyBody::MeterConfig(all(reader, Meter::decode_config)?),
            kind::PORT_DESC => ReplyBody::PortDesc(all(reader, PortDesc::decode)?),
            kind::FLOW_MONITOR => ReplyBody::FlowMonitor(all(reader, MonitorUpdate::decode)?),
            _ => ReplyBody::Unknown { kind, body: reader.rest().to_vec() },
        };
        end(reader, "multipart reply")?;
        Ok(MultipartReply { more, body })
    }
}

fn one_id(reader: &mut Reader<'_>) -> Decoded<u32> {
    let id = reader.u32("id")?;
    reader.skip(4, "padding")?;
    Ok(id)
}

fn all<T>(reader: &mut Reader<'_>, decode: impl Fn(&mut Reader<'_>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push(decode(reader)?);
    }
    Ok(entries)
}
