//! Tests of which step starts where and on which GPUs, and of the reasons of the others.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::{MCPU, MGPU, STEP_RUN};
use sluice_common::id::PoolName;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::{FromNode, StopReason, ToNode};

use super::harness::*;

#[test]
fn an_assignment_says_all_that_the_host_needs() {
    let mut harness = Harness::new();
    harness.submit("a", spec(2, 1000)).unwrap();
    let effects = harness.hello(hello("n", 3, 4));
    let [ToNode::Assign(assignment)] = &effects.sent[..] else {
        panic!("{effects:?}");
    };
    let spec = spec(2, 1000);
    assert_eq!(assignment.attempt, attempt("a.1"));
    assert_eq!(assignment.gpus, ["GPU-n-0", "GPU-n-1"]);
    assert_eq!(
        (&assignment.command, &assignment.env),
        (&spec.command, &spec.env)
    );
    assert_eq!(
        (assignment.timeout, assignment.grace),
        (spec.timeout, spec.grace)
    );
}

#[test]
fn one_that_takes_the_head_s_turn_is_nominated_in_its_place() {
    let mut harness = Harness::one_node(4, 8);
    let policy = |priority| PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "low", policy(0));
    harness.put_policy("default", "high", policy(10));
    let of = |subject: &str, gpus| StepSpec {
        subject: subject.parse().unwrap(),
        ..spec(gpus, 0)
    };
    harness.submit("busy", of("high", 3)).unwrap();
    harness.run("busy.1");
    harness.cancel("busy");
    harness.submit("first", of("low", 4)).unwrap();
    harness.submit("small", of("low", 1)).unwrap();
    let nominated = |harness: &Harness, id| {
        let scheduler = harness.core.state().scheduler();
        scheduler.nomination(&step(id)).is_some()
    };
    assert!(nominated(&harness, "first"), "it awaits what `busy` frees");
    assert_eq!(harness.state("small"), StepState::Queued);
    harness.submit("urgent", of("high", 4)).unwrap();
    assert!(!nominated(&harness, "first"));
    assert!(nominated(&harness, "urgent"));
    harness.status("n", "busy.1", released(Exit::Signal(15)));
    assert_eq!(harness.state("urgent"), StepState::Allocated);
}

#[test]
fn no_host_is_given_more_steps_than_it_may_hold() {
    let mut harness = Harness::one_node(0, 4);
    let names: Vec<String> = (0..=MAX_ATTEMPTS_PER_NODE)
        .map(|n| format!("s{n}"))
        .collect();
    harness.submit_all(names.iter().map(|id| (&**id, spec(0, 0))).collect());
    let held = harness.core.state().attempts_on(&node("n")).count();
    assert_eq!(held, MAX_ATTEMPTS_PER_NODE);
    let last = &names[MAX_ATTEMPTS_PER_NODE];
    let reason = harness.reason(last);
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    assert!(reason.message.contains("fewer than 4096"), "{reason:?}");
    harness.status("n", "s7.1", ended(Exit::Code(0)));
    assert_eq!(harness.state(last), StepState::Queued, "it is not gone yet");
    let effects = harness.status("n", "s7.1", released(Exit::Code(0)));
    assert_eq!(effects.orders, ["forget s7.1", "assign s4096.1"]);
}

#[test]
fn the_fullest_host_that_still_fits_is_chosen() {
    // Hosts, request, placement.
    let cases = [
        (
            vec![("b", 4, 8), ("a", 2, 8), ("c", 8, 8)],
            spec(2, 1000),
            "a",
        ),
        (
            vec![("a", 4, 8), ("b", 4, 4), ("c", 8, 2)],
            spec(1, 1000),
            "b",
        ),
        (vec![("b", 1, 4), ("a", 1, 4)], spec(1, 1000), "a"),
        (vec![("a", 0, 2), ("b", 8, 8)], spec(0, 3000), "b"),
        (
            vec![("a", 1, 2), ("b", 1, 4)],
            with_memory(spec(1, 1000), 3000),
            "b",
        ),
    ];
    for (hosts, spec, chosen) in cases {
        let mut harness = Harness::new();
        for (name, gpus, cpus) in &hosts {
            harness.hello(hello(name, *gpus, *cpus));
        }
        harness.submit("x", spec).unwrap();
        assert_eq!(harness.placed("x").0, chosen, "{hosts:?}");
    }
}

