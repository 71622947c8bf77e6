//! Tests of explanations of steps in every state. A step starts after the change that its explanation suggests.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::api::timestamp;
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason};
use sluice_reasons::messages::explanation;

use super::harness::*;
use crate::{Desired, DesiredPool, Explanation, NodeChange, PoolWait};

fn terms(priority: u64, reserved: &[(&str, u64)], limit: &[(&str, u64)]) -> PolicySpec {
    let table = |pairs: &[(&str, u64)]| {
        let pairs = pairs.iter();
        pairs.map(|(key, n)| amount(key, *n)).collect()
    };
    PolicySpec {
        priority,
        reserved: table(reserved),
        limit: table(limit),
        weight: None,
    }
}

/// Makes a step of `subject` that asks for GPUs.
fn of(subject: &str, gpus: u64) -> StepSpec {
    let mut spec = spec(gpus, 1000);
    spec.subject = Subject::new(subject).unwrap();
    spec
}

fn firm(mut spec: StepSpec) -> StepSpec {
    spec.preemptible = false;
    spec
}

/// Makes a host with four GPUs in a pool with the subjects `a` and `b`.
fn harness(a: PolicySpec, b: PolicySpec) -> Harness {
    let mut harness = Harness::one_node(4, 8);
    harness.put_policy("default", "a", a);
    harness.put_policy("default", "b", b);
    harness
}

fn explained<'a>(harness: &'a Harness, id: &str) -> Explanation<'a> {
    harness.core.explain(&step(id)).expect("it is remembered")
}

/// The one pool in which a step waits.
fn pool<'a>(harness: &'a Harness, id: &str) -> PoolWait<'a> {
    let mut pools = explained(harness, id).pools;
    assert_eq!(pools.len(), 1, "{pools:#?}");
    pools.remove(0)
}

/// The sentences about what would let a step start.
fn would(pool: &PoolWait<'_>) -> Vec<String> {
    let name = pool.inspection.pool;
    let search = pool.remedy_search();
    let would = search.map_or_else(Vec::new, |search| search.in_pool(name));
    let sentences = would.iter();
    let sentences = sentences.map(|remedy| explanation::remedy(pool.request, name, remedy));
    sentences.collect()
}

/// The sentence about the steps that a step would preempt, or why it would preempt none.
fn stops(pool: &PoolWait<'_>) -> String {
    explanation::preemption_status(pool.request, &pool.inspection)
}

/// The sentence about why the first holder of what a step lacks is protected.
fn spared(pool: &PoolWait<'_>) -> String {
    let why = pool.inspection.holders[0].protection.expect("it is spared");
    explanation::protection(pool.request, why)
}

/// The sentences about who could preempt a step.
fn exposure(step: &str, harness: &Harness) -> Vec<String> {
    let explained = explained(harness, step);
    let holding = explained.holding.unwrap();
    let subject = &explained.step.spec.subject;
    explanation::exposure(subject, &holding.attempt.pool, &holding.exposure)
}

fn gone_by_preemption(harness: &mut Harness, attempt: &str) {
    harness.status("n", attempt, gone(Exit::Signal(15), StopReason::Preempted));
}

#[test]
fn what_others_of_a_subject_are_promised_of_its_share_is_told() {
    let mut harness = harness(terms(0, &[("gpu", 1)], &[]), terms(0, &[], &[]));
    for id in ["x", "y", "z", "w"] {
        harness.submit(id, of("b", 1)).unwrap();
    }
    harness.submit("one", of("a", 1)).unwrap();
    harness.submit("two", of("a", 1)).unwrap();
    let waits = pool(&harness, "two");
    let gpu = waits
        .inspection
        .keys
        .iter()
        .find(|key| key.key == "mgpu")
        .unwrap();
    assert_eq!(
        (gpu.used, gpu.promised, gpu.reserved),
        (0, 1000, Some(1000))
    );
    assert!(!waits.inspection.in_share);
}

