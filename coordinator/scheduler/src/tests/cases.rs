//! Regression cases, each as small as it was found, under the eyes of the judge.

use alloc::format;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};

use super::harness::{PoolRules, SchedulerHarness, Submission};
use super::judge::{GPU, JudgedAmounts, JudgedClass, MCPU, MEM, STEP_RUN};

/// Rules under which any host may be filled by CPU work.
const OPEN: PoolRules = PoolRules {
    open_gpu_hosts: true,
    no_priority_preemption: false,
    budget: None,
    fair_share: false,
    fair_users: false,
    spread: false,
};

fn pool(n: u32) -> PoolName {
    PoolName::new(format!("p{n}")).unwrap()
}

fn subject(name: &str) -> Subject {
    Subject::new(name).unwrap()
}

fn node(n: usize) -> NodeName {
    NodeName::new(format!("n{n}")).unwrap()
}

fn units(pairs: &[(usize, u64)]) -> JudgedAmounts {
    let mut units = JudgedAmounts::default();
    pairs.iter().for_each(|(key, n)| units[*key] = *n);
    units
}

/// One pool with hosts of the given GPUs, 4 cores and 8 MB.
fn harness(declared: &[(usize, u64)], gpus: &[u64], slow: bool) -> SchedulerHarness {
    let mut harness = SchedulerHarness::new(slow);
    harness.put_pool(&pool(0), declared, 0, OPEN);
    for (n, gpus) in gpus.iter().enumerate() {
        let has = units(&[(GPU, *gpus), (MCPU, 4000), (MEM, 8)]);
        harness.put_host(&node(n), &pool(0), has, true);
    }
    harness
}

fn submission(name: &str, each: &[(usize, u64)], preemptible: bool) -> Submission {
    Submission {
        suspends: false,
        subject: subject(name),
        each: units(each),
        class: JudgedClass::Whole,
        nodes: 1,
        user: None,
        priority: 0,
        preemptible,
        pool: None,
        platforms: Vec::new(),
        one_rack: None,
        time_limit: None,
    }
}

/// A preemptible request for half a core.
fn small(name: &str, gpus: u64, mem: u64) -> Submission {
    submission(name, &[(GPU, gpus), (MEM, mem), (MCPU, 500)], true)
}

fn settle(harness: &mut SchedulerHarness) {
    let settled = harness.settle();
    assert!(settled.is_ok(), "{settled:?} of {}", harness.history);
}

fn submit(harness: &mut SchedulerHarness, submission: &Submission) -> StepId {
    let step = harness
        .submit(submission)
        .expect("it is one that could be granted");
    settle(harness);
    step
}

fn running(harness: &SchedulerHarness) -> Vec<StepId> {
    let mut steps: Vec<StepId> = harness
        .scheduler
        .runs()
        .map(|(id, _)| id.step.clone())
        .collect();
    steps.sort_unstable();
    steps
}

fn finish(harness: &mut SchedulerHarness, step: &StepId) {
    let mut runs = harness.scheduler.runs().map(|(id, _)| id);
    let attempt = runs.find(|id| id.step == *step).cloned();
    drop(runs);
    harness.finish(&attempt.expect("it runs"));
    settle(harness);
}

/// Releases, or finishes freezing, what a step runs as.
fn release(harness: &mut SchedulerHarness, step: &StepId) {
    let runs = harness.scheduler.runs().filter(|(id, _)| id.step == *step);
    let parts: Vec<_> = runs
        .flat_map(|(id, run)| run.holding.iter().map(|node| (id.clone(), node.clone())))
        .collect();
    parts
        .iter()
        .for_each(|(id, node)| harness.release(id, node));
    settle(harness);
}

/// Memory that no policy names does not count in a share, so two steps that asked for little else were both in share
/// and preempted each other forever. The published rules do not say so: by their letter each may reclaim what the
/// other "holds more of than its reserved share".
#[test]
fn two_in_share_do_not_take_turns_at_what_does_not_count() {
    let mut harness = harness(&[], &[0], false);
    for name in ["a", "b"] {
        harness.put_policy(&pool(0), &subject(name), 0, &[(GPU, 1)], &[]);
    }
    let first = submit(&mut harness, &submission("a", &[(MEM, 8)], true));
    submit(&mut harness, &submission("b", &[(MEM, 8)], true));
    assert_eq!(running(&harness), [first]);
}

/// The same for a number of steps that the pool declares and no policy names.
#[test]
fn two_in_share_do_not_take_turns_at_the_last_step_of_a_pool() {
    let mut harness = harness(&[(STEP_RUN, 1)], &[1], false);
    for name in ["a", "b"] {
        harness.put_policy(&pool(0), &subject(name), 0, &[(GPU, 1)], &[]);
    }
    let first = submit(&mut harness, &submission("a", &[(MEM, 1)], true));
    submit(&mut harness, &submission("b", &[(MEM, 1)], true));
    assert_eq!(running(&harness), [first]);
}

