use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use types::meta::{LabelRequirement, LabelSelector};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    AddLabels(Labels),
    AddSelector(Selector),
    DropLabels(usize),
    DropSelector(usize),
}

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

const KEYS: &[&str] = &["app", "tier", "odd,key"];
const VALUES: &[&str] = &["", "a", "b", "c"];

fn selector() -> impl Strategy<Value = Selector> {
    let requirement = (text(KEYS), text(&["In", "NotIn", "Exists", "DoesNotExist"]), vec(text(VALUES), 1..3)).prop_map(
        |(key, operator, values)| {
            let values = if operator.ends_with("In") { values } else { vec![] };
            LabelRequirement { key, operator, values }
        },
    );
    let written = (btree_map(text(KEYS), text(VALUES), 0..2), vec(requirement, 0..3));
    written.prop_map(|(match_labels, match_expressions)| {
        Selector::new(&LabelSelector { match_labels, match_expressions }).unwrap()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => btree_map(text(KEYS), text(VALUES), 0..3).prop_map(Step::AddLabels),
        3 => selector().prop_map(Step::AddSelector),
        2 => any::<usize>().prop_map(Step::DropLabels),
        2 => any::<usize>().prop_map(Step::DropSelector),
    ]
}

proptest! {
    #[test]
    fn an_index_knows_all_matches_and_removes_unused_entries(steps in vec(step(), 1..60)) {
        let mut index = Index::default();
        let mut sets: Vec<(LabelsId, Labels)> = vec![];
        let mut selectors: Vec<(SelectorId, Selector)> = vec![];
        for step in steps {
            match step {
                Step::AddLabels(labels) => sets.push((index.acquire_labels(&labels), labels)),
                Step::AddSelector(selector) => selectors.push((index.acquire_selector(&selector), selector)),
                Step::DropLabels(n) if !sets.is_empty() => {
                    index.release_labels(sets.swap_remove(n % sets.len()).0);
                }
                Step::DropSelector(n) if !selectors.is_empty() => {
                    index.release_selector(selectors.swap_remove(n % selectors.len()).0);
                }
                Step::DropLabels(_) | Step::DropSelector(_) => {}
            }
            for (labels_id, labels) in &sets {
                for (selector_id, selector) in &selectors {
                    let expected = selector.selects(labels);
                    prop_assert_eq!(index.selectors_of(*labels_id).contains(*selector_id), expected);
                    prop_assert_eq!(index.sets_of(*selector_id).contains(*labels_id), expected);
                }
            }
            let distinct: std::collections::BTreeSet<&Labels> = sets.iter().map(|(_, labels)| labels).collect();
            prop_assert_eq!(index.len().0, distinct.len());
        }
        sets.into_iter().for_each(|(id, _)| index.release_labels(id));
        selectors.into_iter().for_each(|(id, _)| index.release_selector(id));
        prop_assert!(index.is_empty());
        prop_assert!(index.set_ids.is_empty() && index.selector_ids.is_empty());
    }
}
