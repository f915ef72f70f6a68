use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(name: &str, round: u64) -> Value {
    json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}, "round": round})
}

fn group_resource() -> Arc<str> {
    "/things".into()
}

fn names(page: &Page) -> Vec<(String, u64)> {
    page.objects.iter().map(|(key, object)| (key.to_string(), object.value()["round"].as_u64().unwrap())).collect()
}

#[test]
fn a_write_succeeds_only_if_its_precondition_holds() {
    let (store, group_resource) = (Store::new(10), group_resource());
    let first = store.put(&group_resource, "a", &mut object("a", 0), Expect::Absent).unwrap();
    assert_eq!(store.put(&group_resource, "a", &mut object("a", 1), Expect::Absent).unwrap_err(), Unexpected);
    store.put(&group_resource, "a", &mut object("a", 1), Expect::Revision(first.revision)).unwrap();
    assert_eq!(
        store.put(&group_resource, "a", &mut object("a", 2), Expect::Revision(first.revision)).unwrap_err(),
        Unexpected
    );
    assert_eq!(store.remove(&group_resource, "a", &mut object("a", 1), first.revision).unwrap_err(), Unexpected);
}

#[test]
fn kind_and_version_come_first_and_the_object_is_a_slice_of_its_event() {
    let (store, group_resource) = (Store::new(10), group_resource());
    let stored = store.put(&group_resource, "a", &mut object("a", 0), Expect::Absent).unwrap();
    let (events, _) = store.since(&group_resource, stored.revision - 1, 10).unwrap();
    let line = String::from_utf8(events[0].frame.to_vec()).unwrap();
    assert!(line.starts_with(r#"{"type":"ADDED","object":{"kind":"K","apiVersion":"v1","metadata""#), "{line}");
    assert!(events[0].frame.as_ptr_range().contains(&stored.bytes.as_ptr()));
}

#[test]
fn an_expired_watch_gets_the_oldest_revision_of_the_history() {
    let (store, group_resource) = (Store::new(2), group_resource());
    for round in 0..4 {
        store.put(&group_resource, &format!("a{round}"), &mut object("a", round), Expect::Absent).unwrap();
    }
    assert_eq!(store.since(&group_resource, 1, 10).unwrap_err(), Compacted { oldest: 3 });
    assert_eq!(store.since(&group_resource, 3, 10).unwrap().0.len(), 2);
    store.compact();
    assert_eq!(store.since(&group_resource, 4, 10).unwrap_err(), Compacted { oldest: 5 });
}

#[test]
fn a_watch_resumes_when_only_other_resources_were_compacted() {
    let (store, quiet, busy) = (Store::new(10), group_resource(), Arc::from("/others"));
    let start = store.put(&quiet, "a", &mut object("a", 0), Expect::Absent).unwrap().revision;
    for round in 0..5 {
        store.put(&busy, &format!("b{round}"), &mut object("b", round), Expect::Absent).unwrap();
    }
    store.compact();
    store.put(&quiet, "b", &mut object("b", 1), Expect::Absent).unwrap();
    assert_eq!(store.since(&quiet, start, 10).unwrap().0.len(), 1);
    assert!(store.since(&busy, start, 10).is_err());
    store.drop_resource(&quiet);
    assert!(store.since(&quiet, start, 10).is_err(), "what comes back is another thing");
}

#[test]
fn the_history_of_large_objects_is_shorter() {
    let (store, group_resource) = (Store::bounded(1000, 4096), group_resource());
    let start = store.revision();
    for round in 0..6 {
        let mut large = object("a", round);
        large["data"] = "x".repeat(1000).into();
        store.put(&group_resource, &format!("a{round}"), &mut large, Expect::Absent).unwrap();
    }
    assert!(store.since(&group_resource, start, 10).is_err());
    assert_eq!(store.since(&group_resource, start + 3, 10).unwrap().0.len(), 3);
}

#[test]
fn a_page_has_the_number_of_remaining_objects() {
    let (store, group_resource) = (Store::new(10), group_resource());
    for round in 0..5 {
        store.put(&group_resource, &format!("a{round}"), &mut object("a", round), Expect::Absent).unwrap();
    }
    for at in [None, Some(store.revision() - 1)] {
        let page = store.page(&group_resource, "a", "a0", at, 2).unwrap();
        assert_eq!(names(&page), [("a1".into(), 1), ("a2".into(), 2)]);
        assert_eq!(page.left, if at.is_none() { 2 } else { 1 });
    }
}

proptest! {
    #[test]
    fn a_list_at_a_revision_has_the_objects_of_that_time(steps in prop::collection::vec((0..5u8, prop::bool::ANY), 1..40)) {
        let (store, group_resource) = (Store::new(1000), group_resource());
        let mut past = vec![(store.revision(), vec![])];
        for (round, (name, delete)) in steps.into_iter().enumerate() {
            let (key, round) = (format!("n/{name}"), round as u64);
            match (store.get(&group_resource, &key), delete) {
                (Some(now), true) => drop(store.remove(&group_resource, &key, &mut now.value(), now.revision).unwrap()),
                (None, true) => {}
                (now, false) => {
                    let on = now.map_or(Expect::Absent, |now| Expect::Revision(now.revision));
                    store.put(&group_resource, &key, &mut object(&key, round), on).unwrap();
                }
            }
            past.push((store.revision(), names(&store.list(&group_resource, "n/", "", None).unwrap())));
        }
        for (revision, then) in past {
            prop_assert_eq!(names(&store.list(&group_resource, "n/", "", Some(revision)).unwrap()), then);
        }
    }
}