/// A subject whose policy names the resource has a share of it and does reclaim it.
#[test]
fn a_share_of_steps_is_reclaimed_by_whom_it_is_reserved_for() {
    let mut harness = harness(&[(STEP_RUN, 1)], &[1], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    let terms = [(GPU, 1), (STEP_RUN, 1)];
    harness.put_policy(&pool(0), &subject("b"), 0, &terms, &[]);
    submit(&mut harness, &submission("a", &[(MEM, 1)], true));
    let second = submit(&mut harness, &submission("b", &[(MEM, 1)], true));
    assert_eq!(running(&harness), [second]);
}

/// Counted first, the small run used up its subject's excess without helping, so the waiter waited though the large
/// run alone would have been enough.
#[test]
fn a_small_run_does_not_shield_the_large_one_that_is_enough() {
    let mut harness = harness(&[], &[4], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 3)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 2)], &[]);
    submit(&mut harness, &submission("a", &[(GPU, 3)], true));
    let small = submit(&mut harness, &submission("a", &[(GPU, 1)], true));
    let waiter = submit(&mut harness, &submission("b", &[(GPU, 2)], true));
    assert_eq!(running(&harness), [small, waiter]);
}

/// A step of two pools was granted in the second pool on the turn of the first, past the head of the second, which
/// was not nominated yet: its resources went to a non-preemptible step.
#[test]
fn a_step_of_two_pools_does_not_go_round_the_head_of_the_other() {
    let mut harness = harness(&[], &[0], false);
    harness.put_pool(&pool(1), &[], 0, OPEN);
    let has = units(&[(GPU, 3), (MCPU, 3000)]);
    harness.put_host(&node(1), &pool(1), has, true);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(1), &subject("b"), 0, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(1), &subject("a"), 1, &[(GPU, 0)], &[]);
    let first = submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    let head = submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    submit(&mut harness, &submission("b", &[(GPU, 1)], true));
    let nomination = harness.scheduler.nomination(&head);
    assert_eq!(nomination.map(|n| n.pool.clone()), Some(pool(1)));
    let awaited = nomination.map(|n| n.awaits.iter().map(|id| id.step.clone()).collect());
    assert_eq!(awaited, Some(Vec::from([first])));
}

/// A step was granted the rest of its subject's limit while another step of the subject waited for its victims: they
/// were stopped in vain.
#[test]
fn nobody_takes_the_limit_of_a_waiter_whose_victims_go() {
    let mut harness = harness(&[], &[5], true);
    harness.put_policy(&pool(0), &subject("a"), 1, &[(GPU, 2)], &[(GPU, 4)]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 0)], &[]);
    submit(&mut harness, &submission("b", &[(GPU, 3)], true));
    let waiter = submit(&mut harness, &submission("a", &[(GPU, 4)], true));
    assert!(
        harness
            .scheduler
            .nomination(&waiter)
            .is_some_and(|n| n.is_firm())
    );
    submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    let victim = harness
        .scheduler
        .runs()
        .map(|(id, _)| id.clone())
        .next()
        .unwrap();
    harness.release(&victim, &node(0));
    settle(&mut harness);
    assert!(running(&harness).contains(&waiter), "{}", harness.history);
}

/// The other way round: a non-preemptible request preempts a run of its own subject for the nominated limit.
#[test]
fn a_promised_limit_is_short_for_others_of_the_subject() {
    let mut harness = harness(&[], &[6], true);
    harness.put_policy(&pool(0), &subject("a"), 1, &[(GPU, 3)], &[(GPU, 4)]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 0)], &[]);
    submit(&mut harness, &submission("b", &[(GPU, 4)], true));
    let own = submit(&mut harness, &submission("a", &[(GPU, 1)], true));
    let promised = submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    let taken = harness
        .scheduler
        .nomination(&promised)
        .map(|n| n.awaits.len());
    assert_eq!(taken, Some(1), "{}", harness.history);
    let waiter = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    assert_eq!(
        harness.scheduler.nomination(&waiter),
        None,
        "{}",
        harness.history
    );
    let firm = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    let nomination = harness.scheduler.nomination(&firm).unwrap();
    let awaited: Vec<&StepId> = nomination.awaits.iter().map(|id| &id.step).collect();
    assert_eq!(awaited, [&own], "{}", harness.history);
}

/// Counted host by host, the run of the first host used up its subject's excess and none was left for the second, so
/// the gang waited. Counted as one set in victim order, the younger run goes first and the other straddles the line.
#[test]
fn victims_for_a_gang_are_counted_off_as_one_set() {
    let mut harness = harness(&[], &[2, 2], false);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 4)], &[]);
    submit(&mut harness, &submission("b", &[(GPU, 2)], true));
    harness.pass(10).unwrap();
    submit(&mut harness, &submission("b", &[(GPU, 1)], true));
    let gang = Submission {
        nodes: 2,
        ..submission("a", &[(GPU, 2)], true)
    };
    let gang = submit(&mut harness, &gang);
    assert_eq!(running(&harness), [gang], "{}", harness.history);
}

/// A run on two hosts costs more than the run on either of two others, and less than both.
#[test]
fn one_run_on_both_hosts_of_a_gang_goes_rather_than_two() {
    let mut harness = harness(&[], &[2, 2, 2, 2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 4)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[], &[]);
    let gang = |name| Submission {
        nodes: 2,
        ..submission(name, &[(GPU, 2)], true)
    };
    submit(&mut harness, &submission("b", &[(GPU, 2)], true));
    submit(&mut harness, &submission("b", &[(GPU, 2)], true));
    harness.pass(1000).unwrap();
    let wide = submit(&mut harness, &gang("b"));
    harness.pass(1500).unwrap();
    submit(&mut harness, &gang("a"));
    assert!(!running(&harness).contains(&wide), "{}", harness.history);
    assert_eq!(running(&harness).len(), 3, "{}", harness.history);
}

