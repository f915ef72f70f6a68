//! Every message as one type.

mod text;

use crate::bundle::{BundleAdd, BundleControl};
use crate::control::{AsyncConfig, Features, Hello, RoleMessage, SwitchConfig};
use crate::error::ErrorMessage;
use crate::flow::FlowMod;
use crate::group::GroupMod;
use crate::header::{Header, NICIRA, OF15, TooLong, kind, put_message};
use crate::meter::MeterMod;
use crate::monitor::FlowRemoved;
use crate::multipart::{MultipartReply, MultipartRequest};
use crate::packet::{PacketIn, PacketIn2, PacketInFormat, PacketOut};
use crate::ports::PortStatus;
use crate::property::end;
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// The extensions of Open vSwitch that this crate knows, by their number.
mod nicira {
    pub(super) const SET_PACKET_IN_FORMAT: u32 = 16;
    pub(super) const SET_CONTROLLER_ID: u32 = 20;
    pub(super) const RESUME: u32 = 28;
    pub(super) const CT_FLUSH_ZONE: u32 = 29;
    pub(super) const PACKET_IN2: u32 = 30;
}

/// A message of OpenFlow 1.5, or one of Open vSwitch's extensions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The first message of a connection.
    Hello(Hello),
    /// OFPT_ERROR: a request failed.
    Error(ErrorMessage),
    /// OFPT_ECHO_REQUEST: probes the connection; the reply has the same bytes.
    EchoRequest(Vec<u8>),
    /// OFPT_ECHO_REPLY: the bytes of the request.
    EchoReply(Vec<u8>),
    /// OFPT_FEATURES_REQUEST: asks for [`Message::FeaturesReply`].
    FeaturesRequest,
    /// OFPT_FEATURES_REPLY: datapath id and capabilities.
    FeaturesReply(Features),
    /// How are you set up?
    GetConfigRequest,
    /// How the switch is set up.
    GetConfigReply(SwitchConfig),
    /// OFPT_SET_CONFIG; there is no reply.
    SetConfig(SwitchConfig),
    /// A packet for the controller, in standard form.
    PacketIn(PacketIn),
    /// A packet for the controller, in the form that [`Message::SetPacketInFormat`] asks for.
    PacketIn2(Box<PacketIn2>),
    /// Lets a paused packet go on.
    Resume(Box<PacketIn2>),
    /// A flow is gone.
    FlowRemoved(Box<FlowRemoved>),
    /// OFPT_PORT_STATUS: a port was added, changed or deleted.
    PortStatus(PortStatus),
    /// A packet of the controller's.
    PacketOut(PacketOut),
    /// OFPT_FLOW_MOD: adds, modifies or deletes flows.
    FlowMod(Box<FlowMod>),
    /// OFPT_GROUP_MOD: adds, modifies or deletes groups.
    GroupMod(GroupMod),
    /// OFPT_METER_MOD: adds, modifies or deletes meters.
    MeterMod(MeterMod),
    /// OFPT_MULTIPART_REQUEST: a request whose reply may need several messages.
    MultipartRequest(MultipartRequest),
    /// A part of the answer.
    MultipartReply(MultipartReply),
    /// OFPT_BARRIER_REQUEST: requests a reply after all earlier messages were processed.
    BarrierRequest,
    /// OFPT_BARRIER_REPLY: all earlier messages were processed.
    BarrierReply,
    /// OFPT_ROLE_REQUEST: requests a role for the controller.
    RoleRequest(RoleMessage),
    /// The role the controller has.
    RoleReply(RoleMessage),
    /// Which messages do you send unasked?
    GetAsyncRequest,
    /// Which messages the switch sends unasked.
    GetAsyncReply(AsyncConfig),
    /// OFPT_SET_ASYNC: selects asynchronous messages; there is no reply.
    SetAsync(AsyncConfig),
    /// Opens, closes, commits or discards a bundle.
    BundleControl(BundleControl),
    /// Adds a message to a bundle; there is no reply.
    BundleAdd(BundleAdd),
    /// NXT_SET_PACKET_IN_FORMAT: selects the format of packet-ins; there is no reply.
    SetPacketInFormat(PacketInFormat),
    /// NXT_SET_CONTROLLER_ID: sets the id of the connection for `controller(id=...)`; there is no reply.
    SetControllerId(u16),
    /// NXT_CT_FLUSH_ZONE: removes all connections of a zone; there is no reply.
    CtFlushZone(u16),
    /// A message that this crate does not decode.
    Unknown {
        /// OFPT_* type in the header.
        kind: u8,
        /// The bytes after the header.
        body: Vec<u8>,
    },
}