#[test]
fn a_limit_that_is_used_up_is_named_and_raising_it_helps() {
    let mut harness = harness(terms(1, &[], &[("gpu", 2)]), terms(1, &[], &[]));
    harness.submit("one", of("a", 2)).unwrap();
    harness.submit("two", of("a", 1)).unwrap();
    let waits = pool(&harness, "two");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForLimit);
    let gpu = waits
        .inspection
        .keys
        .iter()
        .find(|key| key.key == "mgpu")
        .unwrap();
    assert_eq!((gpu.asked, gpu.used, gpu.limit), (1000, 2000, Some(2000)));
    assert_eq!((gpu.reserved, gpu.most_free.unwrap().1), (Some(0), 2000));
    assert_eq!(
        (waits.inspection.position, waits.inspection.behind),
        ((0, 1), None)
    );
    assert_eq!(would(&waits), ["limit.gpu of `a` in pool `default` were 3"]);
    let holders = &waits.inspection.holders;
    assert_eq!((holders[0].attempt, holders.len()), (&attempt("one.1"), 1));
    assert_eq!(spared(&waits), "of `a` itself");
    harness.put_policy("default", "a", terms(1, &[], &[("gpu", 3)]));
    assert_eq!(harness.state("two"), StepState::Allocated);
}

#[test]
fn a_reservation_that_is_used_up_is_named_and_raising_it_helps() {
    let mut harness = harness(terms(1, &[("gpu", 2)], &[]), terms(1, &[], &[]));
    harness.submit("one", firm(of("a", 2))).unwrap();
    harness.submit("two", firm(of("a", 2))).unwrap();
    let waits = pool(&harness, "two");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForReserved);
    assert!(
        stops(&waits).contains("not inside its reserved share"),
        "{}",
        stops(&waits)
    );
    assert!(!waits.inspection.in_share);
    // A subject with nothing reserved of `mcpu` is not bound by it.
    assert_eq!(
        would(&waits),
        [
            "reserved.gpu of `a` in pool `default` were 4",
            "it were preemptible"
        ]
    );
    harness.put_policy("default", "a", terms(1, &[("gpu", 4)], &[]));
    assert_eq!(harness.state("two"), StepState::Allocated);
}

#[test]
fn a_step_that_borrows_may_not_stop_its_equals_and_is_told_what_would_help() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.submit("runs", of("a", 3)).unwrap();
    harness.submit("waits", of("b", 2)).unwrap();
    let waits = pool(&harness, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForUnits);
    assert!(
        stops(&waits).starts_with("no preemption: there is no run that it may preempt"),
        "{}",
        stops(&waits)
    );
    let why = spared(&waits);
    assert!(why.contains("priority 1, not below its own"), "{why}");
    assert_eq!(
        would(&waits),
        [
            "1 more gpu were free on `n`",
            "reserved.gpu of `b` in pool `default` were 2, as soon as one step has been preempted",
            "it asked for 1 gpu",
        ]
    );
    // The host gets one more GPU, the first one.
    harness.hello(holding(hello("n", 5, 8), vec![status("runs.1", running())]));
    assert_eq!(harness.state("waits"), StepState::Allocated);
}

#[test]
fn a_larger_reservation_lets_a_step_take_what_others_borrow() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.submit("runs", of("a", 3)).unwrap();
    harness.submit("waits", of("b", 2)).unwrap();
    harness.put_policy("default", "b", terms(1, &[("gpu", 2)], &[]));
    assert_eq!(harness.state("runs"), StepState::Stopping);
    gone_by_preemption(&mut harness, "runs.1");
    assert_eq!(harness.state("waits"), StepState::Allocated);
}

#[test]
fn who_is_inside_its_share_is_spared_by_that_and_says_so_itself() {
    let mut harness = harness(
        terms(1, &[("gpu", 4), ("mcpu", 8000)], &[]),
        terms(9, &[], &[]),
    );
    harness.submit("runs", of("a", 4)).unwrap();
    harness.submit("waits", of("b", 1)).unwrap();
    let waits = pool(&harness, "waits");
    assert_eq!(spared(&waits), "inside its subject's reserved share");
    let runs = explained(&harness, "runs").holding.unwrap();
    assert!(
        runs.exposure.in_share
            && !runs
                .exposure
                .above_reserved
                .iter()
                .any(|(key, ..)| *key == "mgpu"),
        "{runs:?}"
    );
}

