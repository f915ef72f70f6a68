//! Single cases, each with its expected messages.

use openflow::action::Action;
use openflow::flow::Flow;
use openflow::group::{Bucket, Group, GroupType};
use openflow::header::kind;
use openflow::meter::{Meter, MeterId};

use crate::model::{POISON, State, Switch, conclude, len, messages};
use crate::{Conflict, Failure, Observed, Rejected, Target};

fn flow(text: &str) -> Flow {
    text.parse().unwrap()
}

fn group(id: u32, actions: Vec<Action>) -> Group {
    let bucket = Bucket { weight: Some(1), actions, ..Bucket::default() };
    Group { id, kind: GroupType::Select, selection: None, buckets: vec![bucket], unknown: Vec::new() }
}

/// A state after the resync of an empty switch.
fn fresh() -> State {
    let mut state = State::with_meters(|_| false);
    Switch::default().resync(&mut state);
    state.allow_sweep();
    state
}

fn texts(switch: &Switch) -> Vec<String> {
    switch.flows.values().map(|flow| flow.to_string().replace(", ", ",")).collect()
}

/// Applies all stages; returns the kinds of the messages of each.
fn stages(state: &mut State, switch: &mut Switch) -> Vec<Vec<u8>> {
    let mut stages = Vec::new();
    while let Some(stage) = state.patch() {
        stages.push(messages(state, &stage).into_iter().map(|(kind, _)| kind).collect());
        let result = switch.apply(state, &stage);
        conclude(state, stage, result);
    }
    stages
}

#[test]
fn nothing_is_sent_before_a_resync() {
    let mut state = State::with_meters(|_| false);
    state.set_flows(&1, [flow("table=1 actions=drop")]);
    assert!(state.needs_resync() && state.patch().is_none());
    Switch::default().resync(&mut state);
    assert!(!state.needs_resync() && state.patch().is_some());
    assert!(state.patch().is_none(), "one patch at a time");
}

#[test]
fn clauses_of_several_owners_are_one_flow() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&2, [flow("cookie=0x2,table=1,priority=5,ip actions=conjunction(2,1/2)")]);
    state.set_flows(&1, [flow("cookie=0x1,table=1,priority=5,ip actions=conjunction(9,1/2),conjunction(2,1/2)")]);
    switch.converge(&mut state);
    let both = "cookie=0x1,table=1,priority=5,ip actions=conjunction(2,1/2),conjunction(9,1/2)";
    assert_eq!(texts(&switch), [both]);
    assert_eq!(state.conflicts(), []);
    // The smaller owner claims both clauses, so the flow stays the same without the other.
    state.remove(&2);
    assert!(state.patch().is_none());
    state.set_flows(&2, [flow("cookie=0x2,table=1,priority=5,ip actions=conjunction(2,1/2)")]);
    assert!(state.patch().is_none());
    state.remove(&1);
    switch.converge(&mut state);
    assert_eq!(texts(&switch), ["cookie=0x2,table=1,priority=5,ip actions=conjunction(2,1/2)"]);
    state.remove(&2);
    switch.converge(&mut state);
    assert_eq!(switch, Switch::default());
}

#[test]
fn equal_flows_are_shared_until_the_last_owner_goes() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("cookie=0x1,table=1,ip actions=NORMAL")]);
    state.set_flows(&2, [flow("cookie=0x2,table=1,ip actions=NORMAL")]);
    assert_eq!(switch.converge(&mut state), 1);
    assert_eq!(state.conflicts(), []);
    state.remove(&1);
    assert_eq!(switch.converge(&mut state), 1, "the cookie changes hands");
    assert_eq!(texts(&switch), ["cookie=0x2,table=1,ip actions=NORMAL"]);
    state.remove(&2);
    assert_eq!(switch.converge(&mut state), 1);
    assert_eq!(switch, Switch::default());
}

