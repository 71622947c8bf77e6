//! The state of the scheduler, and how each fact changes it. Every fact is indexed, so that no decision goes through
//! all steps or all hosts.

pub(crate) mod fair_uses;
mod freezing;
mod nominating;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, LevelName, NodeName, PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::time::Time;

use crate::model::host::{Host, HostInventory};
use crate::model::nomination::Nomination;
use crate::model::pool::{Pool, PoolTerms};
use crate::model::replicas::ReplicaHosts;
use crate::model::request::{Request, Run};

/// Everything that the scheduler knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduler {
    pub(crate) pools: BTreeMap<PoolName, Pool>,
    pub(crate) pool_of_host: BTreeMap<NodeName, PoolName>,
    /// Waiting requests by step; a copy of the scheduler shares them.
    pub(crate) requests: BTreeMap<StepId, Arc<Request>>,
    /// Waiting requests by subject.
    pub(crate) waiting: BTreeMap<Subject, BTreeSet<StepId>>,
    /// Runs by attempt; a copy of the scheduler shares them.
    pub(crate) runs: BTreeMap<AttemptId, Arc<Run>>,
    pub(crate) nominations: BTreeMap<StepId, Nomination>,
    /// Nominated requests by the run whose end they await.
    pub(crate) awaiting: BTreeMap<AttemptId, BTreeSet<StepId>>,
    /// Replicas that are spread over hosts.
    pub(crate) replicas: ReplicaHosts,
    /// Runs of deleted pools.
    pub(crate) orphaned_runs: BTreeMap<PoolName, BTreeSet<AttemptId>>,
    /// Levels of the topology, the widest first.
    pub(crate) levels: Vec<LevelName>,
    /// Time of the last fact. Use for fair share is counted until then.
    pub(crate) clock: Time,
    /// Subjects whose decayed use changed since it was taken.
    pub(crate) settled: BTreeSet<(PoolName, Subject)>,
}