#[test]
fn a_key_that_does_not_count_exposes_nobody_who_is_inside_its_share() {
    // No policy names cores, and each of the four GPUs carries two.
    let mut harness = harness(terms(1, &[("gpu", 2)], &[]), terms(9, &[], &[]));
    let cores = |subject, gpus, mcpu| {
        let mut spec = spec(gpus, mcpu);
        spec.subject = Subject::new(subject).unwrap();
        spec
    };
    harness.submit("runs", cores("a", 2, 4000)).unwrap();
    harness.run("runs.1");
    let runs = explained(&harness, "runs").holding.unwrap();
    assert!(runs.exposure.in_share && !runs.is_exposed(), "{runs:?}");
    assert_eq!(runs.exposure.above_reserved, []);
    harness.submit("waits", cores("b", 0, 8000)).unwrap();
    assert_eq!(harness.state("runs"), StepState::Running);
    // If it borrows a GPU, all that it holds may be preempted.
    harness.put_policy("default", "a", terms(1, &[("gpu", 1)], &[]));
    assert_eq!(harness.state("runs"), StepState::Stopping);
}

#[test]
fn what_borrows_cores_from_gpus_and_who_is_entitled_to_them_say_the_same() {
    let mut harness = harness(terms(1, &[], &[]), terms(0, &[("gpu", 2)], &[]));
    let cores = |subject, gpus, mcpu| {
        let mut spec = spec(gpus, mcpu);
        spec.subject = Subject::new(subject).unwrap();
        spec
    };
    harness.submit("runs", cores("a", 0, 8000)).unwrap();
    harness.run("runs.1");
    let runs = explained(&harness, "runs").holding.unwrap();
    assert!(runs.exposure.in_share && runs.is_exposed(), "{runs:?}");
    let said = exposure("runs", &harness).join("\n");
    let expected = "it holds 8 cores on `n` (its GPUs carry 0)";
    assert!(said.contains(expected), "{said}");
    // Two GPUs carry four of the eight cores.
    harness.submit("greedy", cores("b", 2, 5000)).unwrap();
    let greedy = pool(&harness, "greedy");
    let expected = "holding more than its GPUs carry, as it would itself";
    assert_eq!(spared(&greedy), expected);
    harness.cancel("greedy");
    harness.submit("owner", cores("b", 2, 4000)).unwrap();
    assert_eq!(harness.state("runs"), StepState::Stopping);
}

#[test]
fn a_victim_and_its_waiter_each_tell_of_the_other() {
    let mut harness = harness(terms(1, &[], &[]), terms(5, &[], &[]));
    harness.submit("victim", of("a", 4)).unwrap();
    harness.run("victim.1");
    let before = explained(&harness, "victim").holding.unwrap();
    assert!(before.is_exposed() && !before.exposure.in_share);
    let sentences = exposure("victim", &harness).join("\n");
    assert!(
        sentences.contains("or is of `b` (priority 5)"),
        "{sentences}"
    );
    harness.submit("waiter", of("b", 2)).unwrap();
    let waits = pool(&harness, "waiter");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForRelease);
    assert!(waits.remedy_search().is_none());
    let promised = waits.promised.unwrap();
    assert!(promised.firm);
    let [awaited] = &promised.awaits[..] else {
        panic!("{promised:?}")
    };
    assert_eq!(awaited.attempt, &attempt("victim.1"));
    assert_eq!(awaited.stopping, Some(StopReason::Preempted));
    assert_eq!(
        (awaited.since, awaited.grace_ends),
        (Some(harness.now), Some(harness.now + GRACE))
    );
    let victim = explained(&harness, "victim").holding.unwrap();
    let (by, waits) = victim.gives_way.unwrap();
    assert_eq!(
        explanation::gives_way(by, waits),
        "it is preempted for `waiter`, which waits for its resources"
    );
    assert_eq!(victim.grace_ends, Some(harness.now + GRACE));
    gone_by_preemption(&mut harness, "victim.1");
    assert_eq!(harness.state("waiter"), StepState::Allocated);
    let again = explained(&harness, "victim");
    assert_eq!(
        again.past[0].outcome.as_ref().unwrap().code(),
        ReasonCode::Preempted
    );
    assert_eq!(again.pools.len(), 1);
}

#[test]
fn what_runs_around_a_head_knows_that_it_may_be_taken_back() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.submit("runs", of("a", 2)).unwrap();
    harness.submit("head", of("a", 4)).unwrap();
    let unlimited = StepSpec {
        timeout: None,
        ..of("a", 1)
    };
    harness.submit("around", unlimited).unwrap();
    let backfill = explained(&harness, "around").holding.unwrap();
    assert!(backfill.is_exposed());
    let sentences = exposure("around", &harness);
    assert!(
        sentences[0].contains("started as backfill past `head`"),
        "{sentences:?}"
    );
    let head = pool(&harness, "head");
    let promised = head.promised.as_ref().unwrap();
    assert!(!promised.firm);
    assert_eq!(
        promised.awaits[0].stopping, None,
        "it is left running to its end"
    );
}