#[test]
fn a_conflict_is_reported_and_the_smallest_owner_wins() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&2, [flow("table=1,priority=7,ip actions=drop")]);
    state.set_flows(&3, [flow("table=1,priority=7,ip actions=conjunction(3,1/2)")]);
    state.set_flows(&1, [flow("table=1,priority=7,ip actions=conjunction(1,1/2)")]);
    state.set_groups(&1, [group(5, vec![])]);
    state.set_groups(&2, [group(5, vec![Action::DecTtl])]);
    switch.converge(&mut state);
    assert_eq!(texts(&switch), ["table=1,priority=7,ip actions=conjunction(1,1/2),conjunction(3,1/2)"]);
    let texts: Vec<_> = state.conflicts().iter().map(Conflict::to_string).collect();
    assert_eq!(
        texts,
        [
            "conflict on flow table=1,priority=7,ip: 1 and 2 want different contents; 1 is installed",
            "conflict on group 5: 1 and 2 want different contents; 1 is installed"
        ]
    );
    state.remove(&1);
    assert_eq!(state.conflicts().len(), 1);
    assert_eq!((state.conflicts()[0].winner, state.conflicts()[0].loser), (2, 3));
    state.remove(&3);
    assert_eq!(state.conflicts(), []);
}

#[test]
fn an_owner_can_contradict_itself() {
    let mut state = fresh();
    state.set_flows(&1, [flow("table=1,ip actions=drop"), flow("table=1,ip actions=NORMAL")]);
    assert_eq!((state.conflicts()[0].winner, state.conflicts()[0].loser), (1, 1));
    state.set_flows(&1, [flow("table=1,ip actions=drop"), flow("table=1,ip actions=drop")]);
    assert_eq!(state.conflicts(), []);
}

#[test]
fn only_what_changed_is_sent() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    let two = |a: &str| [flow("table=1,ip actions=drop"), flow(a)];
    state.set_flows(&1, two("table=2,ip actions=drop"));
    assert_eq!(switch.converge(&mut state), 2);
    state.set_flows(&1, two("table=2,ip actions=NORMAL"));
    assert_eq!(switch.converge(&mut state), 1);
    state.set_flows(&1, two("table=3,ip actions=NORMAL"));
    assert_eq!(switch.converge(&mut state), 2);
    state.set_flows(&1, two("table=3,ip actions=NORMAL"));
    assert_eq!(switch.converge(&mut state), 0);
    switch.resync(&mut state);
    assert_eq!(switch.converge(&mut state), 0);
}

#[test]
fn targets_are_installed_first_and_deleted_last() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=group:1"), flow("table=2,ip actions=meter:7")]);
    state.set_groups(&1, [group(1, vec![Action::Group(2)]), group(2, vec![])]);
    state.set_meters(&1, [Meter::drop_pktps(MeterId(7), 10, 10)]);
    let kinds = [kind::METER_MOD, kind::GROUP_MOD, kind::GROUP_MOD, kind::FLOW_MOD, kind::FLOW_MOD];
    assert_eq!(stages(&mut state, &mut switch), [&kinds[..1], &kinds[1..]]);

    state.remove(&1);
    let kinds = [kind::FLOW_MOD, kind::FLOW_MOD, kind::GROUP_MOD, kind::GROUP_MOD, kind::METER_MOD];
    assert_eq!(stages(&mut state, &mut switch), [&kinds[..4], &kinds[4..]]);
    assert_eq!(switch, Switch::default());
}

#[test]
fn a_group_stays_while_a_claimed_flow_points_at_it() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=group:1")]);
    state.set_groups(&2, [group(1, vec![])]);
    switch.converge(&mut state);
    state.remove(&2);
    assert_eq!(switch.converge(&mut state), 0);
    state.set_flows(&1, [flow("table=1,ip actions=drop")]);
    assert_eq!(switch.converge(&mut state), 2);
    assert!(switch.groups.is_empty() && switch.cascaded == 0);
}

