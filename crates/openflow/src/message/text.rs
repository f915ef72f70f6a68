//! Readable text of messages, close to `ovs-ofctl ofp-print`.

use std::fmt;

use super::Message;
use crate::flow::FlowCommand;
use crate::group::GroupMod;
use crate::header::{Header, kind};
use crate::meter::MeterMod;
use crate::multipart::{self, MultipartReply, MultipartRequest, ReplyBody};
use crate::ports::PortReason;
use crate::wire::Reader;

impl Message {
    /// Its name in Open vSwitch; for a multipart message, the name of its type.
    pub fn name(&self) -> &'static str {
        match self {
            Message::MultipartRequest(request) => multipart::name(request.kind()).unwrap_or("OFPT_MULTIPART_REQUEST"),
            Message::MultipartReply(reply) => multipart::name(reply.body.kind()).unwrap_or("OFPT_MULTIPART_REPLY"),
            Message::PacketIn2(_) => "NXT_PACKET_IN2",
            Message::Resume(_) => "NXT_RESUME",
            Message::SetPacketInFormat(_) => "NXT_SET_PACKET_IN_FORMAT",
            Message::SetControllerId(_) => "NXT_SET_CONTROLLER_ID",
            Message::CtFlushZone(_) => "NXT_CT_FLUSH_ZONE",
            _ => kind_name(self.kind()).unwrap_or("unknown message"),
        }
    }

    /// One line (more for lists), as `ovs-ofctl ofp-print` starts it: `OFPT_BARRIER_REQUEST (OF1.5) (xid=0x7):`.
    pub fn line(&self, xid: u32) -> String {
        let direction = match self {
            Message::MultipartRequest(_) => " request",
            Message::MultipartReply(_) => " reply",
            _ => "",
        };
        format!("{}{direction} (OF1.5) (xid={xid:#x}):{}", self.name(), Details(self))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name(), Details(self))
    }
}

/// The content of a message after its name.
struct Details<'a>(&'a Message);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::Hello(hello) => match hello.versions {
                Some(bits) => {
                    let versions = (0..32).filter(|v| hello.supports(*v)).map(|v| format!("{v:#04x}"));
                    let versions = versions.collect::<Vec<_>>().join(", ");
                    write!(f, " version bitmap: {}", if bits == 0 { "none" } else { &versions })
                }
                None => write!(f, " version {:#04x}", hello.version),
            },
            Message::Error(error) => {
                write!(f, " {error}")?;
                match Header::decode(&mut Reader::new(&error.data)).ok().and_then(|header| kind_name(header.kind)) {
                    Some(name) => write!(f, " (in reply to {name})"),
                    None => Ok(()),
                }
            }
            Message::EchoRequest(bytes) | Message::EchoReply(bytes) => write!(f, " {} bytes of payload", bytes.len()),
            Message::FeaturesReply(features) => {
                write!(f, " dpid:{:016x} n_tables:{}", features.datapath_id, features.n_tables)?;
                write!(f, " n_buffers:{} capabilities:", features.n_buffers)?;
                bitflags::parser::to_writer(&features.capabilities, f)
            }
            Message::GetConfigReply(config) | Message::SetConfig(config) => {
                write!(f, " flags={:#x} miss_send_len={}", config.flags, config.miss_send_len)
            }
            Message::PacketIn(packet) => packet.fmt(f),
            Message::PacketIn2(packet) | Message::Resume(packet) => packet.fmt(f),
            Message::FlowRemoved(removed) => write!(f, " reason={} {}", removed.reason, removed.flow),
            Message::PortStatus(status) => {
                let reason = match status.reason {
                    PortReason::Add => "ADD",
                    PortReason::Delete => "DEL",
                    PortReason::Modify => "MOD",
                };
                write!(f, " {reason}: {}", status.desc)
            }
            Message::PacketOut(packet) => packet.fmt(f),
            Message::FlowMod(change) => {
                let command = match change.command {
                    FlowCommand::Add => "ADD",
                    FlowCommand::Modify => "MOD",
                    FlowCommand::ModifyStrict => "MOD_STRICT",
                    FlowCommand::Delete => "DEL",
                    FlowCommand::DeleteStrict => "DEL_STRICT",
                };
                write!(f, " {command} {}", change.flow)
            }
            Message::GroupMod(change) => write_group_mod(f, change),
            Message::MeterMod(MeterMod::Add(meter)) => write!(f, " ADD {meter}"),
            Message::MeterMod(MeterMod::Modify(meter)) => write!(f, " MOD {meter}"),
            Message::MeterMod(MeterMod::Delete(id)) => write!(f, " DEL meter={id}"),
            Message::MultipartRequest(request) => write_request(f, request),
            Message::MultipartReply(reply) => write_reply(f, reply),
            Message::RoleRequest(role) | Message::RoleReply(role) => {
                write!(f, " role={} generation_id={}", role.role, role.generation)
            }
            Message::GetAsyncReply(config) | Message::SetAsync(config) => {
                for (masks, role) in [(&config.masks, "primary"), (&config.secondary, "secondary")] {
                    for (kind, mask) in masks {
                        write!(f, " {role}/{kind:?}={mask:#x}")?;
                    }
                }
                Ok(())
            }
            Message::BundleControl(control) => {
                write!(f, " bundle_id={:#x} type={} flags=", control.id.0, control.step.name())?;
                bitflags::parser::to_writer(&control.flags, f)
            }
            Message::BundleAdd(add) => {
                write!(f, " bundle_id={:#x} flags=", add.id.0)?;
                bitflags::parser::to_writer(&add.flags, &mut *f)?;
                match Message::decode(&add.message) {
                    // Not valid in a switch, and deep nesting would overflow the stack.
                    Ok((_, Message::BundleAdd(_))) => f.write_str(" (a bundle in a bundle)"),
                    Ok((_, inner)) => write!(f, " {inner}"),
                    Err(error) => write!(f, " ({error})"),
                }
            }
            Message::SetPacketInFormat(format) => write!(f, " format={format:?}"),
            Message::SetControllerId(id) => write!(f, " id={id}"),
            Message::CtFlushZone(zone) => write!(f, " zone_id={zone}"),
            Message::Unknown { kind, body } => write!(f, " type {kind}, {} bytes", body.len()),
            Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest => Ok(()),
        }
    }
}