/// The subject of the first run holds an excess of cores only; another victim covered the cores while GPUs were still
/// short: the waiter waited though the first run alone would have been enough of both.
#[test]
fn a_run_does_not_shield_one_that_is_short_of_more() {
    let mut harness = harness(&[], &[2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 2), (MCPU, 500)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 0, &[(GPU, 0)], &[]);
    submit(
        &mut harness,
        &submission("a", &[(GPU, 1), (MCPU, 3500)], true),
    );
    let small = submit(&mut harness, &submission("c", &[(MCPU, 500)], true));
    let waiter = submit(
        &mut harness,
        &submission("b", &[(GPU, 2), (MCPU, 500)], false),
    );
    assert_eq!(running(&harness), [small, waiter]);
}

/// Two requests are alike; the first was nominated in another pool and the second was overlooked, so the pool had no
/// head and a non-preemptible step went past it. A run that may not be preempted was looked at first, and the
/// obstacle found after it was never left out.
#[test]
fn who_is_in_the_way_of_one_is_left_out_though_another_is_spared_before() {
    let mut harness = harness(&[], &[3], false);
    for (name, priority) in [("low", 0), ("mid", 1), ("top", 2)] {
        harness.put_policy(&pool(0), &subject(name), priority, &[(GPU, 1)], &[]);
    }
    let stays = submit(
        &mut harness,
        &submission("mid", &[(GPU, 1), (MEM, 2)], false),
    );
    submit(
        &mut harness,
        &submission("top", &[(GPU, 1), (MEM, 2)], true),
    );
    let protection = submit(&mut harness, &submission("mid", &[(MEM, 3)], true));
    let freezes = Submission {
        suspends: true,
        ..submission("mid", &[(GPU, 1), (MEM, 1)], true)
    };
    submit(&mut harness, &freezes);
    let waiter = submit(
        &mut harness,
        &submission("low", &[(GPU, 1), (MEM, 3)], false),
    );
    // The new step takes the GPU of the run that freezes and fills its subject's share, so its subject's older run is
    // left over and may be preempted for the waiter, with the memory of the frozen run.
    let next = submit(&mut harness, &submission("top", &[(GPU, 1)], false));
    assert_eq!(running(&harness), [stays, protection, waiter, next]);
}

#[test]
fn of_two_that_stand_in_the_way_the_one_that_is_not_needed_is_left_out() {
    let mut harness = harness(&[], &[2], false);
    let home = pool(0);
    harness.put_policy(&home, &subject("low"), 0, &[(GPU, 2), (MEM, 6)], &[]);
    harness.put_policy(&home, &subject("mid"), 1, &[], &[]);
    harness.put_policy(&home, &subject("top"), 2, &[(GPU, 1)], &[]);
    submit(&mut harness, &submission("mid", &[(MEM, 5)], true));
    submit(
        &mut harness,
        &submission("top", &[(GPU, 1), (MEM, 1)], true),
    );
    let small = submit(&mut harness, &submission("top", &[(MEM, 2)], true));
    // The small run goes first and covers the memory, which is all that the run with the GPU may be preempted for:
    // without it the two others are enough of both.
    let waiter = submit(
        &mut harness,
        &submission("low", &[(GPU, 2), (MEM, 6)], false),
    );
    assert_eq!(running(&harness), [small, waiter]);
}

#[test]
fn the_next_of_a_kind_leads_where_the_first_is_promised_elsewhere() {
    let mut harness = harness(&[], &[2], true);
    harness.put_pool(&pool(1), &[], 0, OPEN);
    let has = units(&[(GPU, 2), (MCPU, 4000), (MEM, 8)]);
    harness.put_host(&node(1), &pool(1), has, true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 3)], &[]);
    harness.put_policy(&pool(1), &subject("a"), 1, &[(GPU, 3)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(1), &subject("b"), 0, &[(GPU, 2)], &[]);
    for n in [0, 1] {
        let firm = Submission {
            pool: Some(pool(n)),
            ..submission("a", &[(GPU, 1)], false)
        };
        submit(&mut harness, &firm);
    }
    let ask = submission("a", &[(GPU, 2)], true);
    let (first, second) = (harness.submit(&ask).unwrap(), harness.submit(&ask).unwrap());
    settle(&mut harness);
    for n in [1, 0] {
        let passing = Submission {
            pool: Some(pool(n)),
            ..submission("b", &[(GPU, 1)], false)
        };
        submit(&mut harness, &passing);
    }
    let promised = |step| harness.scheduler.nomination(step).map(|n| n.pool.clone());
    assert_eq!(promised(&first), Some(pool(1)), "{}", harness.history);
    assert_eq!(promised(&second), Some(pool(0)), "{}", harness.history);
}

/// A non-preemptible request took nothing of the runs that the head awaited, though the head did not need the memory
/// for which it would have taken them.
#[test]
fn what_the_head_awaits_goes_for_one_who_takes_what_the_head_does_not_need() {
    let mut harness = harness(&[], &[2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 2)], &[]);
    submit(&mut harness, &submission("a", &[(GPU, 1), (MEM, 8)], true));
    let stays = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    submit(&mut harness, &submission("b", &[(GPU, 2)], false));
    let waiter = submit(&mut harness, &submission("b", &[(MEM, 1)], false));
    assert_eq!(running(&harness), [stays, waiter]);
}

