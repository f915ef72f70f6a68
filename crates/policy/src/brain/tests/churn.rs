//! Random churn: the incremental result equals the one computed from scratch.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::world::{Step, World, listing, step};
use crate::brain::{Brain, Event};

/// The number of short histories; `make policy-long` sets more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
}

/// The length of the long history; `make policy-long` sets more.
fn steps() -> usize {
    std::env::var("STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Everything is compared after this many steps.
const CHECK_EVERY: usize = 100;

proptest! {
    #![proptest_config(Config { cases: cases(), max_shrink_iters: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_step_of_a_short_history_equals_a_computation_from_scratch(steps in vec(step(), 1..50)) {
        let mut world = World::new();
        for step in steps {
            world.step(step).and_then(|()| world.check()).map_err(TestCaseError::fail)?;
        }
        world.end().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn accumulated_churn_equals_a_computation_from_scratch(steps in vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step).map_err(TestCaseError::fail)?;
        }
        world.check().and_then(|()| world.end()).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_recorded_history_replays_to_the_same_state(steps in vec(step(), 1..50)) {
        let (mut recorded, mut replayed) = (Brain::default(), Brain::default());
        for step in steps {
            let Step::Event(event) = step else { continue };
            let line = serde_json::to_string(&event).unwrap();
            let read: Event = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&read, &event, "{}", line);
            prop_assert_eq!(replayed.step(read), recorded.step(event));
        }
        prop_assert_eq!(listing(&replayed), listing(&recorded));
    }
}

#[test]
fn a_long_history_equals_a_computation_from_scratch() {
    let seed = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1u64);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let (strategy, mut world) = (step(), World::new());
    for n in 1..=steps() {
        let step = strategy.new_tree(&mut runner).unwrap().current();
        world.step(step).unwrap_or_else(|error| panic!("seed {seed}, step {n}: {error}"));
        if n % CHECK_EVERY == 0 {
            world.check().unwrap_or_else(|error| panic!("seed {seed}, after step {n}: {error}"));
        }
    }
    println!("{} steps, seed {seed}, {} batches to Nodes: no difference", steps(), world.batches);
    assert!(world.batches > 0);
    world.end().unwrap();
}