fn write_group_mod(f: &mut fmt::Formatter<'_>, change: &GroupMod) -> fmt::Result {
    match change {
        GroupMod::Add(group) => write!(f, " ADD {group}"),
        GroupMod::Modify(group) => write!(f, " MOD {group}"),
        GroupMod::AddOrModify(group) => write!(f, " ADD_OR_MOD {group}"),
        GroupMod::Delete(id) => write!(f, " DEL group_id={id}"),
        GroupMod::InsertBuckets(group, position) => write!(f, " INSERT_BUCKET {position:?} {group}"),
        GroupMod::RemoveBuckets(id, position) => write!(f, " REMOVE_BUCKET {position:?} group_id={id}"),
    }
}

fn write_request(f: &mut fmt::Formatter<'_>, request: &MultipartRequest) -> fmt::Result {
    match request {
        MultipartRequest::Flow(which) | MultipartRequest::Aggregate(which) => {
            write!(f, " table={} {}", which.table, which.matches)
        }
        MultipartRequest::Table => Ok(()),
        MultipartRequest::Group(id) | MultipartRequest::GroupDesc(id) => write!(f, " group_id={id}"),
        MultipartRequest::Meter(id) | MultipartRequest::MeterConfig(id) => write!(f, " meter={id}"),
        MultipartRequest::PortDesc(port) => write!(f, " port={port}"),
        MultipartRequest::FlowMonitor(monitors) => {
            monitors.iter().try_for_each(|m| write!(f, " id={} {:?} table={}", m.id, m.command, m.table))
        }
        MultipartRequest::Unknown { kind, body, .. } => write!(f, " type {kind}, {} bytes", body.len()),
    }
}