#[test]
fn a_group_stays_while_the_flow_that_points_at_it_cannot_be_replaced() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=group:1")]);
    state.set_groups(&1, [group(1, vec![Action::Group(2)]), group(2, vec![])]);
    switch.converge(&mut state);
    let before = switch.clone();
    state.set_flows(&1, [flow(&format!("table=1,ip actions=output:{POISON}"))]);
    state.set_groups(&1, []);
    assert_eq!(switch.converge(&mut state), 3, "the bundle is tried once, with the groups' removal");
    assert_eq!(switch, before);
    switch.resync(&mut state);
    assert_eq!(switch.converge(&mut state), 0);
    // The same holds for a state that knows the old flow only from a resync.
    let mut state = fresh();
    switch.resync(&mut state);
    state.set_flows(&1, [flow(&format!("table=1,ip actions=output:{POISON}"))]);
    assert_eq!(switch.converge(&mut state), 3);
    assert_eq!(switch, before);
    state.remove(&1);
    assert_eq!(switch.converge(&mut state), 3);
    assert_eq!(switch, Switch::default());
}

#[test]
fn a_flow_waits_for_its_group_and_the_rest_does_not() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=group:1"), flow("table=1,arp actions=drop")]);
    switch.converge(&mut state);
    assert_eq!(texts(&switch), ["table=1,arp actions=drop"]);
    let waiting = state.waiting();
    assert_eq!((waiting.len(), waiting[0].target, &waiting[0].owners[..]), (1, Target::Group(1), &[1][..]));
    assert_eq!(waiting[0].to_string(), "flow table=1,priority=32768,ip waits for group 1, which does not exist");
    // Groups in a cycle are never installed, and are reported too.
    state.set_groups(&2, [group(1, vec![Action::Group(2)]), group(2, vec![Action::Group(1)])]);
    assert_eq!(switch.converge(&mut state), 0);
    assert_eq!(state.waiting().len(), 3);
    // Each once, also if its slot was freed and used again.
    state.set_groups(&2, []);
    state.set_groups(&2, [group(1, vec![Action::Group(2)]), group(2, vec![Action::Group(1)])]);
    assert_eq!(state.waiting().len(), 3);
    state.set_groups(&2, [group(1, vec![Action::Group(2)]), group(2, vec![])]);
    assert_eq!(state.waiting(), []);
    assert_eq!(switch.converge(&mut state), 3);
}

#[test]
fn leftovers_stay_until_sweeping_is_allowed() {
    let mut switch = Switch::default();
    let mut old = fresh();
    old.set_flows(&1, [flow("table=1,ip actions=group:1"), flow("table=2,ip actions=conjunction(1,1/2)")]);
    old.set_flows(&2, [flow("table=2,ip actions=conjunction(2,1/2)")]);
    old.set_groups(&1, [group(1, vec![])]);
    old.set_meters(&1, [Meter::drop_pktps(MeterId(7), 10, 10)]);
    switch.converge(&mut old);

    let mut state = State::with_meters(|_| false);
    switch.resync(&mut state);
    assert!(state.patch().is_none());
    // A claim on a clause leaves the other clauses alone, and new flows are installed at once.
    state.set_flows(&2, [flow("table=2,ip actions=conjunction(2,1/2)"), flow("table=3,ip actions=drop")]);
    assert_eq!(switch.converge(&mut state), 1);
    state.set_flows(&3, [flow("table=2,ip actions=conjunction(3,1/2)")]);
    assert_eq!(switch.converge(&mut state), 1);
    assert_eq!(texts(&switch)[1], "table=2,ip actions=conjunction(1,1/2),conjunction(2,1/2),conjunction(3,1/2)");
    // Flows that this state installed can be deleted.
    state.set_flows(&2, [flow("table=2,ip actions=conjunction(2,1/2)")]);
    assert_eq!(switch.converge(&mut state), 1);
    state.allow_sweep();
    assert_eq!(switch.converge(&mut state), 4);
    assert_eq!(texts(&switch), ["table=2,ip actions=conjunction(2,1/2),conjunction(3,1/2)"]);
    assert!(switch.groups.is_empty() && switch.meters.is_empty() && switch.cascaded == 0);
}

