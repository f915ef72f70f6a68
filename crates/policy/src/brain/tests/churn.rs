//! Random churn: what is computed step by step is what follows from the objects.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::world::{World, step};

/// How many short histories; the long run asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
}

/// How many steps of one long history; the long run asks for more.
fn steps() -> usize {
    std::env::var("STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// How often it is looked at everything.
const CHECK_EVERY: usize = 100;

proptest! {
    #![proptest_config(Config { cases: cases(), max_shrink_iters: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_step_of_a_short_history_leads_where_the_objects_lead(steps in vec(step(), 1..50)) {
        let mut world = World::new();
        for step in steps {
            world.step(step).and_then(|()| world.check()).map_err(TestCaseError::fail)?;
        }
        world.end().map_err(TestCaseError::fail)?;
    }

    #[test]
    fn changes_that_pile_up_lead_where_the_objects_lead(steps in vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step).map_err(TestCaseError::fail)?;
        }
        world.check().and_then(|()| world.end()).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_long_history_leads_where_the_objects_lead() {
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