/// A frozen run was nominated on its own free GPU and awaited a run on another, while an earlier waiter needed any
/// free GPU. Its victims went first, and one GPU was too few for it: they were stopped in vain.
#[test]
fn what_is_frozen_is_not_promised_a_free_gpu_that_an_earlier_waiter_needs() {
    let mut harness = harness(&[], &[3, 2], true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 2)], &[]);
    let small = submission("a", &[(GPU, 1)], true);
    let stays: Vec<StepId> = (0..3).map(|_| submit(&mut harness, &small)).collect();
    let suspends = Submission {
        suspends: true,
        ..submission("b", &[(GPU, 1)], true)
    };
    let frozen = submit(&mut harness, &suspends);
    let goes = submit(&mut harness, &small);
    let waiter = submit(&mut harness, &submission("b", &[(GPU, 2)], false));
    for step in [&frozen, &goes] {
        release(&mut harness, step);
    }
    let running: Vec<StepId> = running(&harness);
    assert!(running.contains(&waiter), "{}", harness.history);
    assert!(
        stays.iter().all(|step| running.contains(step)),
        "{}",
        harness.history
    );
    assert!(harness.scheduler.nomination(&frozen).is_none());
}

/// All resources of an awaited run are reserved for the waiter: if a large victim filled up a limit, the rest is free
/// for no other request before the victim is gone, and the next request of the same subject preempts a victim of its
/// own.
#[test]
fn the_rest_of_what_another_awaits_is_nobodys_before_it_is_gone() {
    let mut harness = harness(&[], &[0, 0], true);
    let terms = ([(MEM, 4)], [(MEM, 10)]);
    harness.put_policy(&pool(0), &subject("a"), 0, &terms.0, &terms.1);
    submit(&mut harness, &submission("a", &[(MEM, 4)], true));
    submit(&mut harness, &submission("a", &[(MEM, 6)], true));
    let first = submit(&mut harness, &submission("a", &[(MEM, 1)], false));
    let second = submit(&mut harness, &submission("a", &[(MEM, 1)], false));
    let awaits = |step| harness.scheduler.nomination(step).map(|n| n.awaits.len());
    assert_eq!(awaits(&first), Some(1), "{}", harness.history);
    assert_eq!(awaits(&second), Some(1), "{}", harness.history);
}

/// The next request of the waiter's kind would be in share once the victim is gone but was overlooked, though a
/// slightly smaller one would have been seen.
#[test]
fn the_next_of_the_waiters_kind_would_take_back_too() {
    let reservations = [(GPU, 1), (MEM, 7)];
    for second in [7, 8] {
        let mut harness = harness(&[], &[3], false);
        harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 0)], &[]);
        harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 2)], &[]);
        submit(&mut harness, &submission("a", &[(MEM, 2)], false));
        submit(&mut harness, &submission("b", &reservations, true));
        submit(
            &mut harness,
            &submission("b", &[(GPU, 1), (MEM, second)], true),
        );
        let large = submit(&mut harness, &submission("b", &[(GPU, 3)], true));
        let first = harness.scheduler.runs().next().map(|(id, _)| id.clone());
        harness.finish(&first.expect("it was granted at once"));
        settle(&mut harness);
        assert_eq!(running(&harness), [large], "{}", harness.history);
    }
}

/// Two small runs and a larger one fill a reserved share. A borrower of higher priority preempts none of them, and not
/// the run above the share either, because that would not be enough.
#[test]
fn a_borrower_takes_none_of_the_runs_that_fill_a_share() {
    let mut harness = harness(&[], &[3], false);
    let terms = ([(GPU, 2), (MEM, 4)], [(MEM, 7)]);
    harness.put_policy(&pool(0), &subject("a"), 1, &terms.0, &terms.1);
    harness.put_policy(&pool(0), &subject("b"), 2, &[(GPU, 0)], &[]);
    let first = submit(&mut harness, &submission("b", &[(GPU, 1), (MEM, 5)], true));
    let large = submit(&mut harness, &submission("a", &[(GPU, 1), (MEM, 3)], true));
    let older = submit(&mut harness, &submission("a", &[(MEM, 2)], true));
    submit(&mut harness, &submission("b", &[(GPU, 2), (MEM, 1)], true));
    assert_eq!(running(&harness), [first.clone(), large.clone()]);
    let small = submit(&mut harness, &submission("a", &[(GPU, 1), (MEM, 1)], true));
    assert_eq!(
        running(&harness),
        [large, older, small],
        "{}",
        harness.history
    );
    let promised = harness.scheduler.nomination(&first);
    assert!(
        promised.is_some_and(|it| !it.is_firm()),
        "{}",
        harness.history
    );
}

/// A run whose subject lost its policy has the lowest priority, like any run of priority 0: among these the latest
/// submission is preempted first. The published rules do not say so.
#[test]
fn what_runs_without_a_policy_is_of_the_lowest_priority() {
    let mut harness = harness(&[], &[4], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 0), (MCPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 0, &[(GPU, 0)], &[]);
    submit(
        &mut harness,
        &submission("c", &[(GPU, 1), (MCPU, 500)], true),
    );
    harness.remove_policy(&pool(0), &subject("c"));
    settle(&mut harness);
    submit(
        &mut harness,
        &submission("a", &[(GPU, 1), (MCPU, 1500)], true),
    );
    let waiter = submit(
        &mut harness,
        &submission("b", &[(GPU, 4), (MCPU, 2500)], true),
    );
    assert_eq!(running(&harness), [waiter], "{}", harness.history);
}

