//! The pools that a record affects.

use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId};

use crate::record::{Effect, Record};
use crate::state::State;

/// The pools in which `record` could let a step start. Called before and after the record is applied: a node that
/// moves affects both its pools.
pub(crate) fn affected_pools(state: &State, record: &Record) -> Vec<PoolName> {
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
