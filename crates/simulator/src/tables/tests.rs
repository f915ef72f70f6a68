use openflow::flow::{FlowCommand, FlowMod};

use super::*;
use crate::fields::View;

fn tables(flows: &str) -> Tables {
    let mut tables = Tables::new();
    for flow in flows.lines().map(str::trim).filter(|line| !line.is_empty()) {
        tables.add(Time::ZERO, flow.parse().unwrap());
    }
    tables
}

fn view(packet: &str) -> View {
    View::of(&packet.parse().unwrap())
}

fn found(tables: &Tables, packet: &str) -> Option<(u64, Option<u32>, bool)> {
    let found = tables.lookup(0, &mut view(packet))?;
    Some((found.flow.cookie, found.conjunction, found.tie))
}

const WEB: &str = "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80";

#[test]
fn the_highest_priority_wins_whatever_its_match() {
    let tables = tables(
        "cookie=1,priority=10,in_port=1 actions=drop
         cookie=2,priority=30,ip,nw_src=10.0.0.0/8 actions=drop
         cookie=3,priority=20,tcp,tp_dst=80 actions=drop
         cookie=4,priority=40,udp actions=drop
         cookie=5,priority=0 actions=drop",
    );
    assert_eq!(found(&tables, WEB), Some((2, None, false)));
    assert_eq!(found(&tables, "in_port=2,tcp,tp_dst=80"), Some((3, None, false)));
    assert_eq!(found(&tables, "in_port=2,arp"), Some((5, None, false)));
}

#[test]
fn a_flow_with_the_same_key_replaces_the_first() {
    let tables = tables("cookie=1,priority=5,ip actions=drop\ncookie=2,priority=5,ip actions=output:1");
    assert_eq!(tables.len(), 1);
    assert_eq!(found(&tables, WEB), Some((2, None, false)));
}

#[test]
fn a_tie_is_reported_only_if_it_matters() {
    let flows = "cookie=1,priority=5,ip actions=drop\ncookie=2,priority=5,in_port=1 actions=";
    assert_eq!(found(&tables(&format!("{flows}output:1")), WEB), Some((1, None, true)));
    assert_eq!(found(&tables(&format!("{flows}drop")), WEB), Some((1, None, false)));
}

const CONJUNCTION: &str = "cookie=1,priority=200,ip,nw_src=10.0.0.1 actions=conjunction(7,1/3)
    cookie=2,priority=200,ip,nw_dst=10.0.0.2 actions=conjunction(7,2/3),conjunction(8,1/2)
    cookie=3,priority=200,tcp,tp_dst=80 actions=conjunction(7,3/3)
    cookie=4,priority=190,conj_id=7,ip actions=output:1
    cookie=5,priority=0 actions=drop
";

#[test]
fn a_conjunction_holds_when_all_its_clauses_do() {
    let tables = tables(CONJUNCTION);
    assert_eq!(found(&tables, WEB), Some((4, Some(7), false)));
    assert_eq!(found(&tables, &WEB.replace("tp_dst=80", "tp_dst=81")), Some((5, None, false)));
    assert_eq!(found(&tables, &WEB.replace("10.0.0.1", "10.0.0.9")), Some((5, None, false)));
}

#[test]
fn an_ordinary_flow_of_the_clauses_priority_beats_the_conjunction() {
    let above = format!("{CONJUNCTION}cookie=9,priority=200,in_port=1 actions=output:9");
    assert_eq!(found(&tables(&above), WEB), Some((9, None, false)));
    // Between the clauses and the flow of the conjunction, the highest ordinary flow wins.
    let between = format!("{CONJUNCTION}cookie=9,priority=195,in_port=1 actions=output:9");
    assert_eq!(found(&tables(&between), WEB), Some((9, Some(7), false)));
}

#[test]
fn a_flow_below_a_clause_matches_when_the_conjunction_does_not() {
    let flows = format!("{CONJUNCTION}cookie=9,priority=100,ip,nw_src=10.0.0.1 actions=output:9");
    assert_eq!(found(&tables(&flows), &WEB.replace("tp_dst=80", "tp_dst=81")), Some((9, None, false)));
}

#[test]
fn two_clauses_need_two_flows() {
    let flows = "priority=9,ip actions=conjunction(1,1/2),conjunction(1,2/2)\nconj_id=1,ip actions=drop";
    assert_eq!(found(&tables(flows), WEB), None);
}

#[test]
fn a_loose_delete_removes_all_flows_that_its_match_covers() {
    let mut tables = tables(
        "cookie=0x11,table=0,ip,nw_src=10.0.0.1 actions=drop
         cookie=0x12,table=0,ip,nw_src=10.0.0.0/24 actions=drop
         cookie=0x21,table=1,tcp,nw_src=10.0.0.1 actions=drop
         cookie=0x22,table=1,arp actions=drop",
    );
    let wanted: Flow = "ip,nw_src=10.0.0.1 actions=drop".parse().unwrap();
    let mut delete = FlowMod::new(FlowCommand::Delete, Flow { table: ALL_TABLES, ..wanted });
    tables.apply(Time::ZERO, &delete);
    let left = |tables: &Tables| tables.flows().map(|flow| flow.cookie).collect::<Vec<_>>();
    assert_eq!(left(&tables), [0x12, 0x22]);
    delete.flow = Flow { cookie: 0x20, ..Flow::at(ALL_TABLES, 0) };
    delete.cookie_mask = 0xf0;
    tables.apply(Time::ZERO, &delete);
    assert_eq!(left(&tables), [0x12]);
}

#[test]
fn a_flow_is_removed_after_its_timeout() {
    let mut tables = tables("cookie=1,hard_timeout=10,ip actions=drop\ncookie=2,idle_timeout=5,arp actions=drop");
    let seconds = Time::from_secs;
    assert!(tables.expire(seconds(4)).is_empty());
    let arp = tables.lookup(0, &mut view("arp")).unwrap().flow;
    tables.touch(seconds(4), &arp);
    assert!(tables.expire(seconds(8)).is_empty());
    assert_eq!(tables.expire(seconds(10)).iter().map(|flow| flow.cookie).collect::<Vec<_>>(), [1, 2]);
    assert!(tables.is_empty());
}

#[test]
fn learned_flows_are_removed_with_the_last_flow_that_learns_them() {
    let mut tables = tables(
        "table=1,priority=1,ip actions=learn(table=4,delete_learned,cookie=0x9,eth_type=0x800)
         table=1,priority=2,ip actions=learn(table=4,delete_learned,cookie=0x9,eth_type=0x800)
         table=4,cookie=0x9,ip actions=drop
         table=4,cookie=0x8,arp actions=drop",
    );
    let delete = |tables: &mut Tables, priority: u16| {
        let flow: Flow = format!("table=1,priority={priority},ip actions=drop").parse().unwrap();
        tables.apply(Time::ZERO, &FlowMod::delete_strict(&flow));
    };
    delete(&mut tables, 1);
    assert_eq!(tables.len(), 3);
    delete(&mut tables, 2);
    assert_eq!(tables.flows().map(|flow| flow.cookie).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_lookup_in_a_hundred_thousand_flows_is_fast() {
    let mut tables = Tables::new();
    for n in 0u32..100_000 {
        let source = std::net::Ipv4Addr::from(0x0a00_0000 + n);
        tables.add(Time::ZERO, format!("priority=10,ip,nw_src={source} actions=drop").parse().unwrap());
    }
    let mut view = view("tcp,nw_src=10.1.2.3");
    assert!((0..10_000).all(|_| tables.lookup(0, &mut view).is_some()));
}
