//! Tests of nodes that admins move to other pools, with what is stopped and granted meanwhile, over restarts and
//! hellos.

use alloc::vec;

use sluice_common::pool::PolicySpec;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::NodeChange;
use crate::input::Desired;
use crate::model::node::Node;
use crate::output::{Answer, Refusal};

fn to(pool: &str) -> NodeChange {
    NodeChange::Move {
        pool: pool.parse().unwrap(),
        reason: Some("for the night".into()),
        deadline: None,
    }
}

/// Makes two pools, and a host of 2 GPUs in the first.
fn two_pools() -> Harness {
    let mut harness = Harness::one_node(2, 8);
    harness.put_pool("other");
    harness.put_policy("other", "s", PolicySpec::default());
    harness
}

fn here(harness: &Harness) -> Node {
    harness.core.state().node(&node("n")).unwrap().clone()
}

fn result_of(effects: &InputEffects) -> Result<(), Refusal> {
    match &effects.answers[..] {
        [Answer::Changed(answer)] => answer.clone(),
        other => panic!("{other:?}"),
    }
}

fn firm(gpus: u64) -> StepSpec {
    StepSpec {
        preemptible: false,
        ..spec(gpus, 0)
    }
}

#[test]
fn an_empty_node_moves_at_once_and_its_units_are_the_other_pool_s() {
    let mut harness = two_pools();
    harness
        .submit("there", in_pool(spec(1, 0), "other"))
        .unwrap();
    assert_eq!(harness.state("there"), StepState::Queued);
    result_of(&harness.change("n", to("other"))).unwrap();
    let now = here(&harness);
    assert_eq!((now.pool.as_str(), now.cordon.clone()), ("other", None));
    assert_eq!(now.configured_pool().as_str(), "default");
    assert_eq!(harness.state("there"), StepState::Allocated);
    harness
        .submit("here", in_pool(spec(1, 0), "default"))
        .unwrap();
    assert_eq!(
        harness.state("here"),
        StepState::Queued,
        "it has no host now"
    );
    // Repeating the request changes nothing.
    let seq = harness.core.state().seq();
    result_of(&harness.change("n", to("other"))).unwrap();
    assert_eq!(harness.core.state().seq(), seq);
}

#[test]
fn what_runs_is_drained_first_and_nobody_is_granted_anything_meanwhile() {
    let mut harness = two_pools();
    let reserved = [amount("gpu", 1)];
    let policy = PolicySpec {
        reserved: reserved.into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", policy);
    harness
        .submit("stays", in_pool(firm(1), "default"))
        .unwrap();
    harness
        .submit("goes", in_pool(spec(1, 0), "default"))
        .unwrap();
    harness.run("stays.1");
    harness.run("goes.1");
    result_of(&harness.change("n", to("other"))).unwrap();
    assert_eq!(harness.state("goes"), StepState::Stopping);
    assert_eq!(harness.state("stays"), StepState::Running);
    harness
        .submit("waits", in_pool(spec(1, 0), "other"))
        .unwrap();
    harness.status("n", "goes.1", gone(Exit::Code(143), StopReason::Drained));
    assert_eq!(harness.state("waits"), StepState::Queued);
    assert_eq!(here(&harness).pool.as_str(), "default");
    // The move survives restarts of the coordinator and of the agent.
    harness.restart(3);
    let held = status("stays.1", running());
    harness.hello(holding(hello("n", 2, 8), vec![held]));
    assert_eq!(here(&harness).moves_to().unwrap().as_str(), "other");
    harness.status("n", "stays.1", released(Exit::Code(0)));
    assert_eq!(here(&harness).pool.as_str(), "other");
    assert_eq!(harness.state("waits"), StepState::Allocated);
    assert_eq!(harness.state("goes"), StepState::Queued);
}

#[test]
fn a_move_wins_over_the_config_until_both_say_the_same() {
    let mut harness = two_pools();
    harness.change("n", to("other"));
    harness.restart(2);
    harness.hello(hello("n", 2, 8));
    let now = here(&harness);
    assert_eq!(now.pool.as_str(), "other");
    assert_eq!(now.pool_of_config.as_ref().unwrap().as_str(), "default");
    let mut hello = hello("n", 2, 8);
    hello.pool = "other".parse().unwrap();
    harness.hello(hello);
    assert_eq!(here(&harness).pool_of_config, None);
    // Moved back to the first pool, which the config no longer names.
    harness.change("n", to("default"));
    let now = here(&harness);
    assert_eq!(now.pool.as_str(), "default");
    assert_eq!(now.configured_pool().as_str(), "other");
}

#[test]
fn it_stays_where_it_is_opened_meanwhile_and_stays_closed_where_it_was() {
    let mut harness = two_pools();
    harness.submit("runs", firm(0)).unwrap();
    harness.run("runs.1");
    harness.change("n", to("other"));
    assert!(here(&harness).cordon.unwrap().drain.is_some());
    harness.change("n", NodeChange::Uncordon);
    harness.status("n", "runs.1", released(Exit::Code(0)));
    let now = here(&harness);
    assert_eq!((now.pool.as_str(), now.cordon), ("default", None));
    // A move to the current pool cancels the move.
    harness.submit("runs-too", firm(0)).unwrap();
    harness.run("runs-too.1");
    harness.change("n", to("other"));
    result_of(&harness.change("n", to("default"))).unwrap();
    assert_eq!(here(&harness).cordon, None);
    harness.status("n", "runs-too.1", released(Exit::Code(0)));
    // A node that was cordoned before stays cordoned in the new pool.
    let reason = Some("fans".into());
    harness.change("n", NodeChange::Cordon { reason });
    harness.change("n", to("other"));
    let now = here(&harness);
    assert_eq!(now.pool.as_str(), "other");
    assert!(now.cordon.is_some());
}

#[test]
fn a_pool_that_is_not_there_is_refused_and_one_that_is_moved_to_is_not_deleted() {
    let mut harness = two_pools();
    let refused = result_of(&harness.change("n", to("nowhere"))).unwrap_err();
    assert!(matches!(refused, Refusal::UnknownPool { .. }), "{refused}");
    harness.submit("runs", firm(0)).unwrap();
    harness.run("runs.1");
    harness.change("n", to("other"));
    let pool = "other".parse().unwrap();
    let effects = harness.apply(vec![Desired::NoPool { pool }]);
    let refused = match &effects.answers[..] {
        [Answer::Applied(Err(refused))] => refused.refusal.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, Refusal::PoolHasNodes { .. }), "{refused}");
}
