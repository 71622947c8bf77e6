//! Tests of suspending, resuming, holding and requeuing, record by record and order by order.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::{MEMORY_MB, MGPU};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason, SuspendFailure};

use super::harness::*;
use crate::{Answer, NodeChange, Refusal, StepAction};

/// Makes the step freeze when it is preempted.
fn freezing(mut spec: StepSpec) -> StepSpec {
    spec.on_preempt = OnPreempt::Suspend;
    spec
}

fn of(subject: &str, mut spec: StepSpec) -> StepSpec {
    spec.subject = subject.parse().unwrap();
    spec
}

fn suspended() -> AttemptPhase {
    let started = process();
    AttemptPhase::Suspended {
        started,
        moved_mb: 0,
    }
}

fn not_suspended(why: SuspendFailure) -> AttemptPhase {
    let started = process();
    AttemptPhase::NotSuspended { started, why }
}

/// Makes a host of four cores on which `a` of `low` runs and is being frozen for `b` of `high`.
fn giving_way() -> (Harness, InputEffects) {
    let mut harness = Harness::one_node(2, 4);
    harness.put_policy("default", "low", PolicySpec::default());
    let priority = 1;
    let high = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "high", high);
    let a = with_memory(freezing(of("low", spec(2, 3000))), 1000);
    harness.submit("a", a).unwrap();
    harness.run("a.1");
    harness
        .submit("b", of("high", with_memory(spec(1, 2000), 1000)))
        .unwrap();
    let effects = InputEffects::default();
    (harness, effects)
}

/// Does the same until `a` is frozen and `b` runs in its place.
fn given_way() -> Harness {
    let (mut harness, _) = giving_way();
    harness.status("n", "a.1", suspended());
    harness.status("n", "b.1", running());
    harness
}

/// Lets time pass in which the host is heard, and returns the orders.
fn live(harness: &mut Harness, secs: u64) -> Vec<String> {
    let mut orders = Vec::new();
    for _ in 0..secs / 5 {
        orders.extend(harness.pass(5).orders);
        orders.extend(harness.heartbeat("n").orders);
    }
    orders.extend(harness.pass(secs % 5).orders);
    orders
}

fn used(harness: &Harness) -> Vec<(String, u64)> {
    let used = harness.core.state().used_on(&node("n"));
    let keys = [MGPU, "mcpu", MEMORY_MB];
    keys.iter()
        .map(|key| (String::from(*key), used.get(key)))
        .collect()
}

fn amounts(gpu: u64, mcpu: u64, memory: u64) -> Vec<(String, u64)> {
    [(MGPU, gpu * 1000), ("mcpu", mcpu), (MEMORY_MB, memory)]
        .map(|(key, n)| (String::from(key), n))
        .into()
}

#[test]
fn a_victim_that_may_be_is_frozen_and_keeps_its_memory_alone() {
    let (mut harness, _) = giving_way();
    assert_eq!(harness.state("a"), StepState::Suspending);
    assert_eq!(harness.code("a"), ReasonCode::Suspended);
    // With memory for what may be moved from its GPUs, beside what is promised to the other.
    assert_eq!(used(&harness), amounts(2, 3000, 3000));
    let effects = harness.status("n", "a.1", suspended());
    assert_eq!(effects.types(), ["suspended", "allocated"]);
    assert_eq!(effects.orders, ["assign b.1"]);
    assert_eq!(used(&harness), amounts(1, 2000, 2000));
    assert_eq!(harness.state("a"), StepState::Suspended);
    let reason = harness.reason("a");
    assert_eq!(reason.code, ReasonCode::Suspended);
    assert!(reason.message.contains("starts in pool"), "{reason:?}");
    assert_eq!(
        harness.step("a").latest().unwrap().preempted_by,
        Some(step("b"))
    );
}

#[test]
fn it_goes_on_with_its_own_gpus_when_there_is_room_again() {
    let mut harness = given_way();
    let effects = harness.status("n", "b.1", released(Exit::Code(0)));
    assert!(
        effects.types().contains(&String::from("resuming")),
        "{effects:?}"
    );
    assert!(
        effects.orders.contains(&String::from("resume a.1")),
        "{effects:?}"
    );
    assert_eq!(harness.state("a"), StepState::Resuming);
    assert_eq!(used(&harness), amounts(2, 3000, 1000));
    let effects = harness.status("n", "a.1", running());
    assert_eq!(effects.types(), ["resumed"]);
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(
        harness.step("a").attempts.len(),
        1,
        "it is the same attempt"
    );
}

