//! What `delta` wants sent, sent to a real switch: the decisions and the socket meet as they will in the agent.

use std::collections::BTreeMap;

use delta::{Failure, Observed, Rejected, State};
use openflow::flow::{Flow, FlowMod, FlowRequest};
use openflow::group::Group;
use openflow::message::Message;
use openflow::meter::{Meter, MeterId, MeterMod};
use openflow::multipart::{MultipartRequest, ReplyBody};
use ovs::switch::{BundleError, Switch};

use crate::switch::{connected, flows, groups};

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Tells the state what the switch holds; how many flows were not as they should be.
async fn resync(switch: &Switch, state: &mut State<u32>) -> usize {
    state.begin_resync();
    for part in switch.multipart(MultipartRequest::MeterConfig(MeterId::ALL)).await.unwrap() {
        let ReplyBody::MeterConfig(meters) = part else { panic!("not meters") };
        for meter in meters {
            state.observe_meter(meter);
        }
    }
    let mut listed = switch.dump_groups().await.unwrap();
    while let Some(group) = listed.next().await.unwrap() {
        state.observe_group(group);
    }
    let mut odd = 0;
    let mut listed = switch.dump_flows(FlowRequest::default()).await.unwrap();
    while let Some(entry) = listed.next().await.unwrap() {
        odd += usize::from(state.observe_flow(&entry.flow) != Observed::Same);
    }
    state.end_resync();
    odd
}

fn meter_mod(message: &delta::Message<'_>) -> Option<MeterMod> {
    match message {
        delta::Message::MeterAdd(meter) => Some(MeterMod::Add((*meter).clone())),
        delta::Message::MeterModify(meter) => Some(MeterMod::Modify((*meter).clone())),
        delta::Message::MeterDelete(id) => Some(MeterMod::Delete(*id)),
        _ => None,
    }
}

/// Sends what has to be sent until nothing has; how many messages that were.
async fn settle(switch: &Switch, state: &mut State<u32>) -> usize {
    let mut sent = 0;
    while let Some(patch) = state.patch() {
        let meters = |range| -> Vec<Message> {
            state.messages(&patch, range).filter_map(|message| meter_mod(&message)).map(Message::MeterMod).collect()
        };
        switch.apply(meters(patch.before())).await.unwrap();
        match switch.commit(state.messages(&patch, patch.bundle())).await {
            Ok(()) => {
                switch.apply(meters(patch.after())).await.unwrap();
                sent += patch.len();
                state.committed(patch);
            }
            Err(BundleError::Rejected { index, error }) => {
                let index = patch.bundle().start + index;
                state.failed(patch, Failure::Rejected(vec![Rejected { index, reason: error.to_string() }]));
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

async fn texts(switch: &Switch) -> Vec<String> {
    let mut texts: Vec<String> = flows(switch).await.iter().map(ToString::to_string).collect();
    texts.extend(groups(switch).await.iter().map(ToString::to_string));
    texts.sort();
    texts
}

const GROUP: &str =
    "group_id=5,type=select,selection_method=dp_hash,bucket=bucket_id:0,weight:100,actions=resubmit(,42)";
const TO_GROUP: &str = "table=41, priority=200,ip actions=group:5";
const METERED: &str = "table=0, priority=1,arp actions=meter:3,NORMAL";
const CLAUSE_1: &str = "table=90, priority=200,ip,nw_src=10.0.0.1 actions=conjunction(1,1/2)";
const CLAUSE_2: &str = "table=90, priority=200,ip,nw_src=10.0.0.1 actions=conjunction(2,1/2)";

#[tokio::test]
async fn what_is_wanted_comes_is_kept_and_goes() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::new(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_meters(&1, parsed::<Meter>(&["meter=3 pktps burst stats bands=type=drop rate=100 burst_size=50"]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, METERED, CLAUSE_1]));
    state.set_flows(&2, parsed::<Flow>(&[CLAUSE_2]));
    resync(&switch, &mut state).await;
    state.allow_sweep();
    assert_eq!(settle(&switch, &mut state).await, 5);
    let both = "table=90, priority=200,ip,nw_src=10.0.0.1 actions=conjunction(1,1/2),conjunction(2,1/2)";
    assert_eq!(texts(&switch).await, [GROUP, METERED, TO_GROUP, both]);

    // Nothing has changed: a new start finds everything as it should be, and sends nothing.
    assert_eq!(resync(&switch, &mut state).await, 0);
    assert_eq!(settle(&switch, &mut state).await, 0);

    // One of two owners of a shared flow goes, and the other's clause stays.
    state.remove(&1);
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, [CLAUSE_2]);
}

#[tokio::test]
async fn what_others_did_to_the_switch_is_undone() {
    let (ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::new(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, CLAUSE_1]));
    resync(&switch, &mut state).await;
    settle(&switch, &mut state).await;
    let wanted = texts(&switch).await;

    ovs.ofctl(["add-flow", "br0", "table=7,priority=3,ip,actions=clone(output:1)"]).unwrap();
    ovs.ofctl(["mod-flows", "br0", "table=90,actions=drop"]).unwrap();
    // Takes the flow that points to it along.
    ovs.ofctl(["del-groups", "br0"]).unwrap();
    assert_eq!(resync(&switch, &mut state).await, 2);
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await.len(), wanted.len() + 1, "what nobody wants stays until all have spoken");
    state.allow_sweep();
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, wanted);
}

#[tokio::test]
async fn a_flow_that_the_switch_refuses_is_reported_and_holds_nobody_back() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::new(|_| false);
    let refused = "table=10, priority=1,arp actions=dec_ttl";
    state.set_flows(&1, parsed::<Flow>(&[CLAUSE_1]));
    state.set_flows(&2, parsed::<Flow>(&[refused, METERED.replace("meter:3,", "").as_str()]));
    resync(&switch, &mut state).await;
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, ["table=0, priority=1,arp actions=NORMAL", CLAUSE_1]);
    let rejections: BTreeMap<String, String> =
        state.rejections().into_iter().map(|r| (r.subject.to_string(), r.reason.clone())).collect();
    assert!(rejections.values().next().unwrap().contains("OFPBAC_MATCH_INCONSISTENT"), "{rejections:?}");
    state.set_flows(&2, []);
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, [CLAUSE_1]);
    assert!(state.rejections().is_empty());
}

#[tokio::test]
async fn a_restart_of_the_switch_is_made_good_in_one_bundle() {
    let (ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::new(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, CLAUSE_1]));
    resync(&switch, &mut state).await;
    state.allow_sweep();
    settle(&switch, &mut state).await;
    let wanted = texts(&switch).await;
    ovs.kill_vswitchd().unwrap();
    ovs.start_vswitchd().unwrap();
    switch.status().wait_for(|s| matches!(s, ovs::switch::Status::Up { epoch: 2, .. })).await.unwrap();
    switch.commit([FlowMod::delete_all()]).await.unwrap();
    resync(&switch, &mut state).await;
    assert_eq!(settle(&switch, &mut state).await, 3);
    assert_eq!(texts(&switch).await, wanted);
}
