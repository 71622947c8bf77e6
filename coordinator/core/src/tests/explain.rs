//! Explanations of steps in every state, and that what is said to let one start does.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use sluice_common::pool::PoolSpec;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason};
use sluice_reasons::messages::explanation;

use super::rig::*;
use crate::{Explanation, InPool, NodeChange, Wanted, WantedPool};

fn terms(priority: u64, reserved: &[(&str, u64)], limit: &[(&str, u64)]) -> PolicySpec {
    let table = |pairs: &[(&str, u64)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(key, n)| (ResourceKey::new(*key).unwrap(), *n))
            .collect()
    };
    PolicySpec {
        priority,
        reserved: table(reserved),
        limit: table(limit),
    }
}

/// A step of `subject` that asks for GPUs.
fn of(subject: &str, gpus: u64) -> StepSpec {
    let mut spec = spec(gpus, 1000);
    spec.subject = Subject::new(subject).unwrap();
    spec
}

fn firm(mut spec: StepSpec) -> StepSpec {
    spec.preemptible = false;
    spec
}

/// A host with four GPUs whose pool has subjects `a` and `b`.
fn rig(a: PolicySpec, b: PolicySpec) -> Rig {
    let mut rig = Rig::one_node(4, 8);
    rig.put_policy("default", "a", a);
    rig.put_policy("default", "b", b);
    rig
}

fn explained<'a>(rig: &'a Rig, id: &str) -> Explanation<'a> {
    rig.core.explain(&step(id)).expect("it is remembered")
}

/// The one pool in which a step waits.
fn pool<'a>(rig: &'a Rig, id: &str) -> InPool<'a> {
    let mut pools = explained(rig, id).pools;
    assert_eq!(pools.len(), 1, "{pools:#?}");
    pools.remove(0)
}

/// What would let a step start, as it is said.
fn would(pool: &InPool<'_>) -> Vec<String> {
    let would = pool.would_start_if.iter();
    let said = would.map(|remedy| explanation::remedy(pool.request, pool.look.pool, remedy));
    said.collect()
}

/// Whom a step would stop, or why nobody is stopped for it, as it is said.
fn stops(pool: &InPool<'_>) -> String {
    explanation::stops(pool.request, &pool.look)
}

/// Why the first of those that hold what a step is short of is spared, as it is said.
fn spared(pool: &InPool<'_>) -> String {
    let why = pool.look.holders[0].protection.expect("it is spared");
    explanation::spared(pool.request, why)
}

/// By whom a step could be made to give way, as it is said.
fn exposure(step: &str, rig: &Rig) -> Vec<String> {
    let explained = explained(rig, step);
    let holding = explained.holding.unwrap();
    let subject = &explained.step.spec.subject;
    explanation::exposure(subject, &holding.attempt.pool, &holding.exposure)
}

fn gone_by_preemption(rig: &mut Rig, attempt: &str) {
    rig.status("n", attempt, gone(Exit::Signal(15), StopReason::Preempted));
}

#[test]
fn what_others_of_a_subject_are_promised_of_its_share_is_told() {
    let mut rig = rig(terms(0, &[("gpu", 1)], &[]), terms(0, &[], &[]));
    for id in ["x", "y", "z", "w"] {
        rig.submit(id, of("b", 1)).unwrap();
    }
    rig.submit("one", of("a", 1)).unwrap();
    rig.submit("two", of("a", 1)).unwrap();
    let waits = pool(&rig, "two");
    let gpu = waits.look.keys.iter().find(|key| key.key == "gpu").unwrap();
    assert_eq!((gpu.used, gpu.promised, gpu.reserved), (0, 1, Some(1)));
    assert!(!waits.look.in_share);
}

#[test]
fn a_limit_that_is_used_up_is_named_and_raising_it_helps() {
    let mut rig = rig(terms(1, &[], &[("gpu", 2)]), terms(1, &[], &[]));
    rig.submit("one", of("a", 2)).unwrap();
    rig.submit("two", of("a", 1)).unwrap();
    let waits = pool(&rig, "two");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForLimit);
    let gpu = waits.look.keys.iter().find(|key| key.key == "gpu").unwrap();
    assert_eq!((gpu.asked, gpu.used, gpu.limit), (1, 2, Some(2)));
    assert_eq!((gpu.reserved, gpu.most_free.unwrap().1), (Some(0), 2));
    assert_eq!((waits.look.position, waits.look.behind), ((0, 1), None));
    assert_eq!(would(&waits), ["limit.gpu of `a` in pool `default` were 3"]);
    let holders = &waits.look.holders;
    assert_eq!((holders[0].attempt, holders.len()), (&attempt("one.1"), 1));
    assert_eq!(spared(&waits), "of `a` itself");
    rig.put_policy("default", "a", terms(1, &[], &[("gpu", 3)]));
    assert_eq!(rig.state("two"), StepState::Allocated);
}