/// A gang ends host by host. The gang that waits for both hosts was nominated when a small step started on the first
/// host, was preempted when the second became free, and kept the gang waiting while it stopped. The published rules
/// let the small step start there, as backfill.
#[test]
fn nothing_starts_on_what_a_head_is_about_to_start_on() {
    let mut harness = harness(&[], &[2, 2, 2], true);
    for name in ["a", "b"] {
        harness.put_policy(&pool(0), &subject(name), 0, &[], &[]);
    }
    let gang = |name| Submission {
        nodes: 2,
        ..submission(name, &[(GPU, 2)], true)
    };
    let ends = submit(&mut harness, &gang("a"));
    let stays = submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    let head = submit(&mut harness, &gang("b"));
    let behind = submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    let attempt = harness.scheduler.runs().map(|(id, _)| id.clone());
    let attempt = attempt.into_iter().find(|id| id.step == ends).unwrap();
    harness.finish(&attempt);
    settle(&mut harness);
    for n in [0, 1] {
        assert_eq!(running(&harness), [ends.clone(), stays.clone()]);
        harness.release(&attempt, &node(n));
        settle(&mut harness);
    }
    assert_eq!(running(&harness), [stays, head], "{}", harness.history);
    assert!(harness.scheduler.request(&behind).is_some());
}

/// While the victims for the first of several alike requests were stopping, the share was still unused, so the next
/// request preempted for it too, and so on.
#[test]
fn a_share_that_is_enough_for_one_is_taken_for_once() {
    let mut harness = harness(&[], &[3], true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 0)], &[]);
    let one = |name| submission(name, &[(GPU, 1)], true);
    (0..3).for_each(|_| drop(submit(&mut harness, &one("b"))));
    let asks = [(); 3].map(|()| submit(&mut harness, &one("a")));
    let releasing: Vec<StepId> = harness
        .scheduler
        .runs()
        .filter(|(_, run)| run.stopping)
        .map(|(id, _)| id.step.clone())
        .collect();
    assert_eq!(releasing.len(), 1, "{}", harness.history);
    release(&mut harness, &releasing[0]);
    assert!(running(&harness).contains(&asks[0]), "{}", harness.history);
    assert_eq!(
        harness.scheduler.requests().count(),
        3,
        "{}",
        harness.history
    );
}

/// Two requests are alike but for a backfill run of the second. It waits, because the first would be nominated on
/// that place.
#[test]
fn one_that_may_take_back_waits_behind_the_first_of_its_kind() {
    let mut harness = harness(&[(GPU, 4)], &[5, 3, 2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 3)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 0, &[(GPU, 0)], &[]);
    let other = submit(&mut harness, &submission("c", &[(MCPU, 1000)], false));
    let held = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    submit(&mut harness, &submission("a", &[(GPU, 2)], true));
    let backfill = submit(&mut harness, &submission("a", &[(GPU, 1)], true));
    for host in [0, 1] {
        harness.lose_host(&node(host));
        settle(&mut harness);
    }
    let runs: Vec<_> = harness.scheduler.runs().map(|(id, _)| id.clone()).collect();
    let held = runs.iter().find(|id| id.step == held);
    harness.finish(held.expect("its host is left"));
    settle(&mut harness);
    assert_eq!(running(&harness), [other, backfill], "{}", harness.history);
}

/// Missing GPUs were counted in thousandths and were always too many to find the smallest set of runs exactly. Taken by
/// size, two small runs were enough, with more GPUs than one other run.
#[test]
fn a_head_awaits_one_run_rather_than_two_that_hold_more_together() {
    let mut harness = harness(&[], &[10], false);
    for name in ["a", "b"] {
        harness.put_policy(&pool(0), &subject(name), 0, &[], &[]);
    }
    let runs = [2, 3, 4].map(|gpus| submit(&mut harness, &submission("a", &[(GPU, gpus)], true)));
    let head = submit(&mut harness, &submission("b", &[(GPU, 5)], true));
    submit(&mut harness, &submission("b", &[(GPU, 1)], true));
    let nomination = harness.scheduler.nomination(&head).unwrap();
    let awaited: Vec<&StepId> = nomination.awaits.iter().map(|id| &id.step).collect();
    assert_eq!(awaited, [&runs[2]], "{}", harness.history);
}

/// Cuts whole GPUs of a host into slices.
fn cut(harness: &mut SchedulerHarness, n: usize, gpus: u64, slices: &[(JudgedClass, u64)]) {
    harness.cut_gpus(&node(n), gpus, slices);
}

/// A preemptible submission of slices with memory.
fn of_slices(name: &str, class: JudgedClass, each: &[(usize, u64)]) -> Submission {
    Submission {
        class,
        ..submission(name, each, true)
    }
}