#[test]
fn one_behind_another_is_told_who_is_ahead_and_what_is_left_for_it() {
    let mut harness = harness(terms(5, &[], &[]), terms(1, &[], &[]));
    harness.submit("runs", of("a", 3)).unwrap();
    harness.submit("ahead", of("a", 2)).unwrap();
    harness.submit("waits", of("b", 2)).unwrap();
    let waits = pool(&harness, "waits");
    assert_eq!(waits.inspection.position, (1, 2));
    assert_eq!(waits.inspection.behind, Some(&step("ahead")));
    // The head takes one more GPU.
    assert_eq!(would(&waits)[0], "3 more gpu were free on `n`");
    harness.hello(holding(hello("n", 7, 8), vec![status("runs.1", running())]));
    assert_eq!(harness.state("ahead"), StepState::Allocated);
    assert_eq!(harness.state("waits"), StepState::Allocated);
}

#[test]
fn a_closed_host_is_named_and_opening_it_helps() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    let reason = Some(String::from("fans"));
    harness.change("n", NodeChange::Cordon { reason });
    harness.submit("waits", of("a", 1)).unwrap();
    let waits = pool(&harness, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::NoLiveHost);
    assert_eq!(would(&waits), ["`n` took new work"]);
    harness.change("n", NodeChange::Uncordon);
    assert_eq!(harness.state("waits"), StepState::Allocated);
}

#[test]
fn one_that_is_too_large_is_told_how_much_would_do() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    let mut spec = of("a", 6);
    spec.allow_pending = true;
    harness.submit("waits", spec).unwrap();
    let waits = pool(&harness, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::ExceedsPoolCapacity);
    assert_eq!(would(&waits), ["it asked for 4 gpu"]);
}

fn pass(harness: &mut Harness, minutes: u64) {
    for _ in 0..minutes * 12 {
        harness.pass(5);
        harness.heartbeat("n");
    }
}

#[test]
fn one_that_priority_stopped_before_is_spared_for_a_time_and_then_no_longer() {
    let mut harness = harness(terms(1, &[], &[]), terms(5, &[], &[]));
    harness.submit("large", of("a", 4)).unwrap();
    harness.run("large.1");
    harness.submit("small", of("b", 1)).unwrap();
    gone_by_preemption(&mut harness, "large.1");
    harness.status("n", "small.1", released(Exit::Code(0)));
    harness.run("large.2");
    // It was stopped once within a day: 20 minutes.
    pass(&mut harness, 1);
    harness.submit("next", of("b", 1)).unwrap();
    assert_eq!(harness.state("large"), StepState::Running);
    let said = spared(&pool(&harness, "next"));
    assert!(said.contains("preempted by priority before"), "{said}");
    pass(&mut harness, 18);
    assert_eq!(harness.state("large"), StepState::Running);
    pass(&mut harness, 1);
    assert_eq!(harness.state("large"), StepState::Stopping);
}

#[test]
fn a_pool_may_switch_preemption_by_priority_off_and_reclaim_stays() {
    let mut harness = harness(terms(1, &[], &[]), terms(5, &[], &[]));
    let terms_of_pool = PoolSpec {
        priority_preemption: PriorityPreemption::Off,
        ..PoolSpec::default()
    };
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(terms_of_pool)),
    }]);
    harness.submit("runs", of("a", 4)).unwrap();
    harness.submit("waits", of("b", 1)).unwrap();
    assert_eq!(harness.state("runs"), StepState::Allocated);
    let said = spared(&pool(&harness, "waits"));
    assert!(said.contains("switched off"), "{said}");
    harness.put_policy("default", "b", terms(5, &[("gpu", 1)], &[]));
    assert_eq!(harness.state("runs"), StepState::Stopping);
}

