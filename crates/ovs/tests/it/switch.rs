//! The OpenFlow client against ovs-vswitchd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use openflow::action::{Action, Controller};
use openflow::arbitrary;
use openflow::bundle::Bundled;
use openflow::flow::{Flow, FlowFlags, FlowMod, FlowRequest};
use openflow::group::{Group, GroupMod};
use openflow::matching::Match;
use openflow::message::Message;
use openflow::meter::{Meter, MeterId, MeterMod};
use openflow::multipart::{MultipartRequest, ReplyBody};
use openflow::port::Port;
use ovs::switch::{BundleError, Config, Event, Events, RequestError, Status, Switch};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use testkit::Ovs;
use testkit::wait::until;

/// A sandbox with a bridge, and a client of it.
pub(crate) async fn connected(configure: impl FnOnce(&mut Config)) -> (Ovs, Switch, Events) {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    let mut config = Config::new(ovs.mgmt_socket("br0"));
    configure(&mut config);
    let (switch, events) = Switch::start(config);
    switch.up().await.unwrap();
    (ovs, switch, events)
}

fn flow(text: &str) -> Flow {
    text.parse().unwrap()
}

pub(crate) async fn flows(switch: &Switch) -> Vec<Flow> {
    let mut dump = switch.dump_flows(FlowRequest::default()).await.unwrap();
    let mut flows = Vec::new();
    while let Some(entry) = dump.next().await.unwrap() {
        flows.push(entry.flow);
    }
    flows
}

pub(crate) async fn groups(switch: &Switch) -> Vec<Group> {
    let mut dump = switch.dump_groups().await.unwrap();
    let mut groups = Vec::new();
    while let Some(group) = dump.next().await.unwrap() {
        groups.push(group);
    }
    groups
}

/// A message of a bundle.
enum Change {
    Flow(FlowMod),
    Group(GroupMod),
    Nonsense,
}

impl Bundled for Change {
    fn kind(&self) -> u8 {
        match self {
            Change::Flow(change) => change.kind(),
            Change::Group(change) => change.kind(),
            Change::Nonsense => 14,
        }
    }
    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Change::Flow(change) => change.put_body(out),
            Change::Group(change) => change.put_body(out),
            Change::Nonsense => out.extend_from_slice(&[0xee; 60]),
        }
    }
}

fn add(text: &str) -> Change {
    Change::Flow(FlowMod::add(flow(text)))
}

#[tokio::test]
async fn replies_and_errors_reach_their_caller() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let bad = Message::Unknown { kind: 99, body: vec![1, 2, 3] };
    let (echo, bad, ports) = tokio::join!(
        switch.request(Message::EchoRequest(b"hello".to_vec())),
        switch.request(bad),
        switch.multipart(MultipartRequest::PortDesc(Port::ANY)),
    );
    assert_eq!(echo.unwrap(), Message::EchoReply(b"hello".to_vec()));
    let RequestError::Refused { index: 0, error } = bad.unwrap_err() else { panic!("not refused") };
    assert!(error.is("OFPBRC_BAD_TYPE"), "{error}");
    let ReplyBody::PortDesc(ports) = &ports.unwrap()[0] else { panic!("not ports") };
    assert_eq!(ports.iter().map(|p| p.port).collect::<Vec<_>>(), [Port::LOCAL]);
}

#[tokio::test]
async fn the_rejected_one_of_several_messages_is_named() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let meter = |id| Message::MeterMod(MeterMod::Add(Meter::drop_pktps(MeterId(id), 100, 50)));
    switch.apply(Vec::new()).await.unwrap();
    switch.apply(vec![meter(1), meter(2)]).await.unwrap();
    let error = switch.apply(vec![meter(3), meter(2), meter(4)]).await.unwrap_err();
    let RequestError::Refused { index: 1, error } = error else { panic!("{error}") };
    assert!(error.is("OFPMMFC_METER_EXISTS"), "{error}");
    let parts = switch.multipart(MultipartRequest::MeterConfig(MeterId::ALL)).await.unwrap();
    let ReplyBody::MeterConfig(meters) = &parts[0] else { panic!("not meters") };
    assert_eq!(meters.len(), 4);
}

