//! A conversation with a real ovs-vswitchd. All tests share one, each with a bridge of its own.

use std::sync::LazyLock;
use std::time::Duration;

use openflow::action::{Action, Controller, Reason};
use openflow::bundle::{BundleControl, BundleFlags, BundleId, BundleStep, put_bundle_add};
use openflow::control::{AsyncConfig, AsyncKind, Role, RoleMessage, SwitchConfig};
use openflow::field::Field;
use openflow::flow::{EncodedFlow, Flow, FlowFlags, FlowMod, FlowRequest};
use openflow::group::{ALL_GROUPS, Bucket, Group, GroupMod};
use openflow::header::kind;
use openflow::matching::Match;
use openflow::message::Message;
use openflow::meter::{Meter, MeterId, MeterMod};
use openflow::monitor::{FlowEvent, MonitorRequest, MonitorUpdate};
use openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody};
use openflow::packet::{PacketInFormat, PacketOut};
use openflow::port::Port;
use openflow::ports::PortReason;
use testkit::Ovs;

use super::client::Client;

static OVS: LazyLock<Ovs> = LazyLock::new(|| Ovs::start().unwrap());

const ALL: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

/// A connection to a new bridge.
fn bridge(name: &str) -> Client {
    OVS.add_bridge(name).unwrap();
    Client::connect(&OVS, name)
}

/// A connection to a new bridge which is sent all that switches send unasked.
fn listener(name: &str) -> Client {
    let mut client = bridge(name);
    client.done(&Message::SetConfig(SwitchConfig::WHOLE_PACKETS));
    client.done(&Message::SetPacketInFormat(PacketInFormat::Nxt2));
    client
}

fn flow_mod(flow: &Flow) -> Message {
    Message::FlowMod(Box::new(FlowMod::add(flow.clone())))
}

fn flow(text: &str) -> Flow {
    text.parse().unwrap()
}

/// All flows of the bridge, in the order of their tables and priorities.
fn flows(client: &mut Client) -> Vec<Flow> {
    let mut flows = Vec::new();
    for part in client.parts(MultipartRequest::Flow(FlowRequest::default())) {
        match part {
            ReplyBody::Flow(part) => flows.extend(part.into_iter().map(|stats| stats.flow)),
            other => panic!("{other:?}"),
        }
    }
    flows.sort_by_key(|flow| (flow.table, flow.priority));
    flows
}

#[test]
fn a_connection_is_set_up_and_kept() {
    let mut client = bridge("setup");
    assert!(matches!(client.call(&Message::FeaturesRequest), Message::FeaturesReply(f) if f.n_tables == 254));
    let echo = client.call(&Message::EchoRequest(b"hello".to_vec()));
    assert_eq!(echo, Message::EchoReply(b"hello".to_vec()));
    assert_eq!(client.call(&Message::BarrierRequest), Message::BarrierReply);

    client.done(&Message::SetConfig(SwitchConfig::WHOLE_PACKETS));
    let config = client.call(&Message::GetConfigRequest);
    assert_eq!(config, Message::GetConfigReply(SwitchConfig::WHOLE_PACKETS));

    let ask = |role, generation| Message::RoleRequest(RoleMessage { role, generation });
    let none = RoleMessage::NO_GENERATION;
    let equal = client.call(&ask(Role::NoChange, 0));
    assert_eq!(equal, Message::RoleReply(RoleMessage { role: Role::Equal, generation: none }));
    let primary = client.call(&ask(Role::Primary, 5));
    assert_eq!(primary, Message::RoleReply(RoleMessage { role: Role::Primary, generation: 5 }));
    assert!(client.refused(&ask(Role::Primary, 4)).is("OFPRRFC_STALE"));

    client.done(&Message::SetAsync(AsyncConfig::default().with(AsyncKind::PacketIn, 2)));
    let Message::GetAsyncReply(config) = client.call(&Message::GetAsyncRequest) else { panic!() };
    assert_eq!(config.masks.get(&AsyncKind::PacketIn), Some(&2));
    assert_eq!(config.masks.get(&AsyncKind::PortStatus), Some(&7), "which was not named");
    client.done(&Message::SetControllerId(7));
    client.done(&Message::CtFlushZone(65_520));
}

