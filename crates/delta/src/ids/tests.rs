use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn a_key_keeps_its_id() {
    let mut ids = Ids::new(1..=1000, 32);
    let web = ids.assign(&"web").unwrap();
    assert_ne!(ids.assign(&"db").unwrap(), web);
    assert_eq!(ids.assign(&"web"), Ok(web));
    assert_eq!((ids.get(&"web"), ids.key(web)), (Some(web), Some(&"web")));
    // Another process assigns the same.
    assert_eq!(Ids::new(1..=1000, 32).assign(&"web"), Ok(web));
}

#[test]
fn an_id_retires_before_another_key_gets_it() {
    let mut ids = Ids::new(5..=5, 32);
    assert_eq!(ids.assign(&1u32), Ok(5));
    assert_eq!(ids.release(&1), Some(5));
    assert_eq!((ids.get(&1), ids.release(&1)), (None, None));
    assert_eq!(ids.assign(&2).unwrap_err().to_string(), "all ids from 5 to 5 are in use");
    assert_eq!(ids.assign(&1), Ok(5), "but the same key may have it back");
    assert!(!ids.retired(5), "and then it is not retiring");
    ids.release(&1);
    assert_eq!(ids.retiring().collect::<Vec<_>>(), [5]);
    assert!(ids.retired(5));
    assert_eq!(ids.assign(&2), Ok(5));
}

#[test]
fn ids_in_the_switch_are_kept_for_their_keys() {
    let mut ids = Ids::new(1..=2, 32);
    let print = ids.fingerprint(&"old");
    assert_eq!(ids.adopt(2, print), Adopted::Kept);
    assert_eq!(ids.adopt(2, print), Adopted::Kept);
    assert_eq!(ids.adopt(3, print), Adopted::OutOfRange);
    assert_eq!(ids.assign(&"new"), Ok(1));
    assert!(ids.assign(&"newer").is_err());
    assert_eq!(ids.assign(&"old"), Ok(2));
    assert_eq!((ids.adopt(2, print), ids.adopt(2, print ^ 1)), (Adopted::Kept, Adopted::Clash));
    ids.forget_unclaimed();
    assert_eq!(ids.get(&"old"), Some(2));
}

#[test]
fn an_ambiguous_id_is_not_assigned() {
    let mut ids = Ids::new(1..=4, 32);
    let (a, b) = (ids.fingerprint(&"a"), ids.fingerprint(&"b"));
    // Two ids for one key, two keys for one id, and an id without a key.
    assert_eq!((ids.adopt(1, a), ids.adopt(2, a)), (Adopted::Kept, Adopted::Ambiguous));
    assert_eq!((ids.adopt(3, b), ids.adopt(3, b ^ 1)), (Adopted::Kept, Adopted::Ambiguous));
    ids.reserve(4);
    assert!(ids.assign(&"a").is_err() && ids.assign(&"b").is_err() && ids.assign(&"c").is_err());
    ids.forget_unclaimed();
    assert!(ids.assign(&"a").is_ok() && ids.assign(&"b").is_ok() && ids.assign(&"c").is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u8),
    Release(u8),
    Retired(u32),
    Adopt(u32, u8),
    Reserve(u32),
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..24u8).prop_map(Step::Assign),
        3 => (0..24u8).prop_map(Step::Release),
        2 => (1..17u32).prop_map(Step::Retired),
        2 => (1..17u32, 0..24u8).prop_map(|(id, key)| Step::Adopt(id, key)),
        1 => (1..17u32).prop_map(Step::Reserve),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    #[test]
    fn an_id_never_has_two_meanings(steps in vec(step(), 0..80)) {
        let mut ids = Ids::new(1..=16, 64);
        // The key of each id in the switch; `None` if unknown.
        let mut in_use: BTreeMap<u32, Option<u8>> = BTreeMap::new();
        let mut live: BTreeMap<u8, u32> = BTreeMap::new();
        let mut retiring = BTreeSet::new();
        for step in steps {
            match step {
                Step::Assign(key) => match ids.assign(&key) {
                    Ok(id) => {
                        prop_assert!(in_use.get(&id).is_none_or(|holder| *holder == Some(key)), "{} to {}", id, key);
                        prop_assert!(live.get(&key).is_none_or(|known| *known == id));
                        in_use.insert(id, Some(key));
                        live.insert(key, id);
                        retiring.remove(&id);
                    }
                    Err(_) => prop_assert_eq!(in_use.len(), 16),
                },
                Step::Release(key) => {
                    let id = live.remove(&key);
                    prop_assert_eq!(ids.release(&key), id);
                    retiring.extend(id);
                }
                Step::Retired(id) => {
                    let was_retiring = retiring.remove(&id);
                    prop_assert_eq!(ids.retired(id), was_retiring);
                    if was_retiring {
                        in_use.remove(&id);
                    }
                }
                Step::Adopt(id, key) => match ids.adopt(id, key.stable_hash()) {
                    Adopted::Kept => drop(in_use.insert(id, Some(key))),
                    Adopted::Ambiguous => {
                        // No key may get it, and none of those that cannot be distinguished.
                        let known = in_use.iter().filter(|(other, holder)| {
                            **holder == Some(key) && !live.values().any(|id| id == *other) && !retiring.contains(*other)
                        });
                        for other in known.map(|(other, _)| *other).collect::<Vec<_>>() {
                            in_use.insert(other, None);
                        }
                        in_use.insert(id, None);
                    }
                    Adopted::Clash => prop_assert!(in_use.contains_key(&id)),
                    Adopted::OutOfRange => unreachable!(),
                },
                Step::Reserve(id) => {
                    ids.reserve(id);
                    if !live.values().any(|known| *known == id) && !retiring.contains(&id) {
                        in_use.insert(id, None);
                    }
                }
                Step::Forget => {
                    ids.forget_unclaimed();
                    in_use.retain(|id, _| live.values().any(|known| known == id) || retiring.contains(id));
                }
            }
            prop_assert_eq!(live.values().collect::<BTreeSet<_>>().len(), live.len());
        }
    }

    #[test]
    fn a_restart_changes_no_id(first in vec(0..200u64, 0..60), gone in vec(0..200u64, 0..20), order in any::<u64>()) {
        let mut ids = Ids::new(100..=170, 48);
        for key in &first {
            prop_assert!(ids.assign(key).is_ok());
        }
        for key in &gone {
            if let Some(id) = ids.release(key) {
                ids.retired(id);
            }
        }
        let before: BTreeMap<u64, u32> = first.iter().filter_map(|key| Some((*key, ids.get(key)?))).collect();
        let mut again = Ids::new(100..=170, 48);
        for (key, id) in &before {
            prop_assert_eq!(again.adopt(*id, ids.fingerprint(key)), Adopted::Kept);
        }
        // In another order, with new keys in between.
        let mut keys: Vec<u64> = before.keys().copied().chain(300..310).collect();
        keys.sort_by_key(|key| (key ^ order).stable_hash());
        for key in keys {
            let id = again.assign(&key).unwrap();
            prop_assert!(before.get(&key).is_none_or(|known| *known == id));
        }
    }
}