#[test]
fn a_reservation_that_is_used_up_is_named_and_raising_it_helps() {
    let mut rig = rig(terms(1, &[("gpu", 2)], &[]), terms(1, &[], &[]));
    rig.submit("one", firm(of("a", 2))).unwrap();
    rig.submit("two", firm(of("a", 2))).unwrap();
    let waits = pool(&rig, "two");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForReserved);
    assert!(
        stops(&waits).contains("not inside its reserved share"),
        "{}",
        stops(&waits)
    );
    assert!(!waits.look.in_share);
    // What reserves for `mcpu` nothing does not count it.
    assert_eq!(
        would(&waits),
        [
            "reserved.gpu of `a` in pool `default` were 4",
            "it were preemptible"
        ]
    );
    rig.put_policy("default", "a", terms(1, &[("gpu", 4)], &[]));
    assert_eq!(rig.state("two"), StepState::Allocated);
}

#[test]
fn a_step_that_borrows_may_not_stop_its_equals_and_is_told_what_would_help() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.submit("runs", of("a", 3)).unwrap();
    rig.submit("waits", of("b", 2)).unwrap();
    let waits = pool(&rig, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForUnits);
    assert!(
        stops(&waits).starts_with("there is nobody that it may stop"),
        "{}",
        stops(&waits)
    );
    let why = spared(&waits);
    assert!(
        why.contains("priority 1, which is not below its own"),
        "{why}"
    );
    assert_eq!(
        would(&waits),
        [
            "1 more gpu were free on `n`",
            "reserved.gpu of `b` in pool `default` were 2, as soon as one step has given way",
            "it asked for 1 gpu",
        ]
    );
    // The host gets one more: the first of them.
    rig.hello(holding(hello("n", 5, 8), vec![status("runs.1", running())]));
    assert_eq!(rig.state("waits"), StepState::Allocated);
}

#[test]
fn a_larger_reservation_lets_a_step_take_what_others_borrow() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.submit("runs", of("a", 3)).unwrap();
    rig.submit("waits", of("b", 2)).unwrap();
    rig.put_policy("default", "b", terms(1, &[("gpu", 2)], &[]));
    assert_eq!(rig.state("runs"), StepState::Stopping);
    gone_by_preemption(&mut rig, "runs.1");
    assert_eq!(rig.state("waits"), StepState::Allocated);
}

#[test]
fn who_is_inside_its_share_is_spared_by_that_and_says_so_itself() {
    let mut rig = rig(
        terms(1, &[("gpu", 4), ("mcpu", 8000)], &[]),
        terms(9, &[], &[]),
    );
    rig.submit("runs", of("a", 4)).unwrap();
    rig.submit("waits", of("b", 1)).unwrap();
    let waits = pool(&rig, "waits");
    assert_eq!(spared(&waits), "inside its subject's reserved share");
    let runs = explained(&rig, "runs").holding.unwrap();
    assert!(
        runs.exposure.in_share
            && !runs
                .exposure
                .above_reserved
                .iter()
                .any(|(key, ..)| *key == "gpu"),
        "{runs:?}"
    );
}

#[test]
fn a_key_that_does_not_count_exposes_nobody_who_is_inside_its_share() {
    // All cores of the host are taken, and no policy names cores.
    let mut rig = rig(terms(1, &[("gpu", 2)], &[]), terms(9, &[], &[]));
    let cores = |subject, gpus| {
        let mut spec = spec(gpus, 8000);
        spec.subject = Subject::new(subject).unwrap();
        spec
    };
    rig.submit("runs", cores("a", 2)).unwrap();
    rig.run("runs.1");
    let runs = explained(&rig, "runs").holding.unwrap();
    assert!(runs.exposure.in_share && !runs.is_exposed(), "{runs:?}");
    assert_eq!(runs.exposure.above_reserved, []);
    rig.submit("waits", cores("b", 0)).unwrap();
    assert_eq!(rig.state("runs"), StepState::Running);
    // Where it borrows a GPU, what it holds beside that may be taken too.
    rig.put_policy("default", "a", terms(1, &[("gpu", 1)], &[]));
    assert_eq!(rig.state("runs"), StepState::Stopping);
}