#[test]
fn gpus_are_given_lowest_index_first_and_never_twice() {
    let mut harness = Harness::new();
    let mut hello = hello("n", 4, 8);
    hello.inventory.gpus.reverse();
    harness.hello(hello);
    for id in ["a", "b", "c"] {
        harness.submit(id, spec(1, 1000)).unwrap();
    }
    let gpus: Vec<String> = ["a", "b", "c"]
        .map(|id| harness.placed(id).1.concat())
        .into();
    assert_eq!(gpus, ["GPU-n-0", "GPU-n-1", "GPU-n-2"]);
    harness.status("n", "b.1", released(Exit::Code(0)));
    harness.submit("d", spec(2, 1000)).unwrap();
    assert_eq!(harness.placed("d").1, ["GPU-n-1", "GPU-n-3"]);
}

#[test]
fn the_head_is_promised_a_place_and_what_ran_around_it_gives_way_when_it_can_start() {
    let mut harness = Harness::one_node(2, 8);
    harness.submit("running", spec(1, 1000)).unwrap();
    harness.submit("head", spec(2, 1000)).unwrap();
    assert_eq!(harness.code("head"), ReasonCode::WaitingForUnits);
    let detail = harness.reason("head").detail;
    assert_eq!(
        (&detail["asked"], &detail["free"]),
        (&Detail::from(2), &Detail::from(1))
    );
    let unlimited = StepSpec {
        timeout: None,
        ..spec(1, 1000)
    };
    harness.submit("around", unlimited).unwrap();
    assert_eq!(harness.state("around"), StepState::Allocated);
    harness.run("around.1");
    let effects = harness.status("n", "running.1", released(Exit::Code(0)));
    let types = effects.types();
    let (caught_up, decided) = types.split_at(5);
    assert_eq!(caught_up.last().unwrap(), "released");
    assert_eq!(decided, ["nominated", "stopping"]);
    assert_eq!(
        effects.orders,
        ["forget running.1", "stop around.1 Preempted 7s"]
    );
    assert_eq!(harness.code("head"), ReasonCode::WaitingForRelease);
    assert_eq!(harness.state("around"), StepState::Stopping);
    let effects = harness.status(
        "n",
        "around.1",
        gone(Exit::Signal(15), StopReason::Preempted),
    );
    assert_eq!(effects.orders, ["forget around.1", "assign head.1"]);
    assert_eq!(
        (harness.state("around"), harness.code("around")),
        (StepState::Queued, ReasonCode::Preempted)
    );
}

#[test]
fn what_could_not_be_made_to_give_way_waits_for_the_head() {
    let mut harness = Harness::one_node(2, 8);
    let gpus = [amount("gpu", 3)];
    let reserved = PolicySpec {
        reserved: gpus.into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", reserved);
    let firm = StepSpec {
        preemptible: false,
        timeout: None,
        ..spec(1, 1000)
    };
    harness.submit("running", firm.clone()).unwrap();
    harness.submit("head", spec(2, 1000)).unwrap();
    harness.submit("behind", firm).unwrap();
    assert_eq!(harness.code("behind"), ReasonCode::WaitingForTurn);
    assert_eq!(
        harness.reason("behind").detail["behind"],
        Detail::from("head")
    );
    let effects = harness.cancel("head");
    assert_eq!(effects.orders, ["assign behind.1"]);
}

#[test]
fn a_head_whose_host_is_away_holds_up_nobody() {
    let mut harness = Harness::one_node(2, 2);
    harness.hello(hello("big", 4, 4));
    harness.submit("a", spec(4, 1000)).unwrap();
    harness.submit("b", spec(4, 1000)).unwrap();
    harness.submit("c", spec(1, 500)).unwrap();
    assert_eq!(harness.state("c"), StepState::Allocated);
    let effects = harness.gone("big");
    assert_eq!(effects.types(), ["node_unreachable", "withdrawn"]);
    assert_eq!(harness.code("b"), ReasonCode::NoLiveHost);
    harness.submit("d", spec(1, 500)).unwrap();
    assert_eq!(harness.state("d"), StepState::Allocated);
}

#[test]
fn ended_is_seen_at_once_and_units_come_back_with_released() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.status("n", "a.1", ended(Exit::Code(0)));
    assert_eq!(effects.types(), ["ended", "step_ended"]);
    assert_eq!(harness.state("a"), StepState::Succeeded);
    assert_eq!(harness.state("b"), StepState::Queued);
    let effects = harness.status("n", "a.1", released(Exit::Code(0)));
    assert_eq!(effects.types(), ["released", "allocated"]);
    assert_eq!(effects.orders, ["forget a.1", "assign b.1"]);
}