#[test]
fn its_own_gpus_are_given_last_and_waited_for_where_they_were_given_all_the_same() {
    let mut harness = Harness::one_node(3, 8);
    harness.submit("a", freezing(spec(1, 1000))).unwrap();
    harness.run("a.1");
    assert_eq!(harness.placed("a").1, ["GPU-n-0"]);
    harness.action("a", StepAction::Suspend);
    harness.status("n", "a.1", suspended());
    harness.submit("b", spec(2, 1000)).unwrap();
    assert_eq!(harness.placed("b").1, ["GPU-n-1", "GPU-n-2"]);
    harness.submit("c", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("c").1, ["GPU-n-0"], "better than none");
    harness.status("n", "b.1", released(Exit::Code(0)));
    harness.action("a", StepAction::Resume);
    assert_eq!(
        harness.state("a"),
        StepState::Suspended,
        "others are free, its own is not"
    );
    let reason = harness.reason("a");
    assert!(reason.message.contains("1 gpu, and `n`"), "{reason:?}");
    harness.status("n", "c.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Resuming);
}

#[test]
fn a_frozen_step_at_the_head_is_promised_its_place() {
    let mut harness = given_way();
    let effects = harness.submit("c", of("low", spec(1, 100)));
    assert!(effects.is_ok());
    let promised: Vec<_> = harness.core.state().promised().collect();
    assert_eq!(promised, [&step("a")], "`c` starts around it");
    assert_eq!(harness.state("c"), StepState::Allocated);
    harness.status("n", "c.1", released(Exit::Code(0)));
    harness.status("n", "b.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Resuming);
    assert_eq!(harness.core.state().promised().count(), 0);
}

#[test]
fn one_that_is_being_brought_back_gives_way_again() {
    let mut harness = given_way();
    harness.status("n", "b.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Resuming);
    let c = of("high", with_memory(spec(1, 2000), 1000));
    harness.submit("c", c).unwrap();
    assert_eq!(harness.state("a"), StepState::Suspending);
    // The report is older than the order to resume: the GPUs of the attempt are not free.
    let effects = harness.status("n", "a.1", suspended());
    assert_eq!(effects.types(), Vec::<String>::new());
    harness.status("n", "a.1", AttemptPhase::Resuming(process()));
    assert_eq!(harness.state("a"), StepState::Suspending);
    let effects = harness.status("n", "a.1", suspended());
    assert_eq!(effects.types(), ["suspended", "allocated"]);
    assert_eq!(effects.orders, ["assign c.1"]);
    assert_eq!(
        harness.step("a").attempts.len(),
        1,
        "it is the same attempt"
    );
}

#[test]
fn what_cannot_be_frozen_is_stopped_and_says_so() {
    let (mut harness, _) = giving_way();
    let effects = harness.status("n", "a.1", not_suspended(SuspendFailure::NoFreezer));
    assert_eq!(effects.types(), ["not_suspended", "stopping"]);
    assert_eq!(effects.orders, ["stop a.1 NotSuspended 7s"]);
    assert_eq!(
        harness.state("b"),
        StepState::Queued,
        "its place is not free yet"
    );
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::NotSuspended));
    assert_eq!(harness.state("b"), StepState::Allocated);
    let reason = harness.reason("a");
    assert_eq!(
        (harness.state("a"), reason.code),
        (StepState::Queued, ReasonCode::NotSuspended)
    );
    assert!(reason.message.contains("no way to freeze"), "{reason:?}");
}

#[test]
fn a_frozen_step_that_cannot_be_brought_back_starts_anew() {
    let mut harness = given_way();
    harness.status("n", "b.1", released(Exit::Code(0)));
    let why = SuspendFailure::NotResumed(String::from("no luck"));
    let effects = harness.status("n", "a.1", not_suspended(why));
    assert_eq!(effects.types(), ["not_suspended", "stopping"]);
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::NotSuspended));
    assert_eq!(harness.step("a").attempts.len(), 2);
}