#[test]
fn a_spent_budget_protects_from_priority_and_both_sides_say_what_is_left() {
    let mut harness = harness(terms(1, &[], &[]), terms(5, &[], &[]));
    let terms_of_pool = PoolSpec {
        priority_preemption: PriorityPreemption::Budget(2),
        ..PoolSpec::default()
    };
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(terms_of_pool)),
    }]);
    harness.submit("old", of("a", 2)).unwrap();
    harness.run("old.1");
    pass(&mut harness, 45);
    harness.submit("young", of("a", 2)).unwrap();
    harness.run("young.1");
    pass(&mut harness, 15);
    harness.submit("first", of("b", 2)).unwrap();
    assert_eq!(harness.state("young"), StepState::Stopping);
    gone_by_preemption(&mut harness, "young.1");
    harness.run("first.1");
    // The budget is 1.92 GPU-hours a day, of which 0.5 are lost; 0.08 are paid back in an hour.
    harness.submit("second", of("b", 2)).unwrap();
    let said = spared(&pool(&harness, "second"));
    let lost = "would lose 2.0 GPU-hours, while the pool's budget for that has 1.4 left";
    assert!(said.contains(lost), "{said}");
    let runs = explained(&harness, "old").holding.unwrap();
    assert_eq!(runs.exposure.beyond_budget.map(|it| it.lost), Some(7200));
    pass(&mut harness, 360);
    assert_eq!(harness.state("old"), StepState::Running);
    pass(&mut harness, 20);
    assert_eq!(harness.state("old"), StepState::Stopping);
}

#[test]
fn a_time_limit_lets_a_step_past_the_head_and_all_say_until_when() {
    let mut harness = harness(terms(1, &[("gpu", 3)], &[]), terms(0, &[("gpu", 1)], &[]));
    harness.put_policy("default", "c", terms(0, &[], &[]));
    let terms_of_pool = PoolSpec {
        min_runtime: Span::from_secs(10_000),
        ..PoolSpec::default()
    };
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(terms_of_pool)),
    }]);
    let limited = |mut spec: StepSpec, secs| {
        spec.timeout = Some(Span::from_secs(secs));
        spec.grace = Span::from_secs(30);
        spec
    };
    for (id, gpus) in [("long", 2), ("other", 1)] {
        harness.submit(id, limited(of("c", gpus), 3600)).unwrap();
        harness.run(&alloc::format!("{id}.1"));
    }
    let starts_by = harness.now + Span::from_secs(3630);
    harness.submit("head", of("a", 3)).unwrap();
    harness
        .submit("late", limited(firm(of("b", 1)), 3601))
        .unwrap();
    let said = pool(&harness, "late").reason.to_reason().message;
    let until = alloc::format!("until {} at the latest", timestamp(starts_by));
    assert!(said.contains(&until), "{said}");
    let promised = pool(&harness, "head").promised.expect("it is the head");
    assert_eq!(promised.starts_by, Some(starts_by));
    harness
        .submit("short", limited(firm(of("b", 1)), 3600))
        .unwrap();
    assert_eq!(harness.state("short"), StepState::Allocated);
    assert!(
        explained(&harness, "short")
            .holding
            .unwrap()
            .exposure
            .backfill
            .is_empty()
    );
}

#[test]
fn min_runtime_spares_until_a_time_that_is_told_to_both() {
    let mut harness = harness(terms(1, &[], &[]), terms(5, &[], &[]));
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(PoolSpec {
            min_runtime: Span::from_secs(10),
            ..PoolSpec::default()
        })),
    }]);
    let until = harness.now + Span::from_secs(10);
    harness.submit("runs", of("a", 4)).unwrap();
    harness.submit("waits", of("b", 4)).unwrap();
    let waits = pool(&harness, "waits");
    let found = sluice_common::api::timestamp(until).to_string();
    assert!(stops(&waits).contains(&found), "{}", stops(&waits));
    assert!(spared(&waits).contains(&found));
    let runs = explained(&harness, "runs").holding.unwrap();
    assert_eq!(runs.protected_until(), Some(until));
    harness.pass(11);
    assert_eq!(harness.state("runs"), StepState::Stopping);
}

#[test]
fn a_gang_is_told_what_each_of_its_hosts_lacks() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.hello(hello("m", 4, 8));
    for id in ["x", "y"] {
        harness.submit(id, of("a", 3)).unwrap();
    }
    let mut gang = of("b", 2);
    gang.nodes = 2;
    harness.submit("gang", gang).unwrap();
    let waits = pool(&harness, "gang");
    let sentences = would(&waits);
    let both = "1 more gpu were free on `m` and 1 more gpu were free on `n`";
    assert!(sentences.contains(&both.to_string()), "{sentences:?}");
    assert!(
        sentences.contains(&"it asked for 1 gpu on each host".to_string()),
        "{sentences:?}"
    );
    let gpu = waits
        .inspection
        .keys
        .iter()
        .find(|key| key.key == "mgpu")
        .unwrap();
    assert_eq!(gpu.asked, 4000);
}

