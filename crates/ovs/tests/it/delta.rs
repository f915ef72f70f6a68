//! Patches of `delta` sent to a real switch, as the agent does.

use std::collections::BTreeMap;

use delta::{Failure, Meters, Observed, Rejected, Stage, State};
use openflow::flow::{Flow, FlowMod, FlowRequest};
use openflow::group::Group;
use openflow::message::Message;
use openflow::meter::{Meter, MeterId};
use openflow::multipart::{MultipartRequest, ReplyBody};
use ovs::switch::{BundleError, Switch};

use crate::switch::{connected, flows, groups};

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Reports the objects of the switch to the state; returns the number of flows that are not as desired.
async fn resync(switch: &Switch, state: &mut State<u32, Meters>) -> usize {
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
    let mut differing = 0;
    let mut listed = switch.dump_flows(FlowRequest::default()).await.unwrap();
    while let Some(entry) = listed.next().await.unwrap() {
        differing += usize::from(state.observe_flow(&entry.flow) != Observed::Same);
    }
    state.end_resync();
    differing
}

/// Sends all that is due; returns the number of messages.
async fn settle(switch: &Switch, state: &mut State<u32, Meters>) -> usize {
    let mut sent = 0;
    while let Some(stage) = state.patch() {
        match stage {
            Stage::Meters(patch) => {
                switch.apply(state.meter_mods(&patch).map(Message::MeterMod).collect()).await.unwrap();
                sent += patch.len();
                state.meters_applied(patch);
            }
            Stage::Bundle(patch) => match switch.commit(state.messages(&patch)).await {
                Ok(()) => {
                    sent += patch.len();
                    state.committed(patch);
                }
                Err(BundleError::Rejected { index, error }) => {
                    state.failed(patch, Failure::Rejected(vec![Rejected { index, reason: error.to_string() }]));
                }
                Err(error) => panic!("{error}"),
            },
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
async fn objects_are_installed_kept_and_deleted() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::with_meters(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_meters(&1, parsed::<Meter>(&["meter=3 pktps burst stats bands=type=drop rate=100 burst_size=50"]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, METERED, CLAUSE_1]));
    state.set_flows(&2, parsed::<Flow>(&[CLAUSE_2]));
    resync(&switch, &mut state).await;
    state.allow_sweep();
    assert_eq!(settle(&switch, &mut state).await, 5);
    let both = "table=90, priority=200,ip,nw_src=10.0.0.1 actions=conjunction(1,1/2),conjunction(2,1/2)";
    assert_eq!(texts(&switch).await, [GROUP, METERED, TO_GROUP, both]);

    // Nothing has changed: a resync finds the desired objects, and sends nothing.
    assert_eq!(resync(&switch, &mut state).await, 0);
    assert_eq!(settle(&switch, &mut state).await, 0);

    // One of two owners of a shared flow is removed, and the other's clause stays.
    state.remove(&1);
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, [CLAUSE_2]);
}

#[tokio::test]
async fn changes_by_other_programs_are_undone() {
    let (ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::with_meters(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, CLAUSE_1]));
    resync(&switch, &mut state).await;
    settle(&switch, &mut state).await;
    let desired = texts(&switch).await;

    ovs.ofctl(["add-flow", "br0", "table=7,priority=3,ip,actions=clone(output:1)"]).unwrap();
    ovs.ofctl(["mod-flows", "br0", "table=90,actions=drop"]).unwrap();
    // The switch deletes the flow that points at it too.
    ovs.ofctl(["del-groups", "br0"]).unwrap();
    assert_eq!(resync(&switch, &mut state).await, 2);
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await.len(), desired.len() + 1, "an unclaimed flow stays until sweeping is allowed");
    state.allow_sweep();
    settle(&switch, &mut state).await;
    assert_eq!(texts(&switch).await, desired);
}

#[tokio::test]
async fn a_rejected_flow_is_reported_and_blocks_no_other() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::with_meters(|_| false);
    let rejected = "table=10, priority=1,arp actions=dec_ttl";
    state.set_flows(&1, parsed::<Flow>(&[CLAUSE_1]));
    state.set_flows(&2, parsed::<Flow>(&[rejected, METERED.replace("meter:3,", "").as_str()]));
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
async fn one_bundle_restores_a_restarted_switch() {
    let (ovs, switch, _events) = connected(|_| {}).await;
    let mut state = State::with_meters(|_| false);
    state.set_groups(&1, parsed::<Group>(&[GROUP]));
    state.set_flows(&1, parsed::<Flow>(&[TO_GROUP, CLAUSE_1]));
    resync(&switch, &mut state).await;
    state.allow_sweep();
    settle(&switch, &mut state).await;
    let desired = texts(&switch).await;
    ovs.kill_vswitchd().unwrap();
    ovs.start_vswitchd().unwrap();
    switch.status().wait_for(|s| matches!(s, ovs::switch::Status::Up { epoch: 2, .. })).await.unwrap();
    switch.commit([FlowMod::delete_all()]).await.unwrap();
    resync(&switch, &mut state).await;
    assert_eq!(settle(&switch, &mut state).await, 3);
    assert_eq!(texts(&switch).await, desired);
}
