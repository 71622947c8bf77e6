//! Explanations are true: the named rule blocks the request, and the remedies let it start.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_common::amount::{MGPU, MGPU_A_GPU};
use sluice_common::id::StepId;

use super::harness::SchedulerHarness;
use super::random::{cases, play, pool, scenario, set_up, settle};
use crate::placement::request_in_pool::RequestInPool;
use crate::remedy::dry_run::DryRun;
use crate::{BlockReason, Change, Remedy, Scheduler, Start};

/// Whether a rule blocks a request as reported.
fn holds(scheduler: &Scheduler, step: &StepId, block: &BlockReason<'_>) -> bool {
    let request = scheduler.request(step).unwrap();
    let pool = scheduler.pool(&pool()).unwrap();
    let before = RequestInPool::new(scheduler, pool, request).unwrap();
    let asked = |key: &str| request.demand.get(key);
    match block {
        BlockReason::PoolEmpty => pool.hosts().is_empty(),
        BlockReason::GpusUnknown { node } => pool.hosts().get(node).unwrap().gpus_unknown,
        BlockReason::Infeasible(infeasible) => {
            before.infeasible(false).as_ref() == Some(infeasible)
        }
        BlockReason::AwaitingRelease { runs } => {
            scheduler.nomination(step).unwrap().awaits.len() == *runs
        }
        BlockReason::Limit { key, used, limit } => used + asked(key) > *limit,
        BlockReason::Reserved {
            key,
            used,
            reserved,
        } => !request.preemptible && used + asked(key) > *reserved,
        BlockReason::NoSchedulableHost { nearest } => {
            !pool.hosts().get(nearest).unwrap().schedulable
        }
        BlockReason::BehindHead { behind, .. } => scheduler.nomination(behind).is_some(),
        BlockReason::PoolFull { key, free } => asked(key) > *free,
        BlockReason::DomainsFull { hosts, .. } => *hosts < request.hosts as usize,
        BlockReason::HostsFull { closest } => closest
            .is_none_or(|(_, key, asked, free)| asked > free && request.each.get(key) == asked),
    }
}

/// Requests ahead of a request that are not nominated.
fn ahead<'a>(scheduler: &'a Scheduler, step: &'a StepId) -> impl Iterator<Item = &'a StepId> {
    let order = scheduler.in_order(&pool()).into_iter();
    let ahead = order.take_while(move |id| *id != step);
    ahead.filter(|id| scheduler.nomination(id).is_none())
}

/// Whether a request starts in the whole scheduler once the changes are made.
fn starts(harness: &SchedulerHarness, step: &StepId, remedy: &Remedy, changes: &[Change]) -> bool {
    let mut harness = harness.clone();
    if remedy.after_others {
        for id in ahead(&harness.scheduler.clone(), step) {
            harness.cancel(id);
        }
    }
    harness.change(step, &pool(), changes);
    harness.granted.clear();
    settle(&mut harness);
    harness.granted.contains(step)
}

/// The same change, smaller by one.
fn by_one_less(change: &Change) -> Option<Change> {
    let mut less = change.clone();
    let one = |key: &str| if key == MGPU { MGPU_A_GPU } else { 1 };
    match &mut less {
        Change::FreeOnHost { key, more, .. } => *more -= one(key),
        Change::FreeInPool { key, more, .. } => *more -= one(key.as_str()),
        Change::RaiseLimit { key, to } | Change::RaiseReserved { key, to } => {
            *to -= one(key.as_str());
        }
        Change::ReduceRequest { key, to } => *to += one(key.as_str()),
        Change::MakeSchedulable { .. } | Change::MakePreemptible => return None,
    }
    Some(less)
}

/// Smaller sets of changes: one of them reduced by one, or all but one.
fn smaller(changes: &[Change]) -> Vec<Vec<Change>> {
    if let [only] = changes {
        return by_one_less(only)
            .into_iter()
            .map(|less| vec![less])
            .collect();
    }
    let without = |n: usize| {
        let mut fewer = changes.to_vec();
        fewer.remove(n);
        fewer
    };
    (0..changes.len()).map(without).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 3, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every waiting request is blocked by a rule that holds, and its remedies work in the whole scheduler.
    #[test]
    fn what_blocks_holds_and_what_would_help_helps(scenario in scenario()) {
        let mut harness = set_up(&scenario);
        for (n, event) in scenario.events.iter().enumerate() {
            play(&mut harness, n, event, &scenario);
            settle(&mut harness);
        }
        let scheduler = &harness.scheduler;
        let waiting: Vec<StepId> = scheduler.requests().map(|request| request.step.clone()).collect();
        for step in &waiting {
            let block = scheduler.block(step, &pool());
            prop_assert!(block.as_ref().is_some_and(|block| holds(scheduler, step, block)), "{step}: {block:?}");
            for remedy in scheduler.remedies(step, &pool(), harness.now()) {
                prop_assert!(starts(&harness, step, &remedy, &remedy.changes), "{step}: {remedy:?}");
            }
        }
    }

    /// If changes let a request start at once, none can be left out and a single one cannot be smaller.
    #[test]
    fn no_change_is_needless_or_larger_than_it_must_be(scenario in scenario()) {
        let mut harness = set_up(&scenario);
        for (n, event) in scenario.events.iter().enumerate() {
            play(&mut harness, n, event, &scenario);
            settle(&mut harness);
        }
        let scheduler = &harness.scheduler;
        for request in scheduler.requests() {
            let remedies = scheduler.remedies(&request.step, &pool(), harness.now());
            for remedy in remedies.iter().filter(|remedy| remedy.start == Start::AtOnce) {
                let mut dry_run = DryRun::new(scheduler);
                if remedy.after_others {
                    let ahead: Vec<_> = ahead(scheduler, &request.step).collect();
                    dry_run.withhold(&ahead);
                }
                for less in smaller(&remedy.changes) {
                    let made = dry_run.change(&request.step, &pool(), &less);
                    let start = made.and_then(|()| dry_run.would_start(&request.step, &pool(), harness.now()));
                    prop_assert_ne!(start, Some(Start::AtOnce), "{:?}", remedy);
                    dry_run.roll_back();
                }
            }
        }
    }

    /// A dry run leaves nothing behind.
    #[test]
    fn a_dry_run_is_taken_back(scenario in scenario()) {
        let mut harness = set_up(&scenario);
        for (n, event) in scenario.events.iter().enumerate() {
            play(&mut harness, n, event, &scenario);
            settle(&mut harness);
        }
        let scheduler = &harness.scheduler;
        let mut dry_run = DryRun::new(scheduler);
        for request in scheduler.requests() {
            let known = scheduler.pool(&pool()).unwrap();
            let in_pool = RequestInPool::new(scheduler, known, request).unwrap();
            for changes in in_pool.proposals() {
                if dry_run.change(&request.step, &pool(), &changes).is_some() {
                    dry_run.would_start(&request.step, &pool(), harness.now());
                }
                dry_run.roll_back();
                prop_assert_eq!(dry_run.scheduler(), scheduler, "{:?} of {}", changes, request.step);
            }
        }
    }
}