impl Message {
    /// The OFPT_* type in the header.
    pub fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => kind::HELLO,
            Message::Error(_) => kind::ERROR,
            Message::EchoRequest(_) => kind::ECHO_REQUEST,
            Message::EchoReply(_) => kind::ECHO_REPLY,
            Message::FeaturesRequest => kind::FEATURES_REQUEST,
            Message::FeaturesReply(_) => kind::FEATURES_REPLY,
            Message::GetConfigRequest => kind::GET_CONFIG_REQUEST,
            Message::GetConfigReply(_) => kind::GET_CONFIG_REPLY,
            Message::SetConfig(_) => kind::SET_CONFIG,
            Message::PacketIn(_) => kind::PACKET_IN,
            Message::FlowRemoved(_) => kind::FLOW_REMOVED,
            Message::PortStatus(_) => kind::PORT_STATUS,
            Message::PacketOut(_) => kind::PACKET_OUT,
            Message::FlowMod(_) => kind::FLOW_MOD,
            Message::GroupMod(_) => kind::GROUP_MOD,
            Message::MeterMod(_) => kind::METER_MOD,
            Message::MultipartRequest(_) => kind::MULTIPART_REQUEST,
            Message::MultipartReply(_) => kind::MULTIPART_REPLY,
            Message::BarrierRequest => kind::BARRIER_REQUEST,
            Message::BarrierReply => kind::BARRIER_REPLY,
            Message::RoleRequest(_) => kind::ROLE_REQUEST,
            Message::RoleReply(_) => kind::ROLE_REPLY,
            Message::GetAsyncRequest => kind::GET_ASYNC_REQUEST,
            Message::GetAsyncReply(_) => kind::GET_ASYNC_REPLY,
            Message::SetAsync(_) => kind::SET_ASYNC,
            Message::BundleControl(_) => kind::BUNDLE_CONTROL,
            Message::BundleAdd(_) => kind::BUNDLE_ADD,
            Message::PacketIn2(_)
            | Message::Resume(_)
            | Message::SetPacketInFormat(_)
            | Message::SetControllerId(_)
            | Message::CtFlushZone(_) => kind::EXPERIMENTER,
            Message::Unknown { kind, .. } => *kind,
        }
    }

    /// Appends the message. One that is too long leaves nothing behind.
    pub fn encode(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        if let Message::BundleAdd(add) = self {
            return add.encode(xid, out);
        }
        let start = out.len();
        put_message(out, self.kind(), xid, |out| self.encode_body(out))?;
        if let (Message::Hello(hello), Some(version)) = (self, out.get_mut(start)) {
            *version = hello.version;
        }
        Ok(())
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::Hello(hello) => hello.encode(out),
            Message::Error(error) => error.encode(out),
            Message::EchoRequest(bytes) | Message::EchoReply(bytes) => out.put(bytes),
            Message::FeaturesReply(features) => features.encode(out),
            Message::GetConfigReply(config) | Message::SetConfig(config) => config.encode(out),
            Message::PacketIn(packet) => packet.encode(out),
            Message::FlowRemoved(removed) => removed.encode(out),
            Message::PortStatus(status) => status.encode(out),
            Message::PacketOut(packet) => packet.encode(out),
            Message::FlowMod(change) => change.encode(out),
            Message::GroupMod(change) => change.encode(out),
            Message::MeterMod(change) => change.encode(out),
            Message::MultipartRequest(request) => request.encode(out),
            Message::MultipartReply(reply) => reply.encode(out),
            Message::RoleRequest(role) | Message::RoleReply(role) => role.encode(out),
            Message::GetAsyncReply(config) | Message::SetAsync(config) => config.encode(out),
            Message::BundleControl(control) => control.encode(out),
            Message::PacketIn2(packet) => {
                put_nicira(out, nicira::PACKET_IN2);
                packet.encode(out);
            }
            Message::Resume(packet) => {
                put_nicira(out, nicira::RESUME);
                packet.encode(out);
            }
            Message::SetPacketInFormat(format) => {
                put_nicira(out, nicira::SET_PACKET_IN_FORMAT);
                out.put_u32(*format as u32);
            }
            Message::SetControllerId(id) => {
                put_nicira(out, nicira::SET_CONTROLLER_ID);
                out.put_zeros(6);
                out.put_u16(*id);
            }
            Message::CtFlushZone(zone) => {
                put_nicira(out, nicira::CT_FLUSH_ZONE);
                out.put_zeros(6);
                out.put_u16(*zone);
            }
            Message::Unknown { body, .. } => out.put(body),
            Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest => {}
            // Its length has to be known before its inner message: see `encode`.
            Message::BundleAdd(_) => {}
        }
    }

    /// Decodes one complete message with its xid. Hellos and errors may have any version.
    pub fn decode(bytes: &[u8]) -> Decoded<(u32, Message)> {
        let mut reader = Reader::new(bytes);
        let header = Header::decode(&mut reader)?;
        if usize::from(header.length) != bytes.len() {
            return Err(DecodeError::BadLength { what: "message", length: usize::from(header.length) });
        }
        if header.version != OF15 && !matches!(header.kind, kind::HELLO | kind::ERROR) {
            return Err(DecodeError::BadValue { what: "message version", value: u64::from(header.version) });
        }
        let message = Self::decode_body(header, &mut reader)?;
        end(&reader, "message")?;
        Ok((header.xid, message))
    }

    fn decode_body(header: Header, reader: &mut Reader<'_>) -> Decoded<Message> {
        Ok(match header.kind {
            kind::HELLO => Message::Hello(Hello::decode(header.version, reader)?),
            kind::ERROR => Message::Error(ErrorMessage::decode(reader)?),
            kind::ECHO_REQUEST => Message::EchoRequest(reader.rest().to_vec()),
            kind::ECHO_REPLY => Message::EchoReply(reader.rest().to_vec()),
            kind::EXPERIMENTER => return Self::decode_experimenter(reader),
            kind::FEATURES_REQUEST => Message::FeaturesRequest,
            kind::FEATURES_REPLY => Message::FeaturesReply(Features::decode(reader)?),
            kind::GET_CONFIG_REQUEST => Message::GetConfigRequest,
            kind::GET_CONFIG_REPLY => Message::GetConfigReply(SwitchConfig::decode(reader)?),
            kind::SET_CONFIG => Message::SetConfig(SwitchConfig::decode(reader)?),
            kind::PACKET_IN => Message::PacketIn(PacketIn::decode(reader)?),
            kind::FLOW_REMOVED => Message::FlowRemoved(Box::new(FlowRemoved::decode(reader)?)),
            kind::PORT_STATUS => Message::PortStatus(PortStatus::decode(reader)?),
            kind::PACKET_OUT => Message::PacketOut(PacketOut::decode(reader)?),
            kind::FLOW_MOD => Message::FlowMod(Box::new(FlowMod::decode(reader)?)),
            kind::GROUP_MOD => Message::GroupMod(GroupMod::decode(reader)?),
            kind::METER_MOD => Message::MeterMod(MeterMod::decode(reader)?),
            kind::MULTIPART_REQUEST => Message::MultipartRequest(MultipartRequest::decode(reader)?),
            kind::MULTIPART_REPLY => Message::MultipartReply(MultipartReply::decode(reader)?),
            kind::BARRIER_REQUEST => Message::BarrierRequest,
            kind::BARRIER_REPLY => Message::BarrierReply,
            kind::ROLE_REQUEST => Message::RoleRequest(RoleMessage::decode(reader)?),
            kind::ROLE_REPLY => Message::RoleReply(RoleMessage::decode(reader)?),
            kind::GET_ASYNC_REQUEST => Message::GetAsyncRequest,
            kind::GET_ASYNC_REPLY => Message::GetAsyncReply(AsyncConfig::decode(reader)?),
            kind::SET_ASYNC => Message::SetAsync(AsyncConfig::decode(reader)?),
            kind::BUNDLE_CONTROL => Message::BundleControl(BundleControl::decode(reader)?),
            kind::BUNDLE_ADD => Message::BundleAdd(BundleAdd::decode(header.xid, reader)?),
            kind => Message::Unknown { kind, body: reader.rest().to_vec() },
        })
    }

    fn decode_experimenter(reader: &mut Reader<'_>) -> Decoded<Message> {
        let mut whole = *reader;
        let vendor = reader.u32("experimenter")?;
        let subtype = reader.u32("experimenter type")?;
        Ok(match (vendor, subtype) {
            (NICIRA, nicira::PACKET_IN2) => Message::PacketIn2(Box::new(PacketIn2::decode(reader)?)),
            (NICIRA, nicira::RESUME) => Message::Resume(Box::new(PacketIn2::decode(reader)?)),
            (NICIRA, nicira::SET_PACKET_IN_FORMAT) => {
                let code = reader.u32("packet-in format")?;
                match PacketInFormat::from_code(code) {
                    Some(format) => Message::SetPacketInFormat(format),
                    None => return Err(DecodeError::BadValue { what: "packet-in format", value: u64::from(code) }),
                }
            }
            (NICIRA, nicira::SET_CONTROLLER_ID) => {
                reader.skip(6, "controller id padding")?;
                Message::SetControllerId(reader.u16("controller id")?)
            }
            (NICIRA, nicira::CT_FLUSH_ZONE) => {
                reader.skip(6, "zone padding")?;
                Message::CtFlushZone(reader.u16("zone")?)
            }
            _ => {
                reader.rest();
                Message::Unknown { kind: kind::EXPERIMENTER, body: whole.rest().to_vec() }
            }
        })
    }
}

fn put_nicira(out: &mut Vec<u8>, subtype: u32) {
    out.put_u32(NICIRA);
    out.put_u32(subtype);
}

#[cfg(test)]
mod tests;