fn write_reply(f: &mut fmt::Formatter<'_>, reply: &MultipartReply) -> fmt::Result {
    if reply.more {
        f.write_str(" flags=[more]")?;
    }
    match &reply.body {
        ReplyBody::Flow(flows) => flows.iter().try_for_each(|stats| write!(f, "\n {}", stats.flow)),
        ReplyBody::Aggregate(stats) => {
            let (packets, bytes) = (stats.packet_count.unwrap_or(0), stats.byte_count.unwrap_or(0));
            write!(f, " packet_count={packets} byte_count={bytes} flow_count={}", stats.flow_count.unwrap_or(0))
        }
        ReplyBody::Table(tables) => tables.iter().try_for_each(|t| {
            write!(f, "\n table {}: active={}, lookup={}, matched={}", t.table, t.active, t.lookups, t.matched)
        }),
        ReplyBody::Group(groups) => groups.iter().try_for_each(|g| {
            let (packets, bytes) = (g.total.packets, g.total.bytes);
            write!(f, "\n group_id={},ref_count={},packet_count={packets},byte_count={bytes}", g.group, g.ref_count)
        }),
        ReplyBody::GroupDesc(groups) => groups.iter().try_for_each(|group| write!(f, "\n {group}")),
        ReplyBody::Meter(meters) => meters.iter().try_for_each(|m| {
            let (packets, bytes) = (m.input.packets, m.input.bytes);
            write!(f, "\n meter:{} packet_in_count:{packets} byte_in_count:{bytes}", m.id)
        }),
        ReplyBody::MeterConfig(meters) => meters.iter().try_for_each(|meter| write!(f, "\n {meter}")),
        ReplyBody::PortDesc(ports) => ports.iter().try_for_each(|port| write!(f, "\n {port}")),
        ReplyBody::FlowMonitor(updates) => updates.iter().try_for_each(|update| write!(f, "\n {update}")),
        ReplyBody::Unknown { kind, body } => write!(f, " type {kind}, {} bytes", body.len()),
    }
}

/// The name of a message type in Open vSwitch.
fn kind_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        kind::HELLO => "OFPT_HELLO",
        kind::ERROR => "OFPT_ERROR",
        kind::ECHO_REQUEST => "OFPT_ECHO_REQUEST",
        kind::ECHO_REPLY => "OFPT_ECHO_REPLY",
        kind::EXPERIMENTER => "OFPT_EXPERIMENTER",
        kind::FEATURES_REQUEST => "OFPT_FEATURES_REQUEST",
        kind::FEATURES_REPLY => "OFPT_FEATURES_REPLY",
        kind::GET_CONFIG_REQUEST => "OFPT_GET_CONFIG_REQUEST",
        kind::GET_CONFIG_REPLY => "OFPT_GET_CONFIG_REPLY",
        kind::SET_CONFIG => "OFPT_SET_CONFIG",
        kind::PACKET_IN => "OFPT_PACKET_IN",
        kind::FLOW_REMOVED => "OFPT_FLOW_REMOVED",
        kind::PORT_STATUS => "OFPT_PORT_STATUS",
        kind::PACKET_OUT => "OFPT_PACKET_OUT",
        kind::FLOW_MOD => "OFPT_FLOW_MOD",
        kind::GROUP_MOD => "OFPT_GROUP_MOD",
        kind::MULTIPART_REQUEST => "OFPT_MULTIPART_REQUEST",
        kind::MULTIPART_REPLY => "OFPT_MULTIPART_REPLY",
        kind::BARRIER_REQUEST => "OFPT_BARRIER_REQUEST",
        kind::BARRIER_REPLY => "OFPT_BARRIER_REPLY",
        kind::ROLE_REQUEST => "OFPT_ROLE_REQUEST",
        kind::ROLE_REPLY => "OFPT_ROLE_REPLY",
        kind::GET_ASYNC_REQUEST => "OFPT_GET_ASYNC_REQUEST",
        kind::GET_ASYNC_REPLY => "OFPT_GET_ASYNC_REPLY",
        kind::SET_ASYNC => "OFPT_SET_ASYNC",
        kind::METER_MOD => "OFPT_METER_MOD",
        kind::BUNDLE_CONTROL => "OFPT_BUNDLE_CONTROL",
        kind::BUNDLE_ADD => "OFPT_BUNDLE_ADD_MESSAGE",
        _ => return None,
    })
}
