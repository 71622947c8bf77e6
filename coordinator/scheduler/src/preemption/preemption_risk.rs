//! Says which runs could be preempted and by whom, for explanations and for changes of policies. The rules are those
//! of `candidates` and `what_if`, for any waiting request.
//!
//! A run is at risk if it holds a metered resource of which its subject uses more than is reserved. Of a resource
//! that is not metered every subject holds "more", but a run that is otherwise inside its share is protected, because
//! it would be in share again at once. Such resources never put a run at risk by themselves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::amount::{ResourceKey, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::time::{Span, Time};

use crate::model::account::Account;
use crate::model::loss_budget::BeyondBudget;
use crate::model::pool::Pool;
use crate::model::request::Run;
use crate::model::scheduler::Scheduler;
use crate::preemption::protection;
use crate::preemption::share::runs_in_share;

/// By whom a run could be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionRisk<'a> {
    /// Whether its subject is within its reserved share of every metered resource that the run holds.
    pub in_share: bool,
    /// Resources of the run of which its subject uses more than is reserved, with both amounts. A request that is
    /// short of one of these may preempt it.
    pub above_reserved: Vec<(&'a str, u64, u64)>,
    /// Until when `min_runtime` protects it.
    pub protected_until: Option<Time>,
    /// Why the pool's budget for lost work protects it from priority.
    pub beyond_budget: Option<BeyondBudget>,
    pub preemptible: bool,
    /// Waiting requests that it went past; these may take its resources back.
    pub backfill: Vec<&'a StepId>,
    /// Subjects of a higher priority in its pool, if the run is not within its subject's reserved share.
    pub above: Vec<(&'a Subject, u64)>,
    /// Resources that the run borrows from the GPUs of its hosts: the host, the resource, the amount held there and the
    /// amount that its GPUs carry.
    pub borrowed_from_gpus: Vec<(&'a NodeName, &'static str, u64, u64)>,
    /// Subjects of a higher priority in its pool, if the run borrows from GPUs.
    pub higher: Vec<(&'a Subject, u64)>,
}

/// The possible preemptions of a pool, because subjects hold more than their share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossiblePreemptions {
    /// Owner of the runs, resource, and the subject that could preempt them.
    held: BTreeSet<(Subject, ResourceKey, Subject)>,
    /// Time for which runs are protected.
    spare: Span,
}

impl Scheduler {
    /// By whom a run could be preempted.
    pub fn preemption_risk<'a>(
        &'a self,
        attempt: &AttemptId,
        now: Time,
    ) -> Option<PreemptionRisk<'a>> {
        let run = self.run(attempt)?;
        let pool = self.pools.get(&run.pool)?;
        let account = pool.account(&run.request.subject)?;
        let above_reserved = above_reserved(pool, account, run);
        let by_priority = above_reserved
            .iter()
            .any(|(key, ..)| !runs_in_share(self, pool, account, key).contains(attempt));
        let higher = |counts: bool| {
            let others = pool.policies().filter(move |(subject, policy)| {
                let other = **subject != run.request.subject;
                counts && other && policy.priority > account.priority()
            });
            let others = others.map(|(subject, policy)| (subject, policy.priority));
            others.collect::<Vec<_>>()
        };
        let borrowed_from_gpus: Vec<_> = borrowed_from_gpus(pool, run).collect();
        let waits = |waiter: &&StepId| self.requests.contains_key(*waiter);
        Some(PreemptionRisk {
            in_share: above_reserved.is_empty(),
            above_reserved,
            protected_until: protection::protected_until(pool, run.start_time(), now),
            beyond_budget: pool.beyond_budget(run.unsaved_work(), now),
            preemptible: run.request.preemptible,
            backfill: run.backfill.iter().filter(waits).collect(),
            above: higher(by_priority),
            higher: higher(!borrowed_from_gpus.is_empty()),
            borrowed_from_gpus,
        })
    }

    /// Lists which subjects could preempt whom in a pool; with `about`, only what these subjects hold or could take.
    pub fn possible_preemptions(
        &self,
        name: &PoolName,
        about: Option<&BTreeSet<&Subject>>,
    ) -> PossiblePreemptions {
        let pool = self.pools.get(name);
        let accounts = pool.into_iter().flat_map(Pool::accounts);
        let accounts = accounts.filter(|(_, account)| !account.runs.is_empty());
        let mut held = BTreeSet::new();
        for (pool, (owner, account)) in accounts.filter_map(|it| Some((pool?, it))) {
            let borrowed = self.keys_borrowed_from_gpus(pool, account);
            let counted = counted_excess(pool, account).cloned();
            for key in counted.chain(borrowed) {
                let could = |policy: &PolicySpec| match pool.is_metered(key.as_str()) {
                    true => could_preempt(policy, account, &key),
                    false => reclaims_from_gpus(policy, account),
                };
                let preemptors = preemptors(pool, owner, about);
                let preemptors = preemptors.filter(|(_, policy)| could(policy));
                held.extend(
                    preemptors
                        .map(|(preemptor, _)| (owner.clone(), key.clone(), preemptor.clone())),
                );
            }
        }
        let spare = pool.map_or(Span::ZERO, |pool| pool.terms().min_runtime);
        PossiblePreemptions { held, spare }
    }

    /// Whether a run holds a metered resource, or borrows another from GPUs.
    fn could_be_taken_for(&self, name: &PoolName, run: &Run, key: &ResourceKey) -> bool {
        let Some(pool) = self.pool(name) else {
            return false;
        };
        match pool.is_metered(key.as_str()) {
            true => run.demand().get(key.as_str()) > 0,
            false => {
                borrowed_from_gpus(pool, run).any(|(_, borrowed, ..)| key.as_str() == borrowed)
            }
        }
    }

    /// The resources that runs of a subject borrow from GPUs.
    fn keys_borrowed_from_gpus(&self, pool: &Pool, account: &Account) -> BTreeSet<ResourceKey> {
        let runs = account.runs.keys().filter_map(|id| self.run(id));
        let keys = runs.flat_map(|run| borrowed_from_gpus(pool, run));
        keys.filter_map(|(_, key, ..)| ResourceKey::new(key).ok())
            .collect()
    }

    /// The runs of a pool that can be preempted now and could not before.
    pub fn newly_at_risk(
        &self,
        name: &PoolName,
        before: &PossiblePreemptions,
        about: Option<&BTreeSet<&Subject>>,
        now: Time,
    ) -> BTreeSet<AttemptId> {
        let PossiblePreemptions { held, spare } = self.possible_preemptions(name, about);
        let was_spared = |run: &Run| {
            let until = run.start_time() + before.spare;
            until > now && until > run.start_time() + spare
        };
        // Whether a subject can preempt now that could not before, and whether one can by reclaim.
        let mut exposed: BTreeMap<(&Subject, &ResourceKey), (bool, bool)> = BTreeMap::new();
        let reserves = |preemptor: &Subject, key: &ResourceKey| {
            let policy = self.pool(name).and_then(|pool| pool.policy(preemptor));
            policy.is_some_and(|policy| policy.reserved(key.as_str()).is_some_and(|it| it > 0))
        };
        for claim in &held {
            let (owner, key, preemptor) = claim;
            let (is_new, reclaims) = exposed.entry((owner, key)).or_default();
            *is_new |= !before.held.contains(claim);
            *reclaims |= reserves(preemptor, key);
        }
        let mut found = BTreeSet::new();
        for ((owner, key), (is_new, reclaims)) in exposed {
            let account = self.pool(name).and_then(|pool| pool.account(owner));
            let held = account.filter(|_| !reclaims);
            let held = held.zip(self.pool(name));
            let held = held.map(|(account, pool)| runs_in_share(self, pool, account, key.as_str()));
            let runs = self.runs_of(name, Some(owner));
            let runs = runs.filter(|(id, _)| held.as_ref().is_none_or(|held| !held.contains(id)));
            let runs = runs.filter(|(_, run)| run.request.preemptible && !run.is_releasing());
            let runs = runs.filter(|(_, run)| self.could_be_taken_for(name, run, key));
            let runs = runs.filter(|(_, run)| is_new || was_spared(run));
            found.extend(runs.map(|(id, _)| id.clone()));
        }
        found
    }
}