#[test]
fn errors_have_names_and_quote_the_request() {
    let mut client = bridge("errors");
    let unknown = Message::Unknown { kind: 99, body: vec![1, 2, 3, 4] };
    let error = client.refused(&unknown);
    assert!(error.is("OFPBRC_BAD_TYPE"), "{error}");
    assert_eq!(error.data[8..], [1, 2, 3, 4]);

    client.done(&flow_mod(&flow("priority=5,ip,actions=drop")));
    let mut overlapping = flow("priority=5,in_port=1,actions=drop");
    overlapping.flags = FlowFlags::CHECK_OVERLAP;
    let bare = Flow::at(0, 1).when(Match::any().with(Field::TcpDst, 80u16));
    let conjunction = Action::Conjunction { id: 1, clause: 1, of: 2 };
    let mixed = Flow::at(0, 1).then(conjunction).then(Action::DecTtl);
    let into_nothing = Flow::at(0, 1).then(Action::Group(99));
    for (flow, name) in [
        (overlapping, "OFPFMFC_OVERLAP"),
        (bare, "OFPBMC_BAD_PREREQ"),
        (mixed, "NXBAC_BAD_CONJUNCTION"),
        (into_nothing, "OFPBAC_BAD_OUT_GROUP"),
    ] {
        let error = client.refused(&flow_mod(&flow));
        assert!(error.is(name), "{error} instead of {name}");
    }
}