#[test]
fn a_clause_added_to_a_leftover_can_be_removed_again() {
    let mut leftovers = Switch::default();
    let mut old = fresh();
    old.set_flows(&1, [flow("table=2,ip actions=conjunction(1,1/2),conjunction(2,1/2)")]);
    leftovers.converge(&mut old);
    for lost in [false, true] {
        let (mut state, mut switch) = (State::with_meters(|_| false), leftovers.clone());
        switch.resync(&mut state);
        state.set_flows(&3, [flow("cookie=0x3,table=2,ip actions=conjunction(3,1/2)")]);
        assert_eq!(switch.converge(&mut state), 1);
        state.remove(&3);
        if lost {
            // After a resync the new clause cannot be distinguished from the leftover: all of them stay.
            switch.resync(&mut state);
            assert_eq!(switch.converge(&mut state), 0);
            assert!(texts(&switch)[0].ends_with("conjunction(1,1/2),conjunction(2,1/2),conjunction(3,1/2)"));
        } else {
            assert_eq!(switch.converge(&mut state), 1);
            assert_eq!(switch, leftovers);
        }
    }
}

#[test]
fn learned_flows_are_left_alone() {
    let mut state: State = State::with_meters(|flow| flow.table == 40 && flow.idle_timeout != 0);
    state.allow_sweep();
    state.begin_resync();
    assert_eq!(state.observe_flow(&flow("table=40,idle_timeout=10,ip actions=drop")), Observed::Learned);
    assert_eq!(state.observe_flow(&flow("table=40,ip actions=drop")), Observed::Unwanted);
    state.end_resync();
    assert_eq!(len(&state.patch().unwrap()), 1);
}

#[test]
fn foreign_flows_are_reported_and_replaced() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=drop")]);
    switch.converge(&mut state);
    let mut foreign = flow("table=1,ip actions=drop");
    foreign.actions.push(Action::Unknown(vec![0, 99, 0, 8, 0, 0, 0, 0]));
    state.begin_resync();
    assert_eq!(state.observe_flow(&foreign), Observed::Foreign);
    foreign.table = 2;
    assert_eq!(state.observe_flow(&foreign), Observed::Foreign);
    state.end_resync();
    let patch = state.patch().unwrap();
    assert_eq!(len(&patch), 2, "one is replaced, one is deleted");
}

#[test]
fn a_leftover_that_became_foreign_is_not_put_back() {
    let mut state: State = State::with_meters(|_| false);
    let mut leftover = flow("table=1,ip actions=drop");
    for observed in [Observed::Unwanted, Observed::Foreign] {
        state.begin_resync();
        assert_eq!(state.observe_flow(&leftover), observed);
        state.end_resync();
        assert!(state.patch().is_none());
        leftover.actions.push(Action::Unknown(vec![0, 99, 0, 8, 0, 0, 0, 0]));
    }
    state.allow_sweep();
    assert_eq!(len(&state.patch().unwrap()), 1);
}

#[test]
fn a_rejected_message_is_set_aside_and_the_rest_is_applied() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    let poison = format!("table=1,ip actions=output:{POISON}");
    state.set_flows(&1, [flow(&poison), flow("table=2,ip actions=drop"), flow("table=3,ip actions=group:1")]);
    let mut bad = group(1, vec![]);
    bad.buckets[0].weight = Some(POISON);
    state.set_groups(&2, [bad]);
    state.set_meters(&3, [Meter::drop_pktps(MeterId(1), POISON.into(), 1), Meter::drop_pktps(MeterId(2), 1, 1)]);
    switch.converge(&mut state);
    assert_eq!(texts(&switch), ["table=2,ip actions=drop"]);
    assert_eq!(switch.meters.keys().copied().collect::<Vec<_>>(), [2]);
    let rejections = state.rejections();
    let texts: Vec<_> = rejections.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "switch rejected flow table=1,priority=32768,ip: poison",
            "switch rejected group 1: poison",
            "switch rejected meter 1: poison"
        ]
    );
    assert_eq!(rejections.iter().map(|r| r.owners.clone()).collect::<Vec<_>>(), [[1], [2], [3]]);
    assert_eq!(state.waiting()[0].target, Target::Group(1));

    state.retry();
    assert_eq!(state.rejections(), []);
    switch.converge(&mut state);
    assert_eq!(state.rejections().len(), 3);

    state.set_groups(&2, [group(1, vec![])]);
    state.set_flows(&1, [flow("table=1,ip actions=drop"), flow("table=3,ip actions=group:1")]);
    state.remove(&3);
    switch.converge(&mut state);
    assert_eq!(state.rejections(), []);
    assert_eq!(switch.flows.len(), 2);
}