/// The resources that a run holds and of which its subject uses more than its share; none if the run is inside its
/// share.
fn above_reserved<'a>(pool: &Pool, account: &'a Account, run: &Run) -> Vec<(&'a str, u64, u64)> {
    let held = |key: &str| run.demand().get(key) > 0;
    // The maximum number of steps of a host has nothing to do with shares.
    let matters = |key: &str| pool.counts_in_share(account, key) || key != STEP_RUN;
    let excess = pool.excess(account);
    let excess = excess.filter(|(key, ..)| held(key) && matters(key));
    let above_reserved: Vec<_> = excess.collect();
    match above_reserved
        .iter()
        .any(|(key, ..)| pool.counts_in_share(account, key))
    {
        true => above_reserved,
        false => Vec::new(),
    }
}

fn counted_excess<'a>(
    pool: &'a Pool,
    account: &'a Account,
) -> impl Iterator<Item = &'a ResourceKey> {
    let used = account.used.iter().map(|(key, _)| key);
    used.filter(|key| {
        pool.counts_in_share(account, key.as_str()) && account.above_reserved(key.as_str(), 0) > 0
    })
}

/// The policies of subjects that could preempt runs of `owner`: all others, or those in `about`.
fn preemptors<'a>(
    pool: &'a Pool,
    owner: &'a Subject,
    about: Option<&'a BTreeSet<&'a Subject>>,
) -> impl Iterator<Item = (&'a Subject, &'a PolicySpec)> {
    let about = about.filter(|about| !about.contains(owner));
    let all = about.is_none().then(|| pool.policies());
    let some = about.into_iter().flatten();
    let some = some.filter_map(|subject| Some((*subject, pool.policy(subject)?)));
    let preemptors = all.into_iter().flatten().chain(some);
    preemptors.filter(move |(preemptor, _)| *preemptor != owner)
}

