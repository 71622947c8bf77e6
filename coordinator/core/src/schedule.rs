//! Who starts next, and where: first come first served in each pool, on the host that it fills best.
//!
//! A pool's steps are looked at by place. One that fits on a host now is granted. One for which a working host is
//! large enough but too full *waits*, and those behind it wait for their turn. One that no working host could hold
//! even when empty is *passed over*: whatever starts meanwhile takes nothing that it could have used, and its place is
//! its own when its host is back.
//!
//! Policies will replace what stands in this file; the frame around it stays: a set of pools in which something
//! stirred, a decision that is a pure function of the state, and records that make it true.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName, StepId};

use crate::core::Core;
use crate::record::{Placement, Record};
use crate::state::{HostUnits, Node, Queue, State, Step};

/// What can be done for a queued step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It fits here.
    Start(Placement),
    /// A working host could hold it once others have ended there.
    Wait,
    /// No working host could hold it even when empty.
    PassOver,
}

/// The pool in which `record` could let a step start. It is asked before the record is applied and after: a node that
/// moves stirs both its pools.
pub(crate) fn stirred(state: &State, record: &Record) -> Option<PoolName> {
    match record {
        Record::NodeReported { node, .. }
        | Record::NodeReady { node }
        | Record::NodeReconciling { node }
        | Record::NodeUnreachable { node }
        | Record::NodeLost { node }
        | Record::Released { node, .. } => state.node(node).map(|node| node.pool.clone()),
        Record::StepQueued { step, .. } | Record::Requeued { step, .. } => {
            let step = state.step(step)?;
            let pool = step.pool();
            let queue = state.index().queue(&pool)?;
            queue.is_head(step.place).then_some(pool)
        }
        Record::StepEnded { step, .. } => state.step(step).map(Step::pool),
        Record::CoordinatorStarted { .. }
        | Record::PoolPut { .. }
        | Record::StepRejected { .. }
        | Record::Allocated { .. }
        | Record::Starting { .. }
        | Record::Started { .. }
        | Record::Stopping { .. }
        | Record::Ended { .. }
        | Record::StepForgotten { .. } => None,
    }
}

/// What can be done for a step that waits in `pool`.
pub(crate) fn decide(state: &State, pool: &PoolName, step: &Step) -> Decision {
    let request = HostUnits::of(&step.spec.request);
    let Some(members) = state.index().members(pool) else {
        return Decision::PassOver;
    };
    let tightest = members.free.tightest(request);
    if let Some(node) = tightest.and_then(|name| state.node(name)) {
        return Decision::Start(place(state, node, request));
    }
    match members.ready.tightest(request) {
        Some(_) => Decision::Wait,
        None => Decision::PassOver,
    }
}

/// The GPUs with the lowest indexes that are free on `node`.
fn place(state: &State, node: &Node, request: HostUnits) -> Placement {
    let gpus = node.inventory.gpus.iter();
    let free = gpus.filter(|gpu| !state.index().is_granted(&node.name, &gpu.uuid));
    let mut free: Vec<(u32, &String)> = free.map(|gpu| (gpu.index, &gpu.uuid)).collect();
    free.sort_unstable();
    let wanted = usize::try_from(request.gpus()).unwrap_or(usize::MAX);
    let chosen = free.into_iter().take(wanted);
    Placement {
        node: node.name.clone(),
        gpus: chosen.map(|(_, uuid)| uuid.clone()).collect(),
    }
}

/// The first step of a pool that is not passed over, with what can be done for it. Every later one waits for it.
pub(crate) fn first_in_turn<'a>(
    state: &'a State,
    pool: &PoolName,
    from: u64,
) -> Option<(&'a Step, Decision)> {
    let queue = state.index().queue(pool)?;
    heads(queue, from)
        .filter_map(|id| state.step(id))
        .map(|step| (step, decide(state, pool, step)))
        .find(|(_, decision)| *decision != Decision::PassOver)
}

fn heads(queue: &Queue, from: u64) -> impl Iterator<Item = &StepId> {
    let first = queue.next_head(from);
    let rest = |(place, _): &(u64, &StepId)| queue.next_head(place + 1);
    core::iter::successors(first, rest).map(|(_, id)| id)
}

impl Core {
    /// Grants what can be granted in every pool in which something stirred.
    pub(crate) fn schedule(&mut self) {
        while let Some(pool) = self.dirty.pop_first() {
            self.schedule_pool(&pool);
        }
    }

    fn schedule_pool(&mut self, pool: &PoolName) {
        let mut from = 0;
        while let Some((step, Decision::Start(placement))) = first_in_turn(&self.state, pool, from)
        {
            from = step.place + 1;
            let attempt = next_attempt(step);
            self.grant(pool, attempt, placement);
        }
    }

    fn grant(&mut self, pool: &PoolName, attempt: AttemptId, placement: Placement) {
        let node = placement.node.clone();
        self.record(Record::Allocated {
            attempt: attempt.clone(),
            pool: pool.clone(),
            placements: Vec::from([placement]),
        });
        self.send_assignment(&node, &attempt);
    }
}

fn next_attempt(step: &Step) -> AttemptId {
    let last = step.latest().map_or(0, |attempt| attempt.number);
    step.attempt_id(last + 1)
}