/// Of the free GPUs only those of the requested class were compared, so the slice was taken where free whole GPUs lost
/// their part of the memory.
#[test]
fn what_borrows_spares_free_gpus_of_other_classes_too() {
    let mut harness = harness(&[], &[2, 2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[], &[]);
    cut(&mut harness, 0, 2, &[(JudgedClass::Profile1g, 6)]);
    cut(&mut harness, 1, 1, &[(JudgedClass::Profile1g, 3)]);
    let small = of_slices("a", JudgedClass::Profile1g, &[(GPU, 1), (MEM, 4)]);
    submit(&mut harness, &small);
    let (_, run) = harness.scheduler.runs().next().unwrap();
    assert!(run.holding.contains(&node(0)), "{}", harness.history);
}

/// The head waited for whole GPUs, of which a step behind it held one that the head was promised. That one was missing
/// among the free slices, so a frozen run resumed on its own slice as if it took the slice from the head.
#[test]
fn a_frozen_run_takes_nothing_from_a_head_that_waits_for_another_class() {
    let mut harness = harness(&[], &[3], false);
    for (name, priority) in [("low", 0), ("mid", 1), ("top", 2)] {
        harness.put_policy(&pool(0), &subject(name), priority, &[], &[]);
    }
    cut(&mut harness, 0, 1, &[(JudgedClass::Profile3g, 2)]);
    let half = |name| of_slices(name, JudgedClass::Profile3g, &[(GPU, 1)]);
    submit(&mut harness, &submission("top", &[(GPU, 1)], true));
    submit(&mut harness, &half("mid"));
    let suspends = Submission {
        suspends: true,
        ..half("low")
    };
    let frozen = submit(&mut harness, &suspends);
    let taker = submit(&mut harness, &half("mid"));
    let head = submit(&mut harness, &submission("top", &[(GPU, 2)], true));
    submit(&mut harness, &submission("low", &[(GPU, 1)], true));
    assert!(harness.scheduler.nomination(&head).is_some());
    finish(&mut harness, &taker);
    let mut runs = harness.scheduler.runs();
    let (_, resumed) = runs.find(|(id, _)| id.step == frozen).unwrap();
    assert!(!resumed.is_frozen() && resumed.backfill.is_empty());
}

/// One run is on two hosts of the place, and what it frees was counted on the first of them alone when the place was
/// chosen anew, but on both when it was compared with the place that the head had: the head moved there without end.
#[test]
fn a_head_that_is_a_gang_does_not_move_to_the_place_that_it_has() {
    let mut harness = harness(&[], &[3, 3, 1], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 0)], &[]);
    let gang = |nodes, gpus| Submission {
        nodes,
        ..submission("a", &[(GPU, gpus)], true)
    };
    let long = submit(&mut harness, &gang(2, 2));
    let head = submit(&mut harness, &gang(2, 2));
    let behind = submit(&mut harness, &gang(1, 1));
    assert_eq!(running(&harness), [long, behind], "{}", harness.history);
    assert!(harness.scheduler.nomination(&head).is_some());
}

/// The subject's own run went first, was inside its share again and preempted a borrower: two preemptions, where the
/// borrower alone would have been enough.
#[test]
fn an_own_run_that_would_reclaim_at_once_stays_where_a_borrower_is_enough() {
    let mut harness = harness(&[], &[3], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 2)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 0)], &[]);
    let own = submit(&mut harness, &submission("a", &[(GPU, 1)], true));
    let older = submit(&mut harness, &submission("b", &[(GPU, 1)], true));
    let younger = submit(&mut harness, &submission("b", &[(GPU, 1)], true));
    let waiter = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    assert_eq!(running(&harness), [own.clone(), older, waiter.clone()]);
    assert!(!harness.history.contains(&format!("{own:?}, number: 2")));
    // With its share full, only its own run gives way.
    let second = submit(&mut harness, &submission("a", &[(GPU, 1)], false));
    assert!(running(&harness).contains(&second) && !running(&harness).contains(&own));
    assert!(!running(&harness).contains(&younger));
}

/// Harness of one host with two GPUs and fair share.
fn fair_harness(fair_users: bool) -> SchedulerHarness {
    let mut harness = SchedulerHarness::new(false);
    let rules = PoolRules {
        fair_share: true,
        fair_users,
        ..PoolRules::default()
    };
    harness.put_pool(&pool(0), &[], 0, rules);
    let has = units(&[(GPU, 2), (MCPU, 4000), (MEM, 8)]);
    harness.put_host(&node(0), &pool(0), has, true);
    for name in ["a", "b1"] {
        harness.put_policy(&pool(0), &subject(name), 0, &[], &[]);
    }
    harness
}

#[test]
fn who_borrowed_least_for_its_weight_goes_first() {
    let mut harness = fair_harness(false);
    let two_gpus = |name| submission(name, &[(GPU, 2)], true);
    let first = submit(&mut harness, &two_gpus("a"));
    let again = submit(&mut harness, &two_gpus("a"));
    harness.pass(10_000).unwrap();
    let other = submit(&mut harness, &two_gpus("b1"));
    finish(&mut harness, &first);
    assert_eq!(
        running(&harness),
        std::slice::from_ref(&other),
        "b1 borrowed nothing"
    );
    // The weight of b1 is 2: after twice the time it is even with a, and the first submission counts.
    let third = submit(&mut harness, &two_gpus("b1"));
    harness.pass(19_999).unwrap();
    finish(&mut harness, &other);
    assert_eq!(
        running(&harness),
        std::slice::from_ref(&third),
        "b1 borrowed less for its weight"
    );
    harness.pass(1).unwrap();
    finish(&mut harness, &third);
    assert_eq!(running(&harness), [again]);
}

#[test]
fn of_the_users_of_a_subject_who_used_least_goes_first() {
    let mut harness = fair_harness(true);
    let of = |user| Submission {
        user: Some(user),
        ..submission("a", &[(GPU, 2)], true)
    };
    let first = submit(&mut harness, &of(0));
    let again = submit(&mut harness, &of(0));
    harness.pass(10_000).unwrap();
    let other = submit(&mut harness, &of(1));
    finish(&mut harness, &first);
    assert_eq!(running(&harness), [other]);
    assert!(harness.judge.waiting.contains_key(&again));
}

