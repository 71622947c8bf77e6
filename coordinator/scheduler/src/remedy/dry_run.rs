//! Tries changes on a copy of the scheduler: applies them, plays the scheduler's own decisions, and rolls everything
//! back. One copy serves all changes that are tried for a request.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::time::Time;

use crate::decide::Decision;
use crate::model::host::Host;
use crate::model::nomination::Nomination;
use crate::model::pool::PoolTerms;
use crate::model::request::{Request, Run};
use crate::model::scheduler::Scheduler;

/// More decisions than one change causes.
const MAX_DECISIONS: usize = 256;
/// Requests that are taken out of the queue one by one: more are left out by making the queue anew.
const FEW: usize = if cfg!(test) { 1 } else { 64 };
/// No attempt has this number, because a step ends before.
const HYPOTHETICAL_ATTEMPT: u32 = u32::MAX;

/// The start of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    AtOnce,
    /// When this many runs have stopped.
    AfterStops(usize),
}

/// A scheduler on which changes are tried.
#[derive(Debug)]
pub(crate) struct DryRun {
    scheduler: Scheduler,
    original: OriginalState,
}

/// Each changed thing as it was before its first change.
#[derive(Debug, Default)]
struct OriginalState {
    terms: BTreeMap<PoolName, PoolTerms>,
    /// `None` if the subject had no policy of its own.
    policies: BTreeMap<(PoolName, Subject), Option<PolicySpec>>,
    hosts: BTreeMap<NodeName, Host>,
    requests: BTreeMap<StepId, Option<Arc<Request>>>,
    runs: BTreeMap<AttemptId, Option<Run>>,
    nominations: BTreeMap<StepId, Option<Nomination>>,
}