#[test]
fn one_that_is_frozen_for_too_long_is_stopped_and_starts_anew() {
    let mut harness = given_way();
    assert_eq!(live(&mut harness, 3599), Vec::<String>::new());
    assert_eq!(live(&mut harness, 1), ["stop a.1 SuspendedTooLong 7s"]);
    harness.status(
        "n",
        "a.1",
        gone(Exit::Signal(9), StopReason::SuspendedTooLong),
    );
    assert_eq!(harness.state("a"), StepState::Queued);
    assert_eq!(harness.code("a"), ReasonCode::SuspendTimeout);
}

#[test]
fn a_restart_keeps_count_of_how_long_it_was_frozen() {
    let mut harness = given_way();
    live(&mut harness, 3000);
    harness.restart(0);
    let both = vec![status("a.1", suspended()), status("b.1", running())];
    harness.hello(holding(hello("n", 2, 4), both));
    live(&mut harness, 600);
    assert_eq!(harness.state("a"), StepState::Stopping);
}

#[test]
fn a_clock_that_is_ahead_at_a_start_makes_nothing_frozen_for_too_long() {
    let mut harness = given_way();
    live(&mut harness, 3000);
    harness.restart_ahead(Span::from_secs(3600));
    let both = vec![status("a.1", suspended()), status("b.1", running())];
    harness.hello(holding(hello("n", 2, 4), both));
    live(&mut harness, 500);
    assert_eq!(harness.state("a"), StepState::Suspended);
    live(&mut harness, 100);
    assert_eq!(harness.state("a"), StepState::Stopping);
}

#[test]
fn one_that_somebody_holds_is_frozen_for_as_long_as_he_likes() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(0, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.action("a", StepAction::Suspend);
    assert_eq!(effects.types(), ["held", "suspending"]);
    assert_eq!(effects.orders, ["suspend a.1 0"], "nothing is to be moved");
    assert_eq!(
        harness.action("a", StepAction::Suspend).types(),
        Vec::<String>::new()
    );
    harness.status("n", "a.1", suspended());
    live(&mut harness, 10_000);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Suspended, ReasonCode::Held)
    );
    let effects = harness.action("a", StepAction::Resume);
    assert_eq!(effects.types(), ["unheld", "resuming"]);
    harness.status("n", "a.1", running());
    assert_eq!(harness.state("a"), StepState::Running);
    let again = harness.action("a", StepAction::Resume);
    assert_eq!(again.answers, [Answer::Steered(Ok(step("a")))]);
    assert!(again.records.is_empty());
}

#[test]
fn its_own_suspend_timeout_holds_for_one_that_is_held_too_and_it_stays_held() {
    let mut harness = Harness::one_node(1, 4);
    let mut spec = spec(0, 1000);
    spec.suspend_timeout = Some(Span::from_secs(10));
    harness.submit("a", spec).unwrap();
    harness.run("a.1");
    harness.action("a", StepAction::Suspend);
    harness.status("n", "a.1", suspended());
    harness.pass(10);
    harness.status(
        "n",
        "a.1",
        gone(Exit::Signal(9), StopReason::SuspendedTooLong),
    );
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::Held)
    );
    harness.action("a", StepAction::Resume);
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn a_queued_step_that_is_suspended_is_not_considered_until_it_is_resumed() {
    let mut harness = Harness::new();
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.action("a", StepAction::Suspend).types(), ["held"]);
    harness.hello(hello("n", 1, 4));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::Held)
    );
    let effects = harness.action("a", StepAction::Resume);
    assert_eq!(effects.types(), ["unheld", "allocated"]);
}

#[test]
fn what_has_not_begun_is_not_frozen_but_waits_held() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.action("a", StepAction::Suspend);
    assert_eq!(effects.orders, ["stop a.1 Requeued 7s"]);
    harness.status("n", "a.1", gone(Exit::Unknown, StopReason::Requeued));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::Held)
    );
}

#[test]
fn a_step_starts_anew_in_its_old_place_and_spends_no_retry() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.action("a", StepAction::Requeue);
    assert_eq!(effects.orders, ["stop a.1 Requeued 7s"]);
    assert_eq!(
        harness.action("a", StepAction::Requeue).orders,
        Vec::<String>::new()
    );
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Requeued));
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Allocated, StepState::Queued)
    );
    assert_eq!(harness.step("a").retries_spent, 0);
    assert!(
        harness.action("b", StepAction::Requeue).records.is_empty(),
        "it waits already"
    );
}