/// Resources that a run borrows from the GPUs of its hosts: host, resource, amount held there, and amount that its GPUs
/// carry.
fn borrowed_from_gpus<'a>(
    pool: &'a Pool,
    run: &'a Run,
) -> impl Iterator<Item = (&'a NodeName, &'static str, u64, u64)> {
    let each = run.each();
    let hosts = run.holding.iter();
    let hosts = hosts.filter_map(|node| Some((node, pool.hosts().get(node)?)));
    hosts.flat_map(move |(node, host)| {
        let borrowed = pool.borrowed_from_gpus(host, each).iter();
        let borrowed = borrowed.filter(|(_, amount)| *amount > 0);
        borrowed.map(move |(key, amount)| (node, key, each.get(key), each.get(key) - amount))
    })
}

/// By priority, or with a reserved share of anything that the pool meters.
fn reclaims_from_gpus(preemptor: &PolicySpec, owner: &Account) -> bool {
    let mut reserved = preemptor.reserved.iter();
    let reserves = reserved.any(|(key, amount)| *amount > 0 && key.as_str() != STEP_RUN);
    preemptor.priority > owner.priority() || reserves
}

/// By priority, or by reclaim with a reserved share.
fn could_preempt(preemptor: &PolicySpec, owner: &Account, key: &ResourceKey) -> bool {
    let reserved = preemptor.reserved(key.as_str());
    preemptor.priority > owner.priority() || reserved.is_some_and(|reserved| reserved > 0)
}