#[test]
fn objects_that_are_too_long_for_a_message_are_not_sent() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    for owner in 0..4200 {
        state.set_flows(&owner, [flow(&format!("table=1,ip actions=conjunction({owner},1/2)"))]);
    }
    state.set_groups(&1, [Group { buckets: vec![Bucket::default(); 9000], ..group(1, vec![]) }]);
    assert_eq!(switch.converge(&mut state), 0);
    let rejections = state.rejections();
    assert_eq!((rejections.len(), rejections[0].owners.len()), (2, 4200));
    assert_eq!(rejections[0].reason, "its message has 67264 bytes; OpenFlow allows 65511");
    for owner in 4000..4200 {
        state.remove(&owner);
    }
    assert_eq!(switch.converge(&mut state), 1);
}

#[test]
fn messages_of_a_patch_do_not_follow_later_claims() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=drop"), flow("table=2,ip actions=conjunction(1,1/2)")]);
    state.set_groups(&1, [group(1, vec![]), group(2, vec![])]);
    state.set_meters(&1, [Meter::drop_pktps(MeterId(1), 1, 1)]);
    let stage = state.patch().unwrap();
    let before = messages(&state, &stage);
    state.set_meters(&1, []);
    assert_eq!(messages(&state, &stage), before);
    switch.apply(&state, &stage).unwrap();
    conclude(&mut state, stage, Ok(()));
    assert_eq!(stages(&mut state, &mut switch).concat().first(), Some(&kind::METER_MOD));
    assert!(switch.meters.is_empty());

    state.set_flows(&1, [flow("table=1,ip actions=NORMAL"), flow("table=2,ip actions=conjunction(3,1/2)")]);
    state.set_groups(&1, [group(1, vec![]), group(3, vec![])]);
    let stage = state.patch().unwrap();
    let before = messages(&state, &stage);
    state.set_flows(&1, [flow("table=1,ip actions=drop")]);
    state.set_flows(&2, [flow("table=2,ip actions=conjunction(2,1/2)")]);
    state.set_groups(&1, [group(1, vec![Action::DecTtl])]);
    state.set_flows(&1, []);
    assert_eq!(messages(&state, &stage), before);
    switch.apply(&state, &stage).unwrap();
    conclude(&mut state, stage, Ok(()));
    switch.converge(&mut state);
    assert_eq!(texts(&switch), ["table=2,ip actions=conjunction(2,1/2)"]);
    assert_eq!(switch.groups.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_rejection_does_not_count_after_a_change_in_flight() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow(&format!("table=1,ip actions=output:{POISON}"))]);
    let patch = state.patch().unwrap();
    state.set_flows(&1, [flow("table=1,ip actions=drop")]);
    conclude(&mut state, patch, Err(Failure::Rejected(vec![Rejected { index: 0, reason: "poison".into() }])));
    assert_eq!(state.rejections(), []);
    assert_eq!(switch.converge(&mut state), 1);
}

#[test]
fn an_unknown_outcome_needs_a_resync_and_an_abandoned_patch_is_ignored() {
    let (mut state, mut switch) = (fresh(), Switch::default());
    state.set_flows(&1, [flow("table=1,ip actions=drop")]);
    let patch = state.patch().unwrap();
    conclude(&mut state, patch, Err(Failure::Unknown));
    assert!(state.needs_resync() && state.patch().is_none());
    switch.resync(&mut state);
    let abandoned = state.patch().unwrap();
    switch.resync(&mut state);
    assert!(messages(&state, &abandoned).is_empty());
    conclude(&mut state, abandoned, Ok(()));
    assert_eq!(switch.converge(&mut state), 1);
    state.remove(&1);
    let patch = state.patch().unwrap();
    conclude(&mut state, patch, Err(Failure::NotCommitted));
    assert_eq!(switch.converge(&mut state), 1);
    assert_eq!(switch, Switch::default());
}
