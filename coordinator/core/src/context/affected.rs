//! The pools that records affect, and what must be checked there before nothing can start.
//!
//! A pool in which nothing can start stays so when steps are only submitted to it: then these steps alone are checked,
//! and not the whole queue.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId};
use sluice_common::time::Time;

use crate::record::{self, Effect, Record};
use crate::state::State;

/// A check of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolCheck {
    /// The whole queue.
    Queue,
    /// Steps that were submitted since the whole queue was checked; nothing else has changed.
    Submitted(BTreeSet<StepId>),
}

/// The pools to check.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolChecks {
    checks: BTreeMap<PoolName, PoolCheck>,
    /// Pools in which nothing can start but for the checks above, and until when that holds if nothing else changes.
    settled: BTreeMap<PoolName, Option<Time>>,
}

impl PoolChecks {
    /// The next pool to check.
    pub(crate) fn first(&self) -> Option<(&PoolName, &PoolCheck)> {
        self.checks.first_key_value()
    }

    /// Whether the whole queue of a pool is to be checked.
    pub(crate) fn is_whole(&self, pool: &PoolName) -> bool {
        self.checks.get(pool) == Some(&PoolCheck::Queue)
    }

    /// The whole queue of a pool must be checked.
    pub(crate) fn insert(&mut self, pool: PoolName) {
        self.settled.remove(&pool);
        self.checks.insert(pool, PoolCheck::Queue);
    }

    /// Marks a pool as checked: nothing can start there until something changes, or until that time.
    pub(crate) fn set_settled(&mut self, pool: &PoolName, until: Option<Time>) {
        self.checks.remove(pool);
        self.settled.insert(pool.clone(), until);
    }

    /// Notes what a record affects. Called before and after the record is applied: a node that moves affects both its
    /// pools.
    pub(crate) fn note(&mut self, state: &State, record: &Record, now: Time) {
        for pool in affected_pools(state, record) {
            let until = self.settled.get(&pool);
            let is_settled = until.is_some_and(|until| until.is_none_or(|until| now < until));
            match submitted_by(record).filter(|_| is_settled) {
                Some(step) => self.add_submitted(pool, step),
                None => self.insert(pool),
            }
        }
        // Work that is saved is not lost by preemption any more: the next change checks the whole queue.
        if let Record::Checkpointed { attempt, .. } = record
            && let Some(run) = state.scheduler().run(attempt)
        {
            self.settled.remove(&run.pool);
        }
    }

    fn add_submitted(&mut self, pool: PoolName, step: &StepId) {
        let none = || PoolCheck::Submitted(BTreeSet::new());
        if let PoolCheck::Submitted(steps) = self.checks.entry(pool).or_insert_with(none) {
            steps.insert(step.clone());
        }
    }
}

/// The step that a record puts into a queue for the first time, if it does.
fn submitted_by(record: &Record) -> Option<&StepId> {
    if let Record::StepQueued(record::StepQueued { step, .. })
    | Record::PartQueued(record::PartQueued { step, .. }) = record
    {
        return Some(step);
    }
    None
}

/// The pools in which `record` could let a step start.
fn affected_pools(state: &State, record: &Record) -> Vec<PoolName> {
    let of_run = |attempt| state.scheduler().run(attempt).map(|run| run.pool.clone());
    match record.effect() {
        Effect::Nothing => Vec::new(),
        Effect::Pool(pool) => Vec::from([pool.clone()]),
        Effect::Node(node) => pool_of(state, node).into_iter().collect(),
        Effect::Waiting(step) => awaited(state, step),
        Effect::Run(attempt) => of_run(attempt).into_iter().collect(),
        Effect::Freed(attempt, node) => {
            let granted = of_run(attempt).into_iter();
            granted.chain(pool_of(state, node)).collect()
        }
        Effect::AllPools => state.pools().keys().cloned().collect(),
    }
}

fn pool_of(state: &State, node: &NodeName) -> Option<PoolName> {
    state.node(node).map(|node| node.pool.clone())
}

/// The pools in which a step is queued.
fn awaited(state: &State, step: &StepId) -> Vec<PoolName> {
    let scheduler = state.scheduler();
    let request = scheduler.request(step).into_iter();
    let pools = request.flat_map(|request| scheduler.pools_for(request));
    pools.map(|(name, _)| name.clone()).collect()
}