impl DryRun {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        Self {
            scheduler: scheduler.clone(),
            original: OriginalState::default(),
        }
    }

    /// The scheduler with the changes.
    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Leaves requests out of everything from here on.
    pub(crate) fn withhold(&mut self, steps: &[&StepId]) {
        if steps.len() <= FEW {
            steps.iter().for_each(|step| self.scheduler.dequeue(step));
            return;
        }
        let steps: BTreeSet<&StepId> = steps.iter().copied().collect();
        self.scheduler.keep_requests(|step| !steps.contains(step));
    }

    /// Rolls all changes back.
    pub(crate) fn roll_back(&mut self) {
        let original = core::mem::take(&mut self.original);
        let scheduler = &mut self.scheduler;
        original
            .nominations
            .keys()
            .for_each(|id| scheduler.withdraw(id));
        original
            .requests
            .keys()
            .for_each(|id| scheduler.dequeue(id));
        for id in original.runs.keys() {
            scheduler.detach_run(id);
        }
        for (name, terms) in original.terms {
            scheduler.put_pool(&name, terms);
        }
        for ((pool, subject), policy) in original.policies {
            match policy {
                Some(policy) => scheduler.put_policy(&pool, &subject, policy),
                None => scheduler.remove_policy(&pool, &subject),
            }
        }
        for (node, old) in original.hosts {
            scheduler.change_host(&node, |host| {
                host.capacity = old.capacity;
                host.hardware = old.hardware;
                host.schedulable = old.schedulable;
            });
        }
        for (id, run) in original.runs {
            if let Some(run) = run {
                scheduler.hold(&id, run);
            }
        }
        for request in original.requests.into_values().flatten() {
            scheduler.enqueue(request);
        }
        for (id, nomination) in original.nominations {
            if let Some(nomination) = nomination {
                scheduler.nominate(&id, nomination);
            }
        }
    }

    pub(crate) fn change_terms(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolTerms)) {
        let Some(terms) = self.scheduler.pool(name).map(|pool| pool.terms().clone()) else {
            return;
        };
        let mut changed = terms.clone();
        change(&mut changed);
        self.original.terms.entry(name.clone()).or_insert(terms);
        self.scheduler.put_pool(name, changed);
    }

    pub(crate) fn put_policy(&mut self, pool: &PoolName, subject: &Subject, policy: PolicySpec) {
        let known = self.scheduler.pool(pool);
        let own = known.and_then(|pool| pool.own_policy(subject)).cloned();
        let noted = self
            .original
            .policies
            .entry((pool.clone(), subject.clone()));
        noted.or_insert(own);
        self.scheduler.put_policy(pool, subject, policy);
    }

    /// Changes what a host has or whether it takes new work.
    pub(crate) fn change_host(&mut self, node: &NodeName, change: impl FnOnce(&mut Host)) {
        let Some(host) = self.scheduler.host(node) else {
            return;
        };
        let noted = self.original.hosts.entry(node.clone());
        noted.or_insert_with(|| host.clone());
        self.scheduler.change_host(node, change);
    }

    pub(crate) fn replace_request(&mut self, request: Request) {
        self.dequeue(&request.step);
        self.enqueue(request);
    }

    /// Whether and how a request would start in a pool: plays decisions until it does, with its victims gone at once.
    /// `None` also if another request has to preempt first, because the time of that is not known.
    pub(crate) fn would_start(
        &mut self,
        step: &StepId,
        name: &PoolName,
        now: Time,
    ) -> Option<Start> {
        let mut start = Start::AtOnce;
        for _ in 0..MAX_DECISIONS {
            match self.scheduler.next_decision(name, now)? {
                Decision::Grant { step: granted, .. } if granted == *step => return Some(start),
                Decision::Grant {
                    step,
                    pool,
                    hosts,
                    backfill,
                    platform: _,
                } => self.grant(&step, pool, hosts.into_iter().collect(), backfill, now),
                Decision::Nominate {
                    step: promised,
                    nomination,
                    victims,
                    frozen,
                    evicted: _,
                } => {
                    let awaited = nomination.awaits.clone();
                    let is_firm = nomination.is_firm();
                    self.nominate(&promised, nomination);
                    if promised == *step && is_firm {
                        start = Start::AfterStops(awaited.len());
                        self.end_runs(&awaited, &frozen);
                    } else if !victims.is_empty() {
                        return None;
                    }
                }
                Decision::Withdraw { step: other } if other == *step && start != Start::AtOnce => {
                    return None;
                }
                Decision::Withdraw { step } => self.withdraw(&step),
            }
        }
        None
    }

    /// Ends runs and queues them again; frozen ones wait to be resumed.
    fn end_runs(&mut self, gone: &BTreeSet<AttemptId>, frozen: &BTreeSet<AttemptId>) {
        for id in gone {
            let Some(run) = self.scheduler.run(id).cloned() else {
                continue;
            };
            self.note_run(id);
            // A frozen run no longer waits to be resumed.
            self.dequeue(&id.step);
            if frozen.contains(id) || (run.is_freezing() && !run.stopping) {
                self.scheduler.freeze(id, 0);
                self.scheduler.await_resumption(id);
                continue;
            }
            for node in &run.holding {
                self.scheduler.release(id, node);
            }
            if !run.is_releasing() {
                self.enqueue(run.request);
            }
        }
    }

    fn grant(
        &mut self,
        step: &StepId,
        pool: PoolName,
        hosts: BTreeSet<NodeName>,
        backfill: BTreeSet<StepId>,
        now: Time,
    ) {
        let Some(request) = self.scheduler.request(step).cloned() else {
            return;
        };
        self.dequeue(step);
        if let Some(resumes) = &request.resumes {
            self.note_run(&resumes.attempt);
            return self.scheduler.thaw(&resumes.attempt, &backfill);
        }
        let wanted = request.each.mgpu();
        let awaited = hosts.iter().filter_map(|node| {
            let gpus = self.scheduler.awaited_gpus_to_grant(node, wanted)?;
            Some((node.clone(), gpus))
        });
        let gpus = awaited.collect();
        let run = Run {
            request,
            pool,
            holding: hosts,
            granted: now,
            started: None,
            saved: None,
            stopping: false,
            backfill,
            gpus,
            frozen: None,
        };
        let id = AttemptId {
            step: step.clone(),
            number: HYPOTHETICAL_ATTEMPT,
        };
        self.note_run(&id);
        self.scheduler.hold(&id, run);
    }

    fn enqueue(&mut self, request: Request) {
        self.note_request(&request.step);
        self.scheduler.enqueue(request);
    }

    fn dequeue(&mut self, step: &StepId) {
        self.note_request(step);
        self.scheduler.dequeue(step);
    }

    fn nominate(&mut self, step: &StepId, nomination: Nomination) {
        self.note_nomination(step);
        // A nomination may replace the pool's soft one.
        let pool = self.scheduler.pool(&nomination.pool);
        if let Some(soft) = pool.and_then(|pool| pool.soft_nomination()).cloned() {
            self.note_nomination(&soft);
        }
        self.scheduler.nominate(step, nomination);
    }

    fn withdraw(&mut self, step: &StepId) {
        self.note_nomination(step);
        self.scheduler.withdraw(step);
    }

    fn note_request(&mut self, step: &StepId) {
        let request = self.scheduler.requests.get(step);
        let noted = self.original.requests.entry(step.clone());
        noted.or_insert_with(|| request.cloned());
        self.note_nomination(step);
    }

    fn note_nomination(&mut self, step: &StepId) {
        let nomination = self.scheduler.nomination(step);
        let noted = self.original.nominations.entry(step.clone());
        noted.or_insert_with(|| nomination.cloned());
    }

    /// Saves a run and the nominations that await its end.
    fn note_run(&mut self, id: &AttemptId) {
        let run = self.scheduler.run(id);
        let noted = self.original.runs.entry(id.clone());
        noted.or_insert_with(|| run.cloned());
        let waiters: Vec<StepId> = self.scheduler.awaiting(id).cloned().collect();
        for waiter in &waiters {
            self.note_nomination(waiter);
        }
    }
}
