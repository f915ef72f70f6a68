//! A message of each kind.

use std::time::Duration;

use crate::action::{Action, Reason};
use crate::bundle::{BundleAdd, BundleControl, BundleFlags, BundleId, BundleStep};
use crate::control::{AsyncConfig, AsyncKind, Capabilities, Features, Hello, Role, RoleMessage, SwitchConfig};
use crate::error::ErrorMessage;
use crate::field::Field;
use crate::flow::{Flow, FlowMod, FlowRequest, FlowStats};
use crate::group::{Bucket, Group, GroupMod};
use crate::matching::Match;
use crate::message::Message;
use crate::meter::{Meter, MeterId, MeterMod, MeterStats};
use crate::monitor::{FlowEvent, FlowRemoved, MonitorRequest, MonitorUpdate};
use crate::multipart::{MultipartReply, MultipartRequest, ReplyBody};
use crate::packet::{NO_BUFFER, PacketIn, PacketIn2, PacketInFormat, PacketOut};
use crate::port::Port;
use crate::ports::{Ethernet, PortConfig, PortDesc, PortReason, PortState, PortStatus};
use crate::stats::{Counter, GroupStats, Oxs, TableStats};

/// One message of each kind this crate knows, the lists in them not empty.
pub fn messages() -> Vec<Message> {
    let mut all = symmetric();
    all.extend(from_controller());
    all.extend(from_switch());
    all.extend(replies());
    all
}

fn symmetric() -> Vec<Message> {
    let error = ErrorMessage { kind: 5, code: 3, experimenter: None, data: echo(&[1; 8]) };
    let nicira = ErrorMessage { kind: 0xffff, code: 15, experimenter: Some(0x2320), data: echo(&[1; 8]) };
    vec![
        Message::Hello(Hello::of15()),
        Message::Error(error),
        Message::Error(nicira),
        Message::EchoRequest(b"hi".to_vec()),
        Message::EchoReply(b"hi".to_vec()),
    ]
}

fn from_controller() -> Vec<Message> {
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    let role = RoleMessage { role: Role::Primary, generation: 3 };
    let config = AsyncConfig::default().with(AsyncKind::PacketIn, 2).with(AsyncKind::PortStatus, 7);
    let mut requests = vec![
        Message::FeaturesRequest,
        Message::GetConfigRequest,
        Message::SetConfig(SwitchConfig::WHOLE_PACKETS),
        Message::SetPacketInFormat(PacketInFormat::Nxt2),
        Message::SetControllerId(9),
        Message::CtFlushZone(65_520),
        Message::PacketOut(PacketOut::new(Port(1), vec![Action::Output(Port::TABLE)], frame())),
        Message::FlowMod(Box::new(FlowMod::add(flow()))),
        Message::GroupMod(GroupMod::Add(group())),
        Message::MeterMod(MeterMod::Add(meter())),
        Message::MeterMod(MeterMod::Delete(MeterId::ALL)),
        Message::BarrierRequest,
        Message::RoleRequest(role),
        Message::RoleReply(role),
        Message::GetAsyncRequest,
        Message::SetAsync(config),
        Message::BundleControl(BundleControl { id: BundleId(1), step: BundleStep::OpenRequest, flags }),
        Message::BundleAdd(BundleAdd { id: BundleId(1), flags, message: encoded_flow_mod() }),
    ];
    let multipart = [
        MultipartRequest::Flow(FlowRequest::default()),
        MultipartRequest::Aggregate(FlowRequest::default()),
        MultipartRequest::Table,
        MultipartRequest::Group(5),
        MultipartRequest::GroupDesc(5),
        MultipartRequest::Meter(MeterId::ALL),
        MultipartRequest::MeterConfig(MeterId::ALL),
        MultipartRequest::PortDesc(Port::ANY),
        MultipartRequest::FlowMonitor(vec![MonitorRequest::all(7)]),
    ];
    requests.extend(multipart.map(Message::MultipartRequest));
    requests
}