#[test]
fn every_pool_in_which_a_step_waits_is_told_the_preferred_first() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.put_pool("other");
    harness.put_policy("other", "a", terms(7, &[], &[]));
    harness.submit("runs", of("b", 4)).unwrap();
    let mut spec = of("a", 1);
    spec.allow_pending = true;
    harness.submit("waits", spec).unwrap();
    let pools = explained(&harness, "waits").pools;
    let found: Vec<_> = pools
        .iter()
        .map(|p| (p.inspection.pool.as_str(), p.reason.code()))
        .collect();
    assert_eq!(
        found,
        [
            ("other", ReasonCode::PoolEmpty),
            ("default", ReasonCode::WaitingForUnits)
        ]
    );
    assert!(would(&pools[0]).is_empty());
    assert_eq!(would(&pools[1])[0], "1 more gpu were free on `n`");
}

#[test]
fn one_that_nobody_could_ever_run_is_told_by_every_pool() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.put_pool("other");
    harness.put_policy("other", "a", terms(7, &[], &[("gpu", 5)]));
    harness.submit("never", of("a", 9)).unwrap();
    let never = explained(&harness, "never");
    assert_eq!(never.reason.code(), ReasonCode::ExceedsLimit);
    let refusals = never.step.reason.refusals();
    let pools: Vec<_> = refusals.iter().map(|(pool, _)| pool.as_str()).collect();
    assert_eq!(pools, ["other", "default"]);
    assert!(never.pools.is_empty() && never.holding.is_none());
}

#[test]
fn one_that_is_over_tells_how_each_attempt_ended() {
    let mut harness = harness(terms(1, &[], &[]), terms(1, &[], &[]));
    harness.submit("x", with_retries(of("a", 1), 1)).unwrap();
    harness.status("n", "x.1", released(Exit::Code(3)));
    harness.status("n", "x.2", released(Exit::Signal(9)));
    let over = explained(&harness, "x");
    assert_eq!(over.step.state, StepState::Failed);
    let found: Vec<_> = over
        .past
        .iter()
        .map(|past| past.outcome.as_ref().unwrap().code())
        .collect();
    assert_eq!(found, [ReasonCode::NonZeroExit, ReasonCode::KilledBySignal]);
    assert!(over.holding.is_none() && over.pools.is_empty());
}

#[test]
fn one_that_cannot_give_way_is_exposed_to_nobody() {
    let mut harness = harness(terms(1, &[("gpu", 4)], &[]), terms(9, &[], &[]));
    harness.submit("runs", firm(of("a", 2))).unwrap();
    harness.status("n", "runs.1", AttemptPhase::Starting);
    let runs = explained(&harness, "runs").holding.unwrap();
    assert!(!runs.is_exposed() && runs.protected_until().is_none());
    let sentences = exposure("runs", &harness);
    assert!(sentences[0].contains("not preemptible"), "{sentences:?}");
}

#[test]
fn nobody_is_stopped_where_it_would_be_taken_back_at_once() {
    let mut harness = harness(terms(1, &[("gpu", 2)], &[]), terms(5, &[], &[]));
    harness.submit("x", of("a", 3)).unwrap();
    // Without `x`, this would be within the share of `a`.
    harness.submit("z", of("a", 2)).unwrap();
    harness.submit("y", of("b", 4)).unwrap();
    let waits = pool(&harness, "y");
    assert!(
        stops(&waits).contains("reclaim the resources at once"),
        "{}",
        stops(&waits)
    );
    assert_eq!(harness.state("x"), StepState::Allocated);
}

#[test]
fn nobody_is_stopped_in_vain() {
    let mut harness = harness(terms(1, &[("gpu", 2)], &[]), terms(5, &[], &[]));
    for id in ["x", "y", "z"] {
        harness.submit(id, of("a", 1)).unwrap();
    }
    harness.submit("waits", of("b", 3)).unwrap();
    let waits = pool(&harness, "waits");
    assert!(
        stops(&waits).contains("would not free enough"),
        "{}",
        stops(&waits)
    );
    assert_eq!(would(&waits)[0], "2 more gpu were free on `n`");
}