#[tokio::test]
async fn a_bundle_is_applied_as_a_whole_or_not_at_all() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let group: Group =
        "group_id=7,type=select,selection_method=dp_hash,bucket=weight:100,actions=resubmit(,3)".parse().unwrap();
    let pointing = add("table=1, priority=5,ip actions=group:7");

    let early = switch.commit([&pointing]).await.unwrap_err();
    let BundleError::Rejected { index: 0, error } = &early else { panic!("{early}") };
    assert!(error.is("OFPBAC_BAD_OUT_GROUP"), "{error}");

    switch.commit([&Change::Group(GroupMod::Add(group.clone())), &pointing]).await.unwrap();
    let before = (flows(&switch).await, groups(&switch).await);
    assert_eq!(before, (vec![flow("table=1, priority=5,ip actions=group:7")], vec![group]));

    let other = add("table=2, priority=1,ip actions=drop");
    for refused in [add("table=2, priority=1,ip actions=group:8"), Change::Nonsense] {
        let error = switch.commit([&other, &other, &refused, &other]).await.unwrap_err();
        assert!(matches!(error, BundleError::Rejected { index: 2, .. }), "{error}");
        assert_eq!((flows(&switch).await, groups(&switch).await), before);
    }
    let overlap = "table=1, check_overlap, priority=5,tcp actions=drop";
    let error = switch.commit([&other, &add(overlap)]).await.unwrap_err();
    let BundleError::Rejected { index: 1, error } = &error else { panic!("{error}") };
    assert!(error.is("OFPFMFC_OVERLAP"), "{error}");
    assert_eq!((flows(&switch).await, groups(&switch).await), before);
}

#[tokio::test]
async fn a_message_too_long_for_openflow_is_named_and_nothing_is_changed() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let note = Action::note(vec![7; 60_000]);
    let long = FlowMod::add(Flow::at(1, 1).then(note.clone()).then(note));
    let error = switch.commit([&FlowMod::add(Flow::at(0, 0)), &long]).await.unwrap_err();
    assert!(matches!(error, BundleError::TooLong { index: 1, .. }), "{error}");
    assert_eq!(flows(&switch).await, []);
}

#[tokio::test]
async fn an_abandoned_bundle_leaves_nothing_behind() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let many =
        (0..200_000u32).map(|n| FlowMod::add(Flow::at(1, 1).when(Match::any().with(openflow::field::Field::Reg0, n))));
    let abandoned = tokio::time::timeout(Duration::from_millis(20), switch.commit(many)).await;
    assert!(abandoned.is_err(), "the bundle was committed before it could be abandoned");
    switch.commit([FlowMod::add(Flow::at(2, 2))]).await.unwrap();
    assert_eq!(flows(&switch).await, [Flow::at(2, 2)]);
}