/// A waiter in share is short of a GPU, which cheaper runs would give, and of memory, which only a dearer run gives that
/// holds no memory beyond its share. The dearer run alone is enough, and holds a GPU that may be reclaimed.
#[test]
fn a_run_that_is_enough_is_not_shielded_by_cheaper_ones() {
    let mut harness = SchedulerHarness::new(false);
    harness.put_pool(&pool(0), &[], 0, PoolRules::default());
    for (n, mem) in [(0, 8), (1, 4)] {
        let has = units(&[(GPU, 3), (MCPU, 64000), (MEM, mem)]);
        harness.put_host(&node(n), &pool(0), has, true);
    }
    for (name, priority, reserved) in [("a", 0, 0), ("b", 10, 1), ("c", 20, 1)] {
        harness.put_policy(&pool(0), &subject(name), priority, &[(GPU, reserved)], &[]);
    }
    let mut next = |name, gpus, mem| {
        let step = submit(
            &mut harness,
            &submission(name, &[(GPU, gpus), (MCPU, 500), (MEM, mem)], true),
        );
        harness.pass(0).unwrap();
        step
    };
    next("a", 1, 1);
    next("c", 1, 4);
    next("c", 3, 0);
    let waiter = next("b", 1, 5);
    next("a", 1, 0);
    assert!(running(&harness).contains(&waiter), "{}", harness.history);
}

/// An attempt that has ended may hold resources while the next one of its step runs and is preempted by priority. A
/// restart counts the eviction for both.
#[test]
fn an_eviction_counts_for_every_attempt_of_its_step() {
    let mut harness = harness(&[], &[2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[], &[]);
    let step = submit(&mut harness, &submission("a", &[(GPU, 1)], true));
    let (first, run) = harness.scheduler.runs().next().expect("it runs");
    let (first, run) = (first.clone(), run.clone());
    let next = AttemptId {
        step,
        number: first.number + 1,
    };
    harness.scheduler.hold(&next, run);
    let at = harness.now();
    harness.scheduler.evict(&next, at);
    for id in [first, next] {
        let run = harness.scheduler.run(&id).expect("it holds resources");
        assert_eq!(run.request.evictions, [at], "{id}");
    }
}

/// A head that waits for the only step of its pool on another host took that step back from a request that preempted
/// for it, which left the request where it was and cost a run.
#[test]
fn what_a_head_elsewhere_would_take_back_is_not_preempted_for() {
    let mut harness = harness(&[(STEP_RUN, 1)], &[1], false);
    let larger = units(&[(MCPU, 8000), (MEM, 8)]);
    harness.put_host(&node(1), &pool(0), larger, true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(MEM, 1)], &[]);
    let run = submit(
        &mut harness,
        &submission("a", &[(GPU, 1), (MCPU, 500)], true),
    );
    let head = submit(&mut harness, &submission("b", &[(MCPU, 5000)], false));
    submit(
        &mut harness,
        &submission("b", &[(MCPU, 500), (MEM, 1)], true),
    );
    assert_eq!(
        running(&harness),
        core::slice::from_ref(&run),
        "{}",
        harness.history
    );
    finish(&mut harness, &run);
    assert_eq!(running(&harness), [head]);
}

/// The head was nominated without end for the place of a run that should have ended by now: nothing bounds that run, so
/// another place held less, and by the time limits of others the same place was the earliest.
#[test]
fn a_head_does_not_await_by_its_limit_a_run_that_should_have_ended() {
    let mut harness = harness(&[], &[3, 1], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 4)], &[]);
    let limited = |gpus, mem, seconds: u64| Submission {
        time_limit: Some(seconds * 1000),
        ..submission("a", &[(GPU, gpus), (MCPU, 500), (MEM, mem)], true)
    };
    submit(&mut harness, &limited(2, 3, 3600));
    submit(&mut harness, &limited(1, 0, 1));
    submit(&mut harness, &limited(0, 6, 7200));
    harness.pass(10_000).unwrap();
    let head = submit(&mut harness, &limited(1, 5, 60));
    submit(&mut harness, &submission("a", &[(MCPU, 500)], true));
    let place = harness.judge.nominations.get(&head);
    let place = place.unwrap_or_else(|| panic!("{}", harness.history));
    assert_eq!(place.hosts, [node(0)], "{}", harness.history);
    let awaited: Vec<u32> = place.awaits.iter().map(|id| id.number).collect();
    assert_eq!(awaited, [1], "the run that ends within the hour");
}

/// Of two runs that were each enough, a borrower behind the head came to the one that the head waits for. The head would
/// have started on what it frees, so the borrower waited, though the other run lets it start.
#[test]
fn who_would_let_the_head_start_is_left_out_though_it_is_the_first_victim() {
    let mut harness = harness(&[], &[2], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 2, &[(MEM, 0)], &[]);
    let mut next = |name, gpus, mem| submit(&mut harness, &small(name, gpus, mem));
    next("a", 0, 4);
    let awaited = next("a", 1, 4);
    let head = next("c", 2, 0);
    let waiter = next("b", 1, 3);
    assert_eq!(running(&harness), [awaited, waiter], "{}", harness.history);
    assert!(harness.judge.nominations.contains_key(&head));
}

/// The same where the head would start only if both of the first victims went: then one of them is enough to leave out.
#[test]
fn of_two_that_would_let_the_head_start_one_is_left_out() {
    let mut harness = harness(&[], &[3], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 2)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 2, &[(MEM, 0)], &[]);
    let mut next = |name, gpus, mem| submit(&mut harness, &small(name, gpus, mem));
    next("a", 0, 2);
    let awaited = next("a", 1, 3);
    next("a", 1, 3);
    next("c", 3, 0);
    let waiter = next("b", 1, 5);
    assert_eq!(running(&harness), [awaited, waiter], "{}", harness.history);
}