#[test]
fn what_is_over_or_unknown_or_runs_on_several_hosts_is_refused() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.cancel("a");
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Cancelled));
    for action in [StepAction::Suspend, StepAction::Resume, StepAction::Requeue] {
        let refusal = Refusal::StepOver {
            step: step("a"),
            state: StepState::Cancelled,
            ended: None,
        };
        assert_eq!(
            harness.action("a", action).answers,
            [Answer::Steered(Err(refusal))]
        );
        let refusal = Refusal::UnknownStep { step: step("x") };
        assert_eq!(
            harness.action("x", action).answers,
            [Answer::Steered(Err(refusal))]
        );
    }
    harness.hello(hello("m", 1, 4));
    let mut gang = spec(1, 1000);
    gang.nodes = 2;
    harness.submit("g", gang).unwrap();
    let refusal = Refusal::CannotSuspend {
        step: step("g"),
        hosts: 2,
    };
    let effects = harness.action("g", StepAction::Suspend);
    assert_eq!(effects.answers, [Answer::Steered(Err(refusal))]);
    assert!(effects.records.is_empty());
}

#[test]
fn a_frozen_step_is_cancelled_and_leaves_with_its_host() {
    let mut harness = given_way();
    let effects = harness.cancel("a");
    assert_eq!(effects.orders, ["stop a.1 Cancelled 7s"]);
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Cancelled));
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(used(&harness), amounts(1, 2000, 1000));

    let mut harness = given_way();
    harness.gone("n");
    harness.pass(400);
    assert_eq!(harness.state("a"), StepState::Queued, "its host was lost");
    assert_eq!(harness.code("a"), ReasonCode::HostLost);

    let mut harness = given_way();
    let (reason, deadline) = (None, None);
    harness.change("n", NodeChange::Drain { reason, deadline });
    assert_eq!(
        harness.state("a"),
        StepState::Stopping,
        "it would never come back there"
    );
}

#[test]
fn a_hello_hears_again_what_it_missed() {
    for (phase, order) in [(running(), "suspend a.1"), (suspended(), "")] {
        let (mut harness, _) = giving_way();
        let effects = harness.hello(holding(hello("n", 2, 4), vec![status("a.1", phase)]));
        let expected = effects
            .orders
            .iter()
            .any(|sent| !order.is_empty() && sent.starts_with(order));
        assert_eq!(expected, !order.is_empty(), "{effects:?}");
    }
    let mut harness = given_way();
    harness.status("n", "b.1", released(Exit::Code(0)));
    let effects = harness.hello(holding(hello("n", 2, 4), vec![status("a.1", suspended())]));
    assert_eq!(effects.orders, ["resume a.1"]);
    harness.status("n", "a.1", running());
    let effects = harness.hello(holding(hello("n", 2, 4), vec![status("a.1", suspended())]));
    assert_eq!(
        effects.orders,
        ["resume a.1"],
        "what should run is brought back"
    );
}

#[test]
fn a_waiter_that_is_short_of_memory_has_a_frozen_step_stopped() {
    let mut harness = given_way();
    let has = harness.core.state().node(&node("n")).unwrap().capacity();
    let rest = has.get(MEMORY_MB) - 1500;
    harness
        .submit("c", of("high", with_memory(spec(0, 1000), rest)))
        .unwrap();
    assert_eq!(harness.state("a"), StepState::Stopping);
    assert_eq!(harness.code("a"), ReasonCode::Preempted);
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Preempted));
    assert_eq!(harness.state("c"), StepState::Allocated);
    assert_eq!(harness.state("a"), StepState::Queued);
}

#[test]
fn where_memory_is_short_the_victim_is_stopped_and_not_frozen() {
    let mut harness = Harness::one_node(2, 4);
    harness.put_policy("default", "low", PolicySpec::default());
    let high = PolicySpec {
        priority: 1,
        limit: [amount("gpu", 2)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "high", high);
    let has = harness.core.state().node(&node("n")).unwrap().capacity();
    let most = has.get(MEMORY_MB) - 100;
    harness
        .submit("a", with_memory(freezing(of("low", spec(1, 1000))), most))
        .unwrap();
    harness.run("a.1");
    harness
        .submit("b", of("high", with_memory(spec(1, 1000), 1000)))
        .unwrap();
    assert_eq!(harness.state("a"), StepState::Stopping);
}