#[tokio::test]
async fn asynchronous_messages_arrive_in_order() {
    let (ovs, switch, mut events) = connected(|_| {}).await;
    assert!(matches!(events.next().await, Some(Event::Up { epoch: 1, .. })));
    ovs.add_port("br0", "p1", 1).unwrap();
    let mut ports = Vec::new();
    // First the port is added, then its link goes up.
    while ports.len() < 2 {
        match events.next().await {
            Some(Event::Message(Message::PortStatus(status))) => ports.push(status.desc.port),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ports, [Port(1), Port(1)]);

    let userdata = vec![1, 2, 3, 4, 5];
    let controller = Controller { userdata: userdata.clone(), ..Controller::default() };
    let to_us = Flow::at(0, 1).cookie(0x77).then(Action::Controller(Box::new(controller)));
    switch.commit([FlowMod::add(to_us)]).await.unwrap();
    let packet = [[0x0a; 12].as_slice(), &[0x88, 0xb5], &[0; 50]].concat();
    ovs.inject("p1", &packet).unwrap();
    loop {
        match events.next().await {
            Some(Event::Message(Message::PacketIn2(seen))) => {
                assert_eq!((seen.packet, seen.userdata, seen.cookie), (packet, userdata, Some(0x77)));
                break;
            }
            Some(Event::Message(Message::PortStatus(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    ovs.kill_vswitchd().unwrap();
    loop {
        match events.next().await {
            Some(Event::Down { .. }) => break,
            Some(Event::Message(Message::PortStatus(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    ovs.start_vswitchd().unwrap();
    assert!(matches!(events.next().await, Some(Event::Up { epoch: 2, .. })));
}

#[tokio::test]
async fn the_client_waits_for_a_missing_bridge_and_names_it() {
    let ovs = Ovs::start().unwrap();
    let (switch, _events) = Switch::start(Config::new(ovs.mgmt_socket("br0")));
    let mut status = switch.status();
    status.wait_for(|s| matches!(s, Status::Waiting { .. })).await.unwrap();
    let error = switch.request(Message::BarrierRequest).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(error.to_string(), "not connected to ovs-vswitchd: No such file or directory (os error 2)");
    ovs.add_bridge("br0").unwrap();
    switch.up().await.unwrap();
    assert_eq!(switch.request(Message::BarrierRequest).await.unwrap(), Message::BarrierReply);
}

#[tokio::test]
async fn a_bridge_without_openflow15_gives_an_error_that_names_the_fix() {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br0").unwrap();
    ovs.vsctl(["set", "bridge", "br0", "protocols=OpenFlow10,OpenFlow13"]).unwrap();
    let (switch, _events) = Switch::start(Config::new(ovs.mgmt_socket("br0")));
    let mut status = switch.status();
    let waiting = status.wait_for(|s| matches!(s, Status::Waiting { .. })).await.unwrap().clone();
    let Status::Waiting { reason, .. } = waiting else { panic!("{waiting:?}") };
    assert!(reason.contains("set its column `protocols` to OpenFlow15"), "{reason}");
}

#[tokio::test]
async fn a_silent_switch_is_disconnected_and_connected_again() {
    let (ovs, switch, _events) = connected(|config| config.probe_interval = Duration::from_millis(100)).await;
    let pid = ovs.vswitchd_pid().unwrap().to_string();
    let signal = |name: &str| std::process::Command::new("kill").args([name, &pid]).status().unwrap();
    signal("-STOP");
    let mut status = switch.status();
    let left = status.wait_for(|s| matches!(s, Status::Waiting { .. } | Status::Connecting)).await.map(|s| s.clone());
    signal("-CONT");
    left.unwrap();
    let (epoch, _) = switch.up().await.unwrap();
    assert!(epoch > 1);
    // An idle connection is probed and stays.
    tokio::time::timeout(Duration::from_millis(500), status.wait_for(|s| !matches!(s, Status::Up { .. })))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_busy_agent_does_not_take_the_switch_for_silent() {
    const PROBE: Duration = Duration::from_millis(100);
    let (_ovs, switch, _events) = connected(|config| config.probe_interval = PROBE).await;
    let mut status = switch.status();
    for _ in 0..10 {
        // No task of this thread runs meanwhile, as on a machine without a free CPU.
        let end = Instant::now() + 4 * PROBE;
        until("the end of other work", 40 * PROBE, || (Instant::now() >= end).then_some(())).unwrap();
        let left = tokio::time::timeout(PROBE / 4, status.wait_for(|s| !matches!(s, Status::Up { .. }))).await;
        assert!(left.is_err(), "{left:?}");
    }
}

/// Arbitrary flows, one for each key, with timeouts that outlast the test.
fn some_flows(runner: &mut TestRunner, count: usize) -> BTreeMap<(u8, u16, String), Flow> {
    let flows = vec(arbitrary::flow(), count).new_tree(runner).unwrap().current();
    let stay = |seconds: u16| if seconds == 0 { 0 } else { seconds.max(600) };
    flows
        .into_iter()
        .map(|flow| Flow { idle_timeout: stay(flow.idle_timeout), hard_timeout: stay(flow.hard_timeout), ..flow })
        .map(|flow| ((flow.table, flow.priority, flow.matches.to_string()), flow))
        .collect()
}

fn some_groups(runner: &mut TestRunner, count: usize) -> BTreeMap<u32, Group> {
    let groups = vec(arbitrary::group(), count).new_tree(runner).unwrap().current();
    let needed = (1..=arbitrary::GROUPS).map(|id| Group::select(id, Vec::new()));
    groups.into_iter().chain(needed).map(|group| (group.id, group)).collect()
}

/// Sends arbitrary flows and groups in a bundle, and compares them with what the switch lists.
#[tokio::test]
async fn arbitrary_flows_and_groups_survive_the_switch() {
    const BATCH: u32 = 250;
    let cases: u32 = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let meters =
        (1..=arbitrary::METERS).map(|id| Message::MeterMod(MeterMod::Add(Meter::drop_pktps(MeterId(id), 9, 9))));
    switch.apply(meters.collect()).await.unwrap();
    let mut runner = TestRunner::default();
    for _ in 0..cases.div_ceil(BATCH) {
        let groups_sent = some_groups(&mut runner, 20);
        let flows_sent = some_flows(&mut runner, BATCH as usize);
        let delete =
            [Change::Flow(FlowMod::delete_all()), Change::Group(GroupMod::Delete(openflow::group::ALL_GROUPS))];
        let bundle = delete
            .into_iter()
            .chain(groups_sent.values().map(|group| Change::Group(GroupMod::Add(group.clone()))))
            .chain(flows_sent.values().map(|flow| Change::Flow(FlowMod::add(flow.clone()))));
        if let Err(error) = switch.commit(bundle).await {
            let BundleError::Rejected { index, .. } = error else { panic!("{error}") };
            let refused = index.checked_sub(2 + groups_sent.len()).and_then(|n| flows_sent.values().nth(n));
            panic!("{error}: {}", refused.map(ToString::to_string).unwrap_or_default());
        }
        let listed: BTreeMap<_, _> = groups(&switch).await.into_iter().map(|group| (group.id, group)).collect();
        assert_eq!(listed, groups_sent);
        let listed: BTreeMap<_, _> = flows(&switch)
            .await
            .into_iter()
            .map(|flow| Flow { flags: flow.flags & FlowFlags::KEPT, ..flow })
            .map(|flow| ((flow.table, flow.priority, flow.matches.to_string()), flow))
            .collect();
        for (key, sent) in &flows_sent {
            assert_eq!(listed.get(key), Some(sent), "sent {sent}");
        }
        assert_eq!(listed.len(), flows_sent.len());
    }
}
