use super::*;

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 10349))
}

fn discovery(count: u8) -> Discovery {
    Discovery { is_synced: true, is_deployed: true, has_snapshot: false, addresses: (1..=count).map(address).collect() }
}

fn seconds(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

/// The link after `discovered`, and the first attempt.
fn connecting(count: u8) -> (ControllerLink, SocketAddr) {
    let mut link = ControllerLink::new("node-1");
    let mut effects = Vec::new();
    link.discovered(seconds(0), discovery(count), &mut effects);
    let [Effect::Connect { attempt: 1, address }] = effects[..] else { panic!("{effects:?}") };
    (link, address)
}

#[test]
fn every_node_tries_every_replica_and_nodes_are_spread_evenly() {
    let addresses = discovery(3).addresses;
    let mut firsts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for node in 0..300 {
        let order: Vec<SocketAddr> = in_order(&addresses, &format!("node-{node}")).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, addresses);
        *firsts.entry(order[0]).or_default() += 1;
    }
    assert!(firsts.len() == 3 && firsts.values().all(|count| (60..140).contains(count)), "{firsts:?}");
    assert_eq!(in_order(&[], "a").count(), 0);
}

#[test]
fn all_replicas_are_tried_before_a_pause() {
    let (mut link, first) = connecting(2);
    let mut effects = Vec::new();
    link.disconnected(seconds(1), "refused".to_owned(), &mut effects);
    let Some(Effect::Connect { attempt: 2, address: second }) = effects.last() else { panic!("{effects:?}") };
    assert_ne!(*second, first);
    effects.clear();
    link.disconnected(seconds(2), "refused".to_owned(), &mut effects);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Connect { .. })), "{effects:?}");
    let until = link.wake_at(true, false, None).unwrap();
    assert!(until > seconds(2) && until <= seconds(3), "{until:?}");
    link.advance(until, &mut effects);
    assert_eq!(effects.last(), Some(&Effect::Connect { attempt: 3, address: first }));
}

#[test]
fn a_stream_that_lasted_is_replaced_at_once_and_one_that_broke_soon_after_a_pause() {
    for (lasted, reconnects) in [(11, true), (1, false)] {
        let (mut link, _) = connecting(1);
        let mut effects = Vec::new();
        link.connected(seconds(1), &mut effects);
        assert_eq!(link.connected_to(), Some(address(1)));
        link.disconnected(seconds(1 + lasted), "closed".to_owned(), &mut effects);
        let connects = effects.iter().any(|effect| matches!(effect, Effect::Connect { .. }));
        assert_eq!(connects, reconnects, "{effects:?}");
    }
}

#[test]
fn a_replica_that_is_no_longer_ready_is_left_for_another() {
    let (mut link, first) = connecting(2);
    let mut effects = Vec::new();
    link.connected(seconds(1), &mut effects);
    let remaining: Vec<_> = discovery(2).addresses.into_iter().filter(|address| *address != first).collect();
    link.discovered(seconds(20), Discovery { addresses: remaining.clone(), ..discovery(0) }, &mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Disconnect(_))), "{effects:?}");
    assert!(matches!(effects.last(), Some(Effect::Connect { address, .. }) if *address == remaining[0]), "{effects:?}");
    assert!(!link.is_current(1), "batches of the old stream are ignored");
    // If no replica is ready, the stream is as good as any.
    let (mut link, _) = connecting(1);
    link.connected(seconds(1), &mut effects);
    effects.clear();
    link.discovered(seconds(2), discovery(0), &mut effects);
    assert_eq!((effects, link.connected_to()), (Vec::new(), Some(address(1))));
}

#[test]
fn a_report_is_sent_once_on_each_stream() {
    let (mut link, _) = connecting(1);
    let report = |generation| Report { generation, ..Report::default() };
    assert!(!link.reports(seconds(1), 1), "there is no stream");
    link.connected(seconds(1), &mut Vec::new());
    assert!(link.reports(seconds(1), 1));
    assert_eq!(link.news(seconds(1), 1, vec![report(1)]), [report(1)]);
    assert!(!link.reports(seconds(1), 2), "too soon after the last report");
    assert_eq!(link.wake_at(true, false, Some(2)), Some(seconds(1) + REPORT_INTERVAL));
    assert!(link.reports(seconds(2), 2) && !link.reports(seconds(2), 1));
    assert_eq!(link.news(seconds(2), 2, vec![report(1)]), []);
    assert_eq!(link.news(seconds(3), 3, vec![report(2)]), [report(2)]);
    link.disconnected(seconds(20), "closed".to_owned(), &mut Vec::new());
    link.connected(seconds(21), &mut Vec::new());
    assert_eq!(link.news(seconds(21), 3, vec![report(2)]), [report(2)]);
}

#[test]
fn pods_are_evaluated_locally_a_second_into_an_outage_and_then_with_growing_pauses() {
    let (mut link, _) = connecting(1);
    let pod = ObjectName { namespace: "shop".to_owned(), name: "web".to_owned() };
    assert!(!link.evaluates(Duration::from_millis(999)) && link.evaluates(seconds(1)));
    link.begin_evaluation([pod.clone()].into());
    assert!(!link.evaluates(seconds(2)), "the answer is outstanding");
    link.evaluated(seconds(2), &pod);
    assert!(!link.evaluates(seconds(2)) && link.evaluates(seconds(3)));
    link.connected(seconds(3), &mut Vec::new());
    assert!(!link.evaluates(seconds(30)), "there is a controller");
    link.disconnected(seconds(30), "closed".to_owned(), &mut Vec::new());
    assert!(!link.evaluates(seconds(30)) && link.evaluates(seconds(31)));
}

#[test]
fn the_snapshot_on_disk_is_read_once_and_only_if_no_policies_arrive() {
    let mut link = ControllerLink::new("node-1");
    assert_eq!(link.wake_at(false, false, None), Some(RESTORE_AFTER));
    assert_eq!(link.wake_at(true, false, None), None);
    assert!(!link.restores(seconds(1)));
    assert!(link.restores(seconds(2)) && !link.restores(seconds(3)));
}