fn from_switch() -> Vec<Message> {
    let metadata = Match::any().with(Field::InPort, 3u32).with(Field::Reg1, 7u32);
    let packet = PacketIn {
        buffer_id: NO_BUFFER,
        total_len: 60,
        reason: Reason::Action,
        table: 3,
        cookie: 5,
        metadata: metadata.clone(),
        packet: frame(),
    };
    let packet2 = PacketIn2 {
        packet: frame(),
        table: Some(3),
        cookie: Some(5),
        reason: Some(Reason::Action),
        metadata,
        userdata: vec![1, 2, 3],
        ..PacketIn2::default()
    };
    let features = Features {
        datapath_id: 7,
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::BUNDLES | Capabilities::FLOW_STATS,
        reserved: 0,
    };
    let stats = Oxs { duration: Some(Duration::from_secs(3)), packet_count: Some(1), ..Oxs::default() };
    let gone = Flow { cookie: 5, matches: Match::ip(), ..Flow::at(7, 100) };
    vec![
        Message::FeaturesReply(features),
        Message::GetConfigReply(SwitchConfig::WHOLE_PACKETS),
        Message::PacketIn(packet),
        Message::PacketIn2(Box::new(packet2.clone())),
        Message::Resume(Box::new(packet2.into_resume())),
        Message::FlowRemoved(Box::new(FlowRemoved { reason: 2, flow: gone, stats })),
        Message::PortStatus(PortStatus { reason: PortReason::Modify, desc: port() }),
        Message::BarrierReply,
        Message::GetAsyncReply(AsyncConfig::default().with(AsyncKind::FlowRemoved, 0x3f)),
    ]
}

fn replies() -> Vec<Message> {
    let counter = Counter { packets: 3, bytes: 180 };
    let duration = Duration::from_millis(1500);
    let flow_stats = FlowStats { flow: flow(), duration, packets: 1, bytes: 60 };
    let total = Oxs { flow_count: Some(4), packet_count: Some(3), byte_count: Some(180), ..Oxs::default() };
    let table = TableStats { table: 3, active: 4, lookups: 9, matched: 8 };
    let group_stats = GroupStats { group: 5, ref_count: 1, total: counter, duration, buckets: vec![counter] };
    let meter_stats = MeterStats { id: MeterId(1), flow_count: 0, input: counter, duration, bands: vec![counter] };
    let updates = vec![
        MonitorUpdate::Flow { event: FlowEvent::Added, reason: 0, flow: flow() },
        MonitorUpdate::Abbreviated { xid: 7 },
    ];
    let bodies = [
        ReplyBody::Flow(vec![flow_stats]),
        ReplyBody::Aggregate(total),
        ReplyBody::Table(vec![table]),
        ReplyBody::Group(vec![group_stats]),
        ReplyBody::GroupDesc(vec![group()]),
        ReplyBody::Meter(vec![meter_stats]),
        ReplyBody::MeterConfig(vec![meter()]),
        ReplyBody::PortDesc(vec![port()]),
        ReplyBody::FlowMonitor(updates),
    ];
    bodies.into_iter().map(|body| Message::MultipartReply(MultipartReply { more: false, body })).collect()
}

fn flow() -> Flow {
    Flow::at(3, 7).when(Match::ip().with(Field::Ipv4Src, 0x0a00_0001u32)).then(Action::resubmit(4))
}

fn group() -> Group {
    let bucket = |id| Bucket { id, weight: Some(3), actions: vec![Action::Output(Port(1))], ..Bucket::default() };
    Group::select(5, vec![bucket(1), bucket(2)])
}

fn meter() -> Meter {
    Meter::drop_pktps(MeterId(1), 100, 50)
}

fn port() -> PortDesc {
    PortDesc {
        port: Port(3),
        mac: [0xaa, 0x55, 0xaa, 0x55, 0, 1],
        name: "p3".to_owned(),
        config: PortConfig::empty(),
        state: PortState::LIVE,
        ethernet: Some(Ethernet { current_speed: 10, max_speed: 100, ..Ethernet::default() }),
        unknown: Vec::new(),
    }
}

fn frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame.splice(12..14, [0x08, 0x06]);
    frame
}

/// A message to be part of another, with the xid 9.
fn encoded_flow_mod() -> Vec<u8> {
    let mut out = Vec::new();
    // Too short to fail.
    let _ = Message::FlowMod(Box::new(FlowMod::add(flow()))).encode(9, &mut out);
    out
}

fn echo(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = Message::EchoRequest(body.to_vec()).encode(9, &mut out);
    out
}
