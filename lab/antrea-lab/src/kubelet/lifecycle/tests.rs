use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn slot(name: &str) -> Slot {
    Slot::new(name, false, false, false)
}

fn init(name: &str) -> Slot {
    Slot::new(name, true, false, false)
}

fn connected(policy: Restart, slots: Vec<Slot>) -> (Lifecycle, Vec<Effect>) {
    let mut life = Lifecycle::new(policy, slots);
    assert_eq!(life.step(at(0), Event::Tick), [Effect::Connect]);
    let effects = life.step(at(0), Event::Connected);
    (life, effects)
}

#[test]
fn nothing_starts_before_the_network_and_init_containers_run_one_by_one() {
    let mut life = Lifecycle::new(Restart::Always, vec![init("a"), init("b"), slot("c"), slot("d")]);
    assert_eq!(life.step(at(0), Event::Tick), [Effect::Connect]);
    assert_eq!(life.step(at(0), Event::Tick), []);
    assert_eq!(life.step(at(0), Event::Connected), [Effect::Start(0)]);
    assert_eq!(life.step(at(0), Event::Started(0)), []);
    assert_eq!(life.step(at(1), Event::Exited { slot: 0, code: 0 }), [Effect::Start(1)]);
    life.step(at(1), Event::Started(1));
    assert_eq!((life.phase(), life.is_initialized()), ("Pending", false));
    assert_eq!(life.step(at(2), Event::Exited { slot: 1, code: 0 }), [Effect::Start(2), Effect::Start(3)]);
    life.step(at(2), Event::Started(2));
    assert_eq!(life.phase(), "Pending");
    life.step(at(2), Event::Started(3));
    assert_eq!((life.phase(), life.is_ready()), ("Running", true));
}

#[test]
fn a_network_that_fails_is_asked_again_after_longer_and_longer_pauses() {
    let mut life = Lifecycle::new(Restart::Always, vec![slot("a")]);
    life.step(at(0), Event::Tick);
    assert_eq!(life.step(at(0), Event::NotConnected("no".into())), []);
    assert_eq!(life.wake_at(), Some(at(1)));
    assert_eq!(life.step(at(1), Event::Tick), [Effect::Connect]);
    life.step(at(1), Event::NotConnected("no".into()));
    assert_eq!(life.wake_at(), Some(at(3)));
    assert_eq!(life.step(at(2), Event::Delete), [Effect::Forget]);
}

#[test]
fn a_container_that_crashes_is_restarted_with_back_off_and_counted() {
    let (mut life, effects) = connected(Restart::Always, vec![slot("a")]);
    assert_eq!(effects, [Effect::Start(0)]);
    for (round, pause) in [(0, 1), (1, 2), (2, 4)] {
        let now = i64::from(round) * 10;
        life.step(at(now), Event::Started(0));
        assert_eq!(life.step(at(now), Event::Exited { slot: 0, code: 1 }), []);
        assert_eq!((life.wake_at(), life.phase()), (Some(at(now + pause)), "Running"));
        assert_eq!(life.slots[0].restarts, round);
        assert_eq!(life.step(at(now + pause), Event::Tick), [Effect::Start(0)]);
    }
    life.step(at(100), Event::Started(0));
    life.step(at(1000), Event::Exited { slot: 0, code: 1 });
    assert_eq!(life.wake_at(), Some(at(1001)));
}

#[test]
fn the_policy_decides_whether_an_end_is_the_end() {
    for (policy, code, phase) in [
        (Restart::Always, 0, "Running"),
        (Restart::OnFailure, 0, "Succeeded"),
        (Restart::OnFailure, 1, "Running"),
        (Restart::Never, 0, "Succeeded"),
        (Restart::Never, 7, "Failed"),
    ] {
        let (mut life, _) = connected(policy, vec![slot("a")]);
        life.step(at(0), Event::Started(0));
        let effects = life.step(at(1), Event::Exited { slot: 0, code });
        assert_eq!(life.phase(), phase, "{policy:?} {code}");
        assert_eq!(effects.contains(&Effect::Disconnect), phase != "Running", "{policy:?} {code}");
    }
}

#[test]
fn a_failed_init_container_fails_a_pod_that_is_never_restarted() {
    let (mut life, _) = connected(Restart::Never, vec![init("a"), slot("b")]);
    life.step(at(0), Event::Started(0));
    assert_eq!(life.step(at(1), Event::Exited { slot: 0, code: 1 }), [Effect::Disconnect]);
    assert_eq!(life.phase(), "Failed");
}

#[test]
fn probes_make_ready_and_unready_and_stop_once() {
    let (mut life, _) = connected(Restart::Always, vec![Slot::new("a", false, true, true)]);
    let probed = |probe, passed| Event::Probed { slot: 0, probe, passed };
    life.step(at(0), Event::Started(0));
    life.step(at(0), probed(Probe::Readiness, true));
    assert!(!life.is_ready(), "not before it has started up");
    life.step(at(0), probed(Probe::Startup, true));
    assert!(!life.is_ready());
    life.step(at(0), probed(Probe::Readiness, true));
    assert!(life.is_ready());
    life.step(at(0), probed(Probe::Readiness, false));
    assert!(!life.is_ready());
    assert_eq!(life.step(at(0), probed(Probe::Liveness, false)), [Effect::Stop(0)]);
    assert_eq!(life.step(at(0), probed(Probe::Liveness, false)), []);
    life.step(at(1), Event::Exited { slot: 0, code: 137 });
    assert_eq!(life.step(at(2), Event::Tick), [Effect::Start(0)]);
}

#[test]
fn a_deleted_pod_is_stopped_then_disconnected_then_forgotten_once() {
    let (mut life, _) = connected(Restart::Always, vec![slot("a"), slot("b")]);
    life.step(at(0), Event::Started(0));
    assert_eq!(life.step(at(1), Event::Delete), [Effect::Stop(0)]);
    // It was being started when the Pod was deleted.
    assert_eq!(life.step(at(1), Event::Started(1)), [Effect::Stop(1)]);
    assert_eq!(life.step(at(2), Event::Exited { slot: 0, code: 143 }), []);
    assert_eq!(life.step(at(2), Event::Exited { slot: 1, code: 143 }), [Effect::Disconnect]);
    assert_eq!(life.step(at(2), Event::NotDisconnected("no".into())), []);
    assert_eq!(life.step(at(3), Event::Tick), [Effect::Disconnect]);
    assert_eq!(life.step(at(3), Event::Disconnected), [Effect::Forget]);
    assert_eq!(life.step(at(4), Event::Delete), []);
}

#[test]
fn a_container_that_cannot_start_keeps_the_pod_pending() {
    let mut blocked = slot("a");
    blocked.state = State::Blocked { reason: "ErrImageNeverPull".into(), message: "no".into() };
    let (mut life, effects) = connected(Restart::Always, vec![blocked]);
    assert_eq!((effects, life.phase()), (vec![], "Pending"));
    assert_eq!(life.step(at(1), Event::Delete), [Effect::Disconnect]);
}