/// A request that may take its own run is not short of memory beside the head: the head is promised nothing of what is
/// free as long as the run that it awaits holds as much as it needs. So that run, which is in its subject's share and
/// borrows memory from GPUs, does not go instead.
#[test]
fn what_the_head_does_not_need_yet_is_not_short() {
    let mut harness = harness(&[], &[2], true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 2)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 1, &[(GPU, 1)], &[]);
    let own = submission("a", &[(GPU, 1), (MCPU, 500)], true);
    let own = submit(&mut harness, &own);
    let foreign = submission("c", &[(GPU, 1), (MEM, 5), (MCPU, 500)], true);
    let foreign = submit(&mut harness, &foreign);
    let head = submission("a", &[(MEM, 4), (MCPU, 500)], false);
    let head = submit(&mut harness, &head);
    let waiter = submission("a", &[(GPU, 1), (MEM, 1), (MCPU, 500)], false);
    let waiter = submit(&mut harness, &waiter);
    assert!(harness.judge.nominations.contains_key(&head));
    release(&mut harness, &own);
    assert_eq!(running(&harness), [foreign, waiter], "{}", harness.history);
}

/// A gang that prefers one rack is placed around the head first: it gives nothing back to be near, and takes what is kept
/// for the head only if nothing else has room.
#[test]
fn a_gang_is_not_backfill_only_to_be_near() {
    for (gpus, near) in [([1, 4, 1], false), ([0, 4, 1], true)] {
        let mut harness = harness(&[], &gpus, false);
        for (n, rack) in [(0, 0), (1, 1), (2, 1)] {
            harness.put_in_rack(&node(n), Some(rack));
        }
        harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 1)], &[]);
        let of = |gpus| submission("a", &[(GPU, gpus), (MCPU, 500)], true);
        submit(&mut harness, &of(2));
        let head = submit(&mut harness, &of(4));
        let gang = Submission {
            nodes: 2,
            one_rack: Some(false),
            ..of(1)
        };
        let gang = submit(&mut harness, &gang);
        let mut runs = harness.judge.runs.values();
        let run = runs.find(|run| run.ask.step == gang).expect("it runs");
        assert_eq!(run.holding.contains(&node(1)), near);
        assert_eq!(run.backfill.contains(&head), near);
    }
}

/// A request in share that borrows cores from GPUs came to a large run and a small one. The small one would have been in
/// share again, because the large one goes, so that the request left out small runs alone, and waited: two of these are
/// enough, and stay beyond the share that the large one fills.
#[test]
fn who_would_bring_the_others_back_is_left_out() {
    let mut harness = SchedulerHarness::new(false);
    harness.put_pool(&pool(0), &[], 0, PoolRules::default());
    let has = units(&[(GPU, 5), (MCPU, 3000), (MEM, 4)]);
    harness.put_host(&node(0), &pool(0), has, true);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 3)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 0, &[(GPU, 1)], &[]);
    let mut next = |name, gpus, mcpu| {
        let each = [(GPU, gpus), (MCPU, mcpu)];
        submit(&mut harness, &submission(name, &each, true))
    };
    next("a", 1, 500);
    next("a", 1, 500);
    let large = next("a", 3, 500);
    let waiter = next("b", 1, 2500);
    assert_eq!(running(&harness), [large, waiter], "{}", harness.history);
}

/// A request that borrows cores from GPUs came to a run that it may reclaim and to one that went past it. Either would have
/// been in share again without both, so that both were left out; with a run that is never in share in place of the first,
/// the second stays out of its share.
#[test]
fn one_of_two_that_would_come_back_is_left_out() {
    let mut harness = SchedulerHarness::new(false);
    harness.put_pool(&pool(0), &[], 0, PoolRules::default());
    for (n, gpus) in [(0, 1), (1, 2)] {
        let has = units(&[(GPU, gpus), (MCPU, 64_000), (MEM, 7)]);
        harness.put_host(&node(n), &pool(0), has, true);
    }
    harness.put_policy(&pool(0), &subject("a"), 0, &[(MEM, 5)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(MEM, 3)], &[]);
    let mut next = |name, gpus, mem| submit(&mut harness, &small(name, gpus, mem));
    next("b", 0, 2);
    next("a", 0, 0);
    next("b", 2, 1);
    let kept = next("b", 0, 2);
    let waiter = next("a", 0, 5);
    harness.lose_host(&node(0));
    settle(&mut harness);
    let running = running(&harness);
    assert!(running.contains(&kept), "{}", harness.history);
    assert!(running.contains(&waiter), "{}", harness.history);
}

/// Two requests of one group: the first is the head and lacks memory alone, which nobody gives it. For the second, what is
/// kept for the head takes the last GPU, so that it may preempt a run that borrows GPUs. The group was thought to be blocked,
/// because its first place is that of the head, from which nothing is kept.
#[test]
fn a_group_that_begins_with_the_head_is_checked_with_what_is_kept_for_it() {
    let mut harness = harness(&[], &[3], false);
    harness.put_policy(&pool(0), &subject("a"), 0, &[(GPU, 0), (MEM, 4)], &[]);
    harness.put_policy(&pool(0), &subject("b"), 1, &[(GPU, 0)], &[]);
    harness.put_policy(&pool(0), &subject("c"), 0, &[(GPU, 0), (MEM, 0)], &[]);
    let mut next = |name, gpus, mem| submit(&mut harness, &small(name, gpus, mem));
    let first = next("b", 0, 2);
    next("a", 2, 4);
    next("b", 1, 3);
    let backfill = next("c", 0, 1);
    let second = next("b", 1, 4);
    let expected = [first, backfill, second];
    assert_eq!(running(&harness), expected, "{}", harness.history);
}