impl Scheduler {
    /// A pool by name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.get(name)
    }

    /// All pools by name.
    pub fn pools(&self) -> impl Iterator<Item = (&PoolName, &Pool)> {
        self.pools.iter()
    }

    /// All waiting requests by step.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.values().map(|request| &**request)
    }

    /// Runs that hold resources of a host, by attempt.
    pub fn runs_on(&self, node: &NodeName) -> Vec<AttemptId> {
        let host = self.host(node);
        host.into_iter()
            .flat_map(|host| host.runs.iter().cloned())
            .collect()
    }

    /// All runs that hold resources, by attempt.
    pub fn runs(&self) -> impl Iterator<Item = (&AttemptId, &Run)> {
        self.runs.iter().map(|(id, run)| (id, &**run))
    }

    /// The runs of a pool that its time limits end by now.
    pub fn beyond_time_limit(
        &self,
        pool: &PoolName,
        now: Time,
    ) -> impl Iterator<Item = &AttemptId> {
        let pool = self.pools.get(pool).into_iter();
        pool.flat_map(move |pool| pool.by_end.range(..=now).flat_map(|(_, runs)| runs))
    }

    /// The queued request of a step.
    pub fn request(&self, step: &StepId) -> Option<&Request> {
        self.requests.get(step).map(|request| &**request)
    }

    /// The run of an attempt, while it holds resources.
    pub fn run(&self, attempt: &AttemptId) -> Option<&Run> {
        self.runs.get(attempt).map(|run| &**run)
    }

    /// The nomination of a request.
    pub fn nomination(&self, step: &StepId) -> Option<&Nomination> {
        self.nominations.get(step)
    }

    /// Sets the levels of the topology, the widest first. The paths of hosts come with their inventories.
    pub fn set_levels(&mut self, levels: Vec<LevelName>) {
        self.levels = levels;
    }

    /// Levels of the topology, the widest first.
    pub fn levels(&self) -> &[LevelName] {
        &self.levels
    }

    /// Creates a pool or changes its terms.
    pub fn put_pool(&mut self, name: &PoolName, terms: PoolTerms) {
        let made = !self.pools.contains_key(name);
        self.settle_pool(name);
        let pool = self.pools.entry(name.clone()).or_default();
        let reorders = pool.terms().fair_users != terms.fair_users;
        pool.set_terms(terms);
        if made {
            // A pool of this name may have been deleted while its runs went on.
            for id in self.orphaned_runs.remove(name).into_iter().flatten() {
                if let Some(run) = self.runs.get(&id) {
                    pool.hold(&id, run);
                }
            }
        }
        self.settle_pool(name);
        if reorders {
            self.rebuild_all_queues(name);
        }
    }

    /// Removes a pool without hosts. Its remaining runs belong to no account; requests that waited for it alone wait
    /// for nothing.
    pub fn remove_pool(&mut self, name: &PoolName) {
        let promised: Vec<StepId> = self.nominated_in(name).cloned().collect();
        for step in promised {
            self.withdraw(&step);
        }
        self.settle_pool(name);
        let Some(pool) = self.pools.remove(name) else {
            return;
        };
        let runs = pool
            .accounts()
            .values()
            .flat_map(|account| account.runs.keys());
        let runs: BTreeSet<AttemptId> = runs.cloned().collect();
        if !runs.is_empty() {
            self.orphaned_runs.insert(name.clone(), runs);
        }
    }

    /// Requests that are nominated in a pool.
    pub fn nominated_in(&self, name: &PoolName) -> impl Iterator<Item = &StepId> {
        let pool = self.pools.get(name).into_iter();
        pool.flat_map(|pool| pool.firm_nominations.iter().chain(&pool.soft_nomination))
    }

    /// Requests whose nominations await the end of a run.
    pub fn awaiting(&self, attempt: &AttemptId) -> impl Iterator<Item = &StepId> {
        self.awaiting.get(attempt).into_iter().flatten()
    }

    /// Sets the policy of a subject in a pool. The subject's waiting requests join the queue of this pool.
    pub fn put_policy(&mut self, pool: &PoolName, subject: &Subject, policy: PolicySpec) {
        self.settle_affected(pool, subject);
        let Some(known) = self.pools.get_mut(pool) else {
            return;
        };
        // The queue depends on whether there is a policy, not on what it says.
        let had_one = known.put_policy(subject, policy);
        if !had_one {
            self.rebuild_affected_queues(pool, subject);
        }
    }

    /// Removes the policy of a subject in a pool. Its runs there go on.
    pub fn remove_policy(&mut self, pool: &PoolName, subject: &Subject) {
        self.settle_affected(pool, subject);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.remove_policy(subject);
        }
        self.rebuild_affected_queues(pool, subject);
    }

    /// The policy for everyone affects all subjects with waiting requests.
    fn rebuild_affected_queues(&mut self, pool: &PoolName, subject: &Subject) {
        if !subject.is_everyone() {
            return self.rebuild_queue_of(pool, subject);
        }
        self.rebuild_all_queues(pool);
    }

    fn rebuild_all_queues(&mut self, pool: &PoolName) {
        let all: Vec<Subject> = self.waiting.keys().cloned().collect();
        all.iter()
            .for_each(|subject| self.rebuild_queue_of(pool, subject));
    }

    /// Drops all waiting requests but some; nominations stay.
    pub(crate) fn keep_requests(&mut self, is_kept: impl Fn(&StepId) -> bool) {
        self.requests.retain(|step, _| is_kept(step));
        let pools: Vec<PoolName> = self.pools.keys().cloned().collect();
        let subjects = self.waiting.values_mut();
        subjects.for_each(|steps| steps.retain(&is_kept));
        pools.iter().for_each(|pool| self.rebuild_all_queues(pool));
        self.waiting.retain(|_, steps| !steps.is_empty());
    }

    fn rebuild_queue_of(&mut self, name: &PoolName, subject: &Subject) {
        let Some(pool) = self.pools.get_mut(name) else {
            return;
        };
        let waiting = self.waiting.get(subject).into_iter().flatten();
        let waiting = waiting.filter_map(|step| self.requests.get(step).map(Arc::as_ref));
        let made = pool.terms().made;
        let waiting = waiting.filter(|request| request.may_run_in(name, made));
        let nominations = &self.nominations;
        let is_nominated = |step: &StepId| nominations.get(step).is_some_and(Nomination::is_firm);
        pool.rebuild_queue(subject, waiting, is_nominated);
    }

    /// Adds a host to a pool, or changes what it has and whether it takes new work.
    pub fn put_host(
        &mut self,
        node: &NodeName,
        pool: &PoolName,
        inventory: HostInventory,
        open: bool,
    ) {
        let is_there = self.pool_of_host.get(node) == Some(pool);
        let known = self.host(node).filter(|_| is_there);
        if known.is_some_and(|host| host.is_known_as(&inventory, open)) {
            return;
        }
        if known.is_none() {
            let host = self.take_host(node).unwrap_or_default();
            self.pool_of_host.insert(node.clone(), pool.clone());
            let pool = self.pools.entry(pool.clone()).or_default();
            pool.put_host(node, host);
        }
        let Self { pools, runs, .. } = self;
        let Some(pool) = pools.get_mut(pool) else {
            return;
        };
        pool.change_host(node, |host| {
            host.set_inventory(inventory);
            host.schedulable = open;
            host.gpus_by_run = BTreeMap::new();
            for id in &host.runs.clone() {
                if let Some(run) = runs.get(id) {
                    host.index_gpus(id, node, run);
                }
            }
        });
    }

    /// Removes a host from its pool.
    pub fn remove_host(&mut self, node: &NodeName) {
        self.take_host(node);
    }

    fn take_host(&mut self, node: &NodeName) -> Option<Host> {
        let pool = self.pool_of_host.remove(node)?;
        self.pools.get_mut(&pool)?.remove_host(node)
    }

    pub(crate) fn pool_of_host_mut(&mut self, node: &NodeName) -> Option<&mut Pool> {
        self.pools.get_mut(self.pool_of_host.get(node)?)
    }

    pub(crate) fn host(&self, node: &NodeName) -> Option<&Host> {
        let pool = self.pools.get(self.pool_of_host.get(node)?)?;
        pool.hosts().get(node)
    }

    pub(crate) fn change_host(&mut self, node: &NodeName, change: impl FnOnce(&mut Host)) {
        if let Some(pool) = self.pool_of_host_mut(node) {
            pool.change_host(node, change);
        }
    }

    /// Queues a request in every pool where its subject has a policy, or in the one that it names.
    pub fn enqueue(&mut self, request: impl Into<Arc<Request>>) {
        let request = request.into();
        for (_, pool) in self.pools_for_mut(&request) {
            pool.enqueue(&request);
        }
        let subject = self.waiting.entry(request.subject.clone()).or_default();
        subject.insert(request.step.clone());
        self.requests.insert(request.step.clone(), request);
    }

    /// Removes a request from all queues, with its nomination.
    pub fn dequeue(&mut self, step: &StepId) {
        self.withdraw(step);
        let Some(request) = self.requests.remove(step) else {
            return;
        };
        for (_, pool) in self.pools_for_mut(&request) {
            pool.dequeue(&request);
        }
        if let Entry::Occupied(mut subject) = self.waiting.entry(request.subject.clone()) {
            subject.get_mut().remove(step);
            if subject.get().is_empty() {
                subject.remove();
            }
        }
    }

    /// Grants resources to a run.
    pub fn hold(&mut self, attempt: &AttemptId, run: Run) {
        self.settle(&run.pool, &run.request.subject);
        match self.pools.get_mut(&run.pool) {
            Some(pool) => pool.hold(attempt, &run),
            None => {
                let orphaned_runs = self.orphaned_runs.entry(run.pool.clone()).or_default();
                orphaned_runs.insert(attempt.clone());
            }
        }
        for node in &run.holding {
            self.change_host(node, |host| {
                host.runs.insert(attempt.clone());
                host.used = host.used.plus(run.each());
                host.index_gpus(attempt, node, &run);
            });
            self.replicas.add(run.request.spread_in.as_ref(), node);
        }
        self.runs.insert(attempt.clone(), Arc::new(run));
    }

    /// A run that changes, and its pool. What is cached of both is forgotten.
    pub(crate) fn run_mut(&mut self, attempt: &AttemptId) -> Option<(&mut Run, Option<&mut Pool>)> {
        let run = self.runs.get_mut(attempt)?;
        let mut pool = self.pools.get_mut(&run.pool);
        if let Some(pool) = &mut pool {
            pool.clear_cached_of_run(&run.request.subject, attempt);
        }
        Some((Arc::make_mut(run), pool))
    }

    /// A run started: its lost work counts from here.
    pub fn start(&mut self, attempt: &AttemptId, at: Time) {
        let Some((run, pool)) = self.run_mut(attempt) else {
            return;
        };
        let before = run.times();
        run.started.get_or_insert(at);
        if let Some(pool) = pool {
            pool.unindex_times(attempt, before);
            pool.index_times(attempt, run.times());
        }
    }

    /// A run saved a checkpoint: its lost work counts from here.
    pub fn save(&mut self, attempt: &AttemptId, at: Time) {
        if let Some((run, _)) = self.run_mut(attempt) {
            run.saved = Some(at);
        }
    }

    /// A run is stopping: its resources will be released, so it is no victim any more.
    pub fn stop(&mut self, attempt: &AttemptId) {
        if let Some((run, pool)) = self.run_mut(attempt) {
            run.stopping = true;
            if let Some(pool) = pool {
                pool.releasing.insert(attempt.clone());
            }
        }
    }

    /// A run released its resources on one host.
    pub fn release(&mut self, attempt: &AttemptId, node: &NodeName) {
        let Some((run, _)) = self.run_mut(attempt) else {
            return;
        };
        if !run.holding.remove(node) {
            return;
        }
        let each = run.each();
        let last = run.holding.is_empty();
        let group = run.request.spread_in.clone();
        self.replicas.remove(group.as_ref(), node);
        self.change_host(node, |host| {
            host.runs.remove(attempt);
            host.gpus_by_run.remove(attempt);
            host.used = host.used.less(each);
        });
        if last && let Some(run) = self.runs.remove(attempt) {
            self.refund(attempt, &run);
            self.stop_awaiting(attempt);
        }
    }

    /// Returns what a run was granted to its pool.
    fn refund(&mut self, attempt: &AttemptId, run: &Run) {
        self.settle(&run.pool, &run.request.subject);
        if let Some(pool) = self.pools.get_mut(&run.pool) {
            return pool.refund(attempt, run);
        }
        if let Entry::Occupied(mut orphaned_runs) = self.orphaned_runs.entry(run.pool.clone()) {
            orphaned_runs.get_mut().remove(attempt);
            if orphaned_runs.get().is_empty() {
                orphaned_runs.remove();
            }
        }
    }

    /// The pools in which a request waits.
    fn pools_for_mut<'a>(
        &'a mut self,
        request: &'a Request,
    ) -> impl Iterator<Item = (&'a PoolName, &'a mut Pool)> {
        self.pools.iter_mut().filter(|(name, pool)| {
            request.may_run_in(name, pool.terms().made) && pool.policy(&request.subject).is_some()
        })
    }

    /// Runs that hold resources of a pool: of one subject, or all.
    pub fn runs_of<'a>(
        &'a self,
        pool: &PoolName,
        subject: Option<&'a Subject>,
    ) -> impl Iterator<Item = (&'a AttemptId, &'a Run)> + use<'a> {
        let accounts = self.pools.get(pool).into_iter().flat_map(Pool::accounts);
        let accounts = accounts.filter(move |(name, _)| subject.is_none_or(|it| it == *name));
        let ids = accounts.flat_map(|(_, account)| account.runs.keys());
        ids.filter_map(|id| Some((id, self.run(id)?)))
    }

    /// The most preferred pool of those in which a request waits.
    pub fn preferred_pool(&self, request: &Request) -> Option<&PoolName> {
        self.preferred_pool_of(&request.subject, |name, made| {
            request.may_run_in(name, made)
        })
    }

    /// The most preferred pool of a subject, of those that `is_open` takes by their names and the records that created
    /// them.
    pub fn preferred_pool_of(
        &self,
        subject: &Subject,
        is_open: impl Fn(&PoolName, u64) -> bool,
    ) -> Option<&PoolName> {
        let open = self.pools.iter();
        let open = open.filter(|(name, pool)| is_open(name, pool.terms().made));
        let ranked =
            open.filter_map(|(name, pool)| Some((pool.policy(subject)?.priority, Reverse(name))));
        ranked.max().map(|(_, Reverse(name))| name)
    }

    /// Number of the record that created the newest pool; 0 if there is none.
    pub fn newest_pool(&self) -> u64 {
        let made = self.pools.values().map(|pool| pool.terms().made);
        made.max().unwrap_or(0)
    }

    /// All nominations, by step.
    pub fn nominations(&self) -> &BTreeMap<StepId, Nomination> {
        &self.nominations
    }

    /// The pools in which a request waits, most preferred first: by policy priority, then by name.
    pub fn pools_for<'a>(&'a self, request: &'a Request) -> Vec<(&'a PoolName, &'a Pool)> {
        let mut found: Vec<_> = self
            .pools
            .iter()
            .filter(|(name, pool)| request.may_run_in(name, pool.terms().made))
            .filter_map(|(name, pool)| Some((pool.policy(&request.subject)?.priority, name, pool)))
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        found
            .into_iter()
            .map(|(_, name, pool)| (name, pool))
            .collect()
    }
}