#[test]
fn ports_tables_and_counters_are_listed() {
    let mut client = bridge("lists");
    OVS.add_port("lists", "lists-p1", 1).unwrap();
    let parts = client.parts(MultipartRequest::PortDesc(Port::ANY));
    let [ReplyBody::PortDesc(ports)] = &parts[..] else { panic!("{parts:?}") };
    let ports: Vec<_> = ports.iter().map(|desc| (desc.port, desc.name.as_str())).collect();
    assert_eq!(ports, [(Port::LOCAL, "lists"), (Port(1), "lists-p1")]);

    client.done(&flow_mod(&flow("table=7,priority=5,ip,actions=drop")));
    client.done(&flow_mod(&flow("table=7,priority=6,ip,actions=drop")));
    let parts = client.parts(MultipartRequest::Table);
    let [ReplyBody::Table(tables)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!(tables.len(), 254);
    assert_eq!(tables.iter().find(|t| t.table == 7).map(|t| t.active), Some(2));

    let parts = client.parts(MultipartRequest::Aggregate(FlowRequest { table: 7, ..FlowRequest::default() }));
    let [ReplyBody::Aggregate(total)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((total.flow_count, total.packet_count, total.byte_count), (Some(2), Some(0), Some(0)));
    assert_eq!(total.duration, None);
}

#[test]
fn flows_and_groups_come_back_as_they_were_sent() {
    let mut client = bridge("dump");
    let bucket = |id, port| Bucket { id, weight: Some(5), actions: vec![Action::Output(port)], ..Bucket::default() };
    let group = Group::select(7, vec![bucket(1, Port(1)), bucket(2, Port(2))]);
    client.done(&Message::GroupMod(GroupMod::Add(group.clone())));
    assert!(client.refused(&Message::GroupMod(GroupMod::Add(group.clone()))).is("OFPGMFC_GROUP_EXISTS"));
    let sent: Vec<Flow> = (1..1000u16).map(|n| Flow::at(3, n).cookie(u64::from(n)).then(Action::Group(7))).collect();
    for flow in &sent {
        client.send(&flow_mod(flow));
    }
    assert_eq!(flows(&mut client), sent);
    assert!(client.parts(MultipartRequest::Flow(FlowRequest::default())).len() > 1, "too few flows for two parts");

    let parts = client.parts(MultipartRequest::GroupDesc(ALL_GROUPS));
    assert_eq!(parts, [ReplyBody::GroupDesc(vec![group])]);
    let parts = client.parts(MultipartRequest::Group(7));
    let [ReplyBody::Group(stats)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((stats[0].group, stats[0].buckets.len()), (7, 2));
}

#[test]
fn meters_come_back_as_they_were_sent() {
    let mut client = bridge("meters");
    let meter = Meter::drop_pktps(MeterId(1), 100, 50);
    client.done(&Message::MeterMod(MeterMod::Add(meter.clone())));
    assert!(client.refused(&Message::MeterMod(MeterMod::Add(meter.clone()))).is("OFPMMFC_METER_EXISTS"));
    assert_eq!(
        client.parts(MultipartRequest::MeterConfig(MeterId::ALL)),
        [ReplyBody::MeterConfig(vec![meter.clone()])]
    );

    let faster = Meter::drop_pktps(MeterId(1), 200, 50);
    client.done(&Message::MeterMod(MeterMod::Modify(faster.clone())));
    assert_eq!(client.parts(MultipartRequest::MeterConfig(MeterId(1))), [ReplyBody::MeterConfig(vec![faster])]);
    let parts = client.parts(MultipartRequest::Meter(MeterId(1)));
    let [ReplyBody::Meter(stats)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((stats[0].id, stats[0].bands.len()), (MeterId(1), 1));
    assert!(stats[0].duration < Duration::from_secs(60));

    client.done(&Message::MeterMod(MeterMod::Delete(MeterId::ALL)));
    assert_eq!(client.parts(MultipartRequest::MeterConfig(MeterId::ALL)), [ReplyBody::MeterConfig(vec![])]);
    let missing = Meter::drop_pktps(MeterId(9), 1, 1);
    assert!(client.refused(&Message::MeterMod(MeterMod::Modify(missing))).is("OFPMMFC_UNKNOWN_METER"));
}

#[test]
fn a_bundle_is_done_at_once_or_not_at_all() {
    let mut client = bridge("bundles");
    let control = |id, step, flags| Message::BundleControl(BundleControl { id: BundleId(id), step, flags });
    let sent: Vec<Flow> = (1..500).map(|n| Flow::at(1, n).then(Action::resubmit(2))).collect();

    let reply = client.call(&control(1, BundleStep::OpenRequest, ALL));
    assert_eq!(reply, control(1, BundleStep::OpenReply, BundleFlags::empty()));
    let mut bytes = Vec::new();
    let mut scratch = Vec::new();
    for (xid, flow) in (0x1000..).zip(&sent) {
        let encoded = EncodedFlow::new(flow, &mut scratch);
        put_bundle_add(&mut bytes, xid, BundleId(1), ALL, kind::FLOW_MOD, |out| encoded.put_add(out)).unwrap();
    }
    client.send_bytes(&bytes);
    assert_eq!(flows(&mut client), [], "before it is committed");
    let reply = client.call(&control(1, BundleStep::CommitRequest, ALL));
    assert_eq!(reply, control(1, BundleStep::CommitReply, BundleFlags::empty()));
    assert_eq!(flows(&mut client), sent);

    // The second message fails, so the first is not done either: one error for it, one for the commit.
    client.call(&control(2, BundleStep::OpenRequest, ALL));
    bytes.clear();
    let bad = Flow::at(9, 1).then(Action::Group(99));
    for (xid, flow) in [(0x2000, Flow::at(9, 2)), (0x2001, bad)] {
        put_bundle_add(&mut bytes, xid, BundleId(2), ALL, kind::FLOW_MOD, |out| FlowMod::add(flow).encode(out))
            .unwrap();
    }
    client.send_bytes(&bytes);
    let refused = client.refused(&control(2, BundleStep::CommitRequest, ALL));
    assert!(refused.is("OFPBFC_MSG_FAILED"), "{refused}");
    let Message::Error(cause) = client.reply(0x2001) else { panic!() };
    assert!(cause.is("OFPBAC_BAD_OUT_GROUP"), "{cause}");
    assert_eq!(flows(&mut client), sent);

    client.call(&control(3, BundleStep::OpenRequest, ALL));
    let reply = client.call(&control(3, BundleStep::DiscardRequest, ALL));
    assert_eq!(reply, control(3, BundleStep::DiscardReply, BundleFlags::empty()));
    assert!(client.refused(&control(3, BundleStep::CommitRequest, ALL)).is("OFPBFC_BAD_ID"));
}

#[test]
fn a_message_refused_on_its_way_into_a_bundle_is_missing_from_it() {
    let mut client = bridge("left-out");
    let control = |step| Message::BundleControl(BundleControl { id: BundleId(1), step, flags: ALL });
    client.call(&control(BundleStep::OpenRequest));
    let good = Flow::at(1, 1);
    let bad = Flow::at(1, 2).then(Action::DecTtl);
    let mut bytes = Vec::new();
    for (xid, flow) in [(0x1000, good.clone()), (0x1001, bad)] {
        put_bundle_add(&mut bytes, xid, BundleId(1), ALL, kind::FLOW_MOD, |out| FlowMod::add(flow).encode(out))
            .unwrap();
    }
    client.send_bytes(&bytes);
    // The switch says so at once, but then commits the rest: for all or nothing, the controller must discard the bundle.
    let Message::Error(error) = client.reply(0x1001) else { panic!() };
    assert!(error.is("OFPBAC_MATCH_INCONSISTENT"), "{error}");
    assert!(matches!(client.call(&control(BundleStep::CommitRequest)), Message::BundleControl(_)));
    assert_eq!(flows(&mut client), [good]);
}

#[test]
fn packets_come_with_userdata_and_go_out_again() {
    let mut client = listener("packets");
    OVS.add_port("packets", "pk1", 1).unwrap();
    OVS.add_port("packets", "pk2", 2).unwrap();
    let controller = |pause| Controller { userdata: vec![1, 2, 3], pause, ..Controller::default() };
    let plain = Flow::at(0, 5)
        .cookie(0x99)
        .when(Match::any().with(Field::InPort, 1u32))
        .then(Action::set(Field::Reg1, 7u32))
        .then(Action::Controller(Box::new(controller(false))));
    let paused = Flow::at(0, 5)
        .when(Match::any().with(Field::InPort, 2u32))
        .then(Action::Controller(Box::new(controller(true))))
        .then(Action::Output(Port(1)));
    client.done(&flow_mod(&plain));
    client.done(&flow_mod(&paused));

    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    OVS.inject("pk1", &frame).unwrap();
    let Message::PacketIn2(packet) = client.wait(|_, m| matches!(m, Message::PacketIn2(_))) else { panic!() };
    assert_eq!((packet.in_port(), packet.metadata.exact(Field::Reg1)), (Some(Port(1)), Some(7)));
    assert_eq!((packet.cookie, packet.table, packet.reason), (Some(0x99), Some(0), Some(Reason::Action)));
    assert_eq!((&packet.packet, &packet.userdata[..]), (&frame, &[1, 2, 3][..]));

    let out = PacketOut::new(Port::CONTROLLER, vec![Action::Output(Port(2))], frame.clone());
    client.done(&Message::PacketOut(out));
    assert_eq!(OVS.wait_captured("pk2", 1).unwrap(), [frame.clone()]);

    frame[0] = 0x02;
    OVS.inject("pk2", &frame).unwrap();
    let Message::PacketIn2(packet) = client.wait(|_, m| matches!(m, Message::PacketIn2(_))) else { panic!() };
    assert!(packet.continuation.is_some());
    assert_eq!(OVS.captured("pk1").unwrap().len(), 0, "it waits");
    client.done(&Message::Resume(Box::new(packet.into_resume())));
    assert_eq!(OVS.wait_captured("pk1", 1).unwrap(), [frame]);

    client.done(&Message::SetPacketInFormat(PacketInFormat::Standard));
    OVS.inject("pk1", &[0; 60]).unwrap();
    let Message::PacketIn(packet) = client.wait(|_, m| matches!(m, Message::PacketIn(_))) else { panic!() };
    assert_eq!((packet.in_port(), packet.cookie, packet.total_len), (Some(Port(1)), 0x99, 60));
}

#[test]
fn a_monitor_reports_changes_of_other_controllers() {
    let mut client = listener("changes");
    let mut other = Client::connect(&OVS, "changes");
    let there = flow("table=1,priority=5,ip,cookie=3,actions=drop");
    other.done(&flow_mod(&there));

    let mut updates = client.parts(MultipartRequest::FlowMonitor(vec![MonitorRequest::all(7)]));
    let expected = MonitorUpdate::Flow { event: FlowEvent::Initial, reason: 0, flow: there };
    assert_eq!(updates.pop(), Some(ReplyBody::FlowMonitor(vec![expected])));

    let added = flow("table=2,priority=6,arp,send_flow_rem,actions=output:1");
    other.done(&flow_mod(&added));
    let mut updates = || {
        let unasked = |xid, message: &Message| xid == 0 && matches!(message, Message::MultipartReply(_));
        match client.wait(unasked) {
            Message::MultipartReply(MultipartReply { body: ReplyBody::FlowMonitor(updates), .. }) => updates,
            other => panic!("{other}"),
        }
    };
    // Updates do not tell flags.
    let without_flags = Flow { flags: FlowFlags::empty(), ..added.clone() };
    assert_eq!(updates(), [MonitorUpdate::Flow { event: FlowEvent::Added, reason: 0, flow: without_flags.clone() }]);
    other.done(&Message::FlowMod(Box::new(FlowMod::delete_strict(&added))));
    assert_eq!(updates(), [MonitorUpdate::Flow { event: FlowEvent::Removed, reason: 2, flow: without_flags.clone() }]);

    let Message::FlowRemoved(removed) = client.wait(|_, m| matches!(m, Message::FlowRemoved(_))) else { panic!() };
    assert_eq!((removed.reason, removed.flow), (2, Flow { actions: vec![], ..without_flags }));

    let own = client.send(&flow_mod(&flow("table=3,actions=drop")));
    let reply = client.wait(|xid, m| xid == 0 && matches!(m, Message::MultipartReply(_)));
    let body = ReplyBody::FlowMonitor(vec![MonitorUpdate::Abbreviated { xid: own }]);
    assert_eq!(reply, Message::MultipartReply(MultipartReply { more: false, body }));

    OVS.add_port("changes", "ch1", 1).unwrap();
    let Message::PortStatus(status) = client.wait(|_, m| matches!(m, Message::PortStatus(_))) else { panic!() };
    assert_eq!((status.reason, status.desc.port, status.desc.name.as_str()), (PortReason::Add, Port(1), "ch1"));
}