#[test]
fn pools_do_not_wait_for_each_other() {
    let mut harness = Harness::new();
    harness.put_pool("other");
    let mut elsewhere = hello("m", 1, 4);
    elsewhere.pool = PoolName::new("other").unwrap();
    harness.hello(hello("n", 1, 4));
    harness.hello(elsewhere.clone());
    harness
        .submit("a", in_pool(spec(1, 1000), "default"))
        .unwrap();
    harness
        .submit("b", in_pool(spec(1, 1000), "default"))
        .unwrap();
    harness
        .submit("c", in_pool(spec(1, 1000), "other"))
        .unwrap();
    assert_eq!(harness.placed("c").0, "m");
    assert_eq!(harness.state("b"), StepState::Queued);
    // A node that moves to another pool takes its free resources with it.
    harness.status("m", "c.1", released(Exit::Code(0)));
    harness.moved_by_config(&elsewhere, "default");
    let effects = harness.hello(elsewhere);
    assert_eq!(effects.orders, ["assign b.1"]);
}

#[test]
fn a_node_that_leaves_a_pool_lets_those_go_on_who_waited_behind_one_for_it() {
    let mut harness = Harness::one_node(0, 1);
    harness.put_pool("other");
    let big = hello("big", 4, 4);
    harness.hello(big.clone());
    harness.submit("a", spec(4, 1000)).unwrap();
    harness.submit("b", spec(4, 1000)).unwrap();
    harness.submit("c", spec(0, 1000)).unwrap();
    harness.moved_by_config(&big, "other");
    let effects = harness.hello(big);
    assert_eq!(effects.orders, ["assign a.1"], "a.1 was not listed");
    assert_eq!(harness.state("c"), StepState::Allocated);
    assert_eq!(harness.code("b"), ReasonCode::ExceedsPoolCapacity);
}

#[test]
fn what_is_used_is_told_by_host_and_by_pool() {
    let mut harness = Harness::one_node(2, 8);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 500)).unwrap();
    let pool = PoolName::new("default").unwrap();
    let state = harness.core.state();
    let used = state.used_on(&node("n"));
    assert_eq!((used.get(MGPU), used.get(MCPU)), (2000, 1500));
    assert_eq!(state.used_of(&pool).get(STEP_RUN), 2);
    assert_eq!((state.running_in(&pool), state.queue_len(&pool)), (2, 0));
    assert_eq!(state.capacity_of(&pool).get(MCPU), 8000);
    assert_eq!(state.attempts_on(&node("n")).count(), 2);
}

#[test]
fn a_gpu_that_vanishes_while_granted_is_accounted_for() {
    let mut harness = Harness::one_node(3, 8);
    harness.submit("a", spec(2, 1000)).unwrap();
    harness.submit("b", spec(2, 1000)).unwrap();
    let mut shrunk = inventory("n", 3, 8);
    shrunk.gpus.remove(0);
    harness.say("n", FromNode::Inventory(Box::new(shrunk)));
    assert_eq!(harness.core.state().used_on(&node("n")).get(MGPU), 2000);
    // Only GPU 2 is free; GPU 1 is granted and GPU 0 is gone.
    harness.submit("c", spec(1, 1000)).unwrap();
    harness.cancel("b");
    assert_eq!(harness.placed("c").1, ["GPU-n-2"]);
    harness.say("n", FromNode::Inventory(Box::new(inventory("n", 0, 1))));
    harness.status("n", "a.1", released(Exit::Code(0)));
    harness.status("n", "c.1", released(Exit::Code(0)));
    assert!(harness.core.state().used_on(&node("n")).is_empty());
    harness.say("n", FromNode::Inventory(Box::new(inventory("n", 3, 8))));
    harness.submit("d", spec(3, 1000)).unwrap();
    assert_eq!(harness.placed("d").1.len(), 3);
}