#[test]
fn a_victim_and_its_waiter_each_tell_of_the_other() {
    let mut rig = rig(terms(1, &[], &[]), terms(5, &[], &[]));
    rig.submit("victim", of("a", 4)).unwrap();
    rig.run("victim.1");
    let before = explained(&rig, "victim").holding.unwrap();
    assert!(before.is_exposed() && !before.exposure.in_share);
    let said = exposure("victim", &rig).join("\n");
    assert!(said.contains("or is of `b` (priority 5)"), "{said}");
    rig.submit("waiter", of("b", 2)).unwrap();
    let waits = pool(&rig, "waiter");
    assert_eq!(waits.reason.code(), ReasonCode::WaitingForRelease);
    assert!(waits.would_start_if.is_empty());
    let promised = waits.promised.unwrap();
    assert!(promised.firm);
    let [awaited] = &promised.awaits[..] else {
        panic!("{promised:?}")
    };
    assert_eq!(awaited.attempt, &attempt("victim.1"));
    assert_eq!(awaited.stopping, Some(StopReason::Preempted));
    assert_eq!(
        (awaited.since, awaited.grace_ends),
        (Some(rig.now), Some(rig.now + GRACE))
    );
    let victim = explained(&rig, "victim").holding.unwrap();
    let (by, waits) = victim.gives_way.unwrap();
    assert_eq!(
        explanation::gives_way(by, waits),
        "it gives way to `waiter`, which waits for what it holds"
    );
    assert_eq!(victim.grace_ends, Some(rig.now + GRACE));
    gone_by_preemption(&mut rig, "victim.1");
    assert_eq!(rig.state("waiter"), StepState::Allocated);
    let again = explained(&rig, "victim");
    assert_eq!(
        again.past[0].outcome.as_ref().unwrap().code(),
        ReasonCode::Preempted
    );
    assert_eq!(again.pools.len(), 1);
}

#[test]
fn what_runs_around_a_head_knows_that_it_may_be_taken_back() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.submit("runs", of("a", 2)).unwrap();
    rig.submit("head", of("a", 4)).unwrap();
    rig.submit("around", of("a", 1)).unwrap();
    let around = explained(&rig, "around").holding.unwrap();
    assert!(around.is_exposed());
    let said = exposure("around", &rig);
    assert!(said[0].contains("started around `head`"), "{said:?}");
    let head = pool(&rig, "head");
    let promised = head.promised.as_ref().unwrap();
    assert!(!promised.firm);
    assert_eq!(
        promised.awaits[0].stopping, None,
        "it is left to end by itself"
    );
}

#[test]
fn one_behind_another_is_told_who_is_ahead_and_what_is_left_for_it() {
    let mut rig = rig(terms(5, &[], &[]), terms(1, &[], &[]));
    rig.submit("runs", of("a", 3)).unwrap();
    rig.submit("ahead", of("a", 2)).unwrap();
    rig.submit("waits", of("b", 2)).unwrap();
    let waits = pool(&rig, "waits");
    assert_eq!(waits.look.position, (1, 2));
    assert_eq!(waits.look.behind, Some(&step("ahead")));
    // One more is what the head takes.
    assert_eq!(would(&waits)[0], "3 more gpu were free on `n`");
    rig.hello(holding(hello("n", 7, 8), vec![status("runs.1", running())]));
    assert_eq!(rig.state("ahead"), StepState::Allocated);
    assert_eq!(rig.state("waits"), StepState::Allocated);
}

#[test]
fn a_closed_host_is_named_and_opening_it_helps() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    let reason = Some(String::from("fans"));
    rig.change("n", NodeChange::Cordon { reason });
    rig.submit("waits", of("a", 1)).unwrap();
    let waits = pool(&rig, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::NoLiveHost);
    assert_eq!(would(&waits), ["`n` took work"]);
    rig.change("n", NodeChange::Uncordon);
    assert_eq!(rig.state("waits"), StepState::Allocated);
}

#[test]
fn one_that_is_too_large_is_told_how_much_would_do() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    let mut spec = of("a", 6);
    spec.allow_pending = true;
    rig.submit("waits", spec).unwrap();
    let waits = pool(&rig, "waits");
    assert_eq!(waits.reason.code(), ReasonCode::ExceedsPoolCapacity);
    assert_eq!(would(&waits), ["it asked for 4 gpu"]);
}

#[test]
fn min_runtime_spares_until_a_time_that_is_told_to_both() {
    let mut rig = rig(terms(1, &[], &[]), terms(5, &[], &[]));
    rig.apply(vec![Wanted::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(WantedPool::from(PoolSpec {
            min_runtime: Span::from_secs(10),
            ..PoolSpec::default()
        })),
    }]);
    let until = rig.now + Span::from_secs(10);
    rig.submit("runs", of("a", 4)).unwrap();
    rig.submit("waits", of("b", 4)).unwrap();
    let waits = pool(&rig, "waits");
    let told = sluice_common::api::timestamp(until).to_string();
    assert!(stops(&waits).contains(&told), "{}", stops(&waits));
    assert!(spared(&waits).contains(&told));
    let runs = explained(&rig, "runs").holding.unwrap();
    assert_eq!(runs.protected_until(), Some(until));
    rig.pass(11);
    assert_eq!(rig.state("runs"), StepState::Stopping);
}

#[test]
fn a_gang_is_told_what_each_of_its_hosts_lacks() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.hello(hello("m", 4, 8));
    for id in ["x", "y"] {
        rig.submit(id, of("a", 3)).unwrap();
    }
    let mut gang = of("b", 2);
    gang.nodes = 2;
    rig.submit("gang", gang).unwrap();
    let waits = pool(&rig, "gang");
    let said = would(&waits);
    let both = "1 more gpu were free on `m` and 1 more gpu were free on `n`";
    assert!(said.contains(&both.to_string()), "{said:?}");
    assert!(
        said.contains(&"it asked for 1 gpu on each host".to_string()),
        "{said:?}"
    );
    let gpu = waits.look.keys.iter().find(|key| key.key == "gpu").unwrap();
    assert_eq!(gpu.asked, 4);
}

#[test]
fn every_pool_in_which_a_step_waits_is_told_the_preferred_first() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.put_pool("other");
    rig.put_policy("other", "a", terms(7, &[], &[]));
    rig.submit("runs", of("b", 4)).unwrap();
    let mut spec = of("a", 1);
    spec.allow_pending = true;
    rig.submit("waits", spec).unwrap();
    let pools = explained(&rig, "waits").pools;
    let told: Vec<_> = pools
        .iter()
        .map(|p| (p.look.pool.as_str(), p.reason.code()))
        .collect();
    assert_eq!(
        told,
        [
            ("other", ReasonCode::PoolEmpty),
            ("default", ReasonCode::WaitingForUnits)
        ]
    );
    assert!(pools[0].would_start_if.is_empty());
    assert_eq!(would(&pools[1])[0], "1 more gpu were free on `n`");
}

#[test]
fn one_that_nobody_could_ever_run_is_told_by_every_pool() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.put_pool("other");
    rig.put_policy("other", "a", terms(7, &[], &[("gpu", 5)]));
    rig.submit("never", of("a", 9)).unwrap();
    let never = explained(&rig, "never");
    assert_eq!(never.reason.code(), ReasonCode::ExceedsLimit);
    let refusals = never.step.reason.refusals();
    let pools: Vec<_> = refusals.iter().map(|(pool, _)| pool.as_str()).collect();
    assert_eq!(pools, ["other", "default"]);
    assert!(never.pools.is_empty() && never.holding.is_none());
}

#[test]
fn one_that_is_over_tells_how_each_attempt_ended() {
    let mut rig = rig(terms(1, &[], &[]), terms(1, &[], &[]));
    rig.submit("x", with_retries(of("a", 1), 1)).unwrap();
    rig.status("n", "x.1", released(Exit::Code(3)));
    rig.status("n", "x.2", released(Exit::Signal(9)));
    let over = explained(&rig, "x");
    assert_eq!(over.step.state, StepState::Failed);
    let told: Vec<_> = over
        .past
        .iter()
        .map(|past| past.outcome.as_ref().unwrap().code())
        .collect();
    assert_eq!(told, [ReasonCode::NonZeroExit, ReasonCode::KilledBySignal]);
    assert!(over.holding.is_none() && over.pools.is_empty());
}

#[test]
fn one_that_cannot_give_way_is_exposed_to_nobody() {
    let mut rig = rig(terms(1, &[("gpu", 4)], &[]), terms(9, &[], &[]));
    rig.submit("runs", firm(of("a", 2))).unwrap();
    rig.status("n", "runs.1", AttemptPhase::Starting);
    let runs = explained(&rig, "runs").holding.unwrap();
    assert!(!runs.is_exposed() && runs.protected_until().is_none());
    let said = exposure("runs", &rig);
    assert!(said[0].contains("not preemptible"), "{said:?}");
}

#[test]
fn nobody_is_stopped_where_it_would_be_taken_back_at_once() {
    let mut rig = rig(terms(1, &[("gpu", 2)], &[]), terms(5, &[], &[]));
    rig.submit("x", of("a", 3)).unwrap();
    // Once `x` were gone, this would be inside the share of `a`.
    rig.submit("z", of("a", 2)).unwrap();
    rig.submit("y", of("b", 4)).unwrap();
    let waits = pool(&rig, "y");
    assert!(
        stops(&waits).contains("taken back at once"),
        "{}",
        stops(&waits)
    );
    assert_eq!(rig.state("x"), StepState::Allocated);
}

#[test]
fn nobody_is_stopped_in_vain() {
    let mut rig = rig(terms(1, &[("gpu", 2)], &[]), terms(5, &[], &[]));
    for id in ["x", "y", "z"] {
        rig.submit(id, of("a", 1)).unwrap();
    }
    rig.submit("waits", of("b", 3)).unwrap();
    let waits = pool(&rig, "waits");
    assert!(stops(&waits).contains("in vain"), "{}", stops(&waits));
    assert_eq!(would(&waits)[0], "2 more gpu were free on `n`");
}
