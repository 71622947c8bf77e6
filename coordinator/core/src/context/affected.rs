//! Which pools a record concerns.

use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId};

use crate::record::{self, Record};
use crate::state::State;

/// The pools in which `record` could let a step start. It is asked before the record is applied and after: a node that
/// moves affects both its pools.
pub(crate) fn affected_pools(state: &State, record: &Record) -> Vec<PoolName> {
    match record {
        Record::PoolPut(record::PoolPut { pool, .. })
        | Record::PolicyPut(record::PolicyPut { pool, .. })
        | Record::PolicyDeleted { pool, .. }
        | Record::PlatformPut(record::PlatformPut { pool, .. })
        | Record::PlatformDeleted { pool, .. }
        | Record::PoolDeleted { pool } => Vec::from([pool.clone()]),
        Record::NodeReported(record::NodeReported { node, .. })
        | Record::NodeReady { node }
        | Record::NodeReconciling { node }
        | Record::NodeUnsupervised { node, .. }
        | Record::NodeUnreachable { node }
        | Record::NodeLost { node }
        | Record::NodeCordoned { node, .. }
        | Record::NodeDraining(record::NodeDraining { node, .. })
        | Record::NodeUncordoned { node }
        | Record::NodeMoving { node, .. }
        | Record::NodeMoved { node, .. }
        | Record::NodeLabelled(record::NodeLabelled { node, .. })
        | Record::NodeLeaving { node }
        | Record::GpusReported { node, .. }
        | Record::GpusCordoned(record::GpusCordoned { node, .. })
        | Record::GpusUncordoned { node, .. }
        | Record::NodeDeleted { node } => home(state, node).into_iter().collect(),
        Record::Released { attempt, node } => {
            let run = state.market().run(attempt);
            let granted = run.map(|run| run.pool.clone());
            granted.into_iter().chain(home(state, node)).collect()
        }
        Record::StepQueued(record::StepQueued { step, .. })
        | Record::Requeued { step, .. }
        | Record::StepEnded(record::StepEnded { step, .. }) => awaited(state, step),
        Record::Held { step } | Record::Unheld { step } => awaited(state, step),
        Record::Allocated(record::Allocated { attempt, .. }) | Record::Resuming { attempt, .. } => {
            awaited(state, &attempt.step)
        }
        Record::Suspended(record::Suspended { attempt, node, .. }) => {
            let run = state.market().run(attempt);
            let granted = run.map(|run| run.pool.clone());
            granted.into_iter().chain(home(state, node)).collect()
        }
        // What comes free by itself may be the rest of what somebody lacks.
        Record::Stopping(record::Stopping { attempt, .. })
        | Record::Ended(record::Ended { attempt, .. })
        | Record::Suspending(record::Suspending { attempt, .. }) => {
            let run = state.market().run(attempt);
            run.map(|run| run.pool.clone()).into_iter().collect()
        }
        Record::CoordinatorStarted { .. }
        | Record::ClockJumped(_)
        | Record::StepRejected(_)
        | Record::Nominated { .. }
        | Record::Withdrawn { .. }
        | Record::ClusterPut { .. }
        | Record::ValidationPut { .. }
        | Record::ValidationDeleted { .. }
        | Record::TemplatePut { .. }
        | Record::TemplateDeleted { .. }
        | Record::AccessChanged { .. }
        | Record::Audited { .. }
        | Record::NodeDrained { .. }
        | Record::Starting { .. }
        | Record::Started(_)
        | Record::Resumed { .. }
        | Record::NotSuspended(_)
        | Record::Checkpointed { .. }
        | Record::JoinTokenMade(_)
        | Record::JoinTokenUsed(_)
        | Record::JoinTokenRevoked { .. }
        | Record::JoinRefused(_)
        | Record::NodeRefused { .. }
        | Record::NodeRevoked { .. }
        | Record::RecoveryBegan { .. }
        | Record::Adopted(_)
        | Record::StepForgotten { .. } => Vec::new(),
        // Nothing was looked at meanwhile.
        Record::RecoveryEnded { .. } => state.pools().keys().cloned().collect(),
    }
}

fn home(state: &State, node: &NodeName) -> Option<PoolName> {
    state.node(node).map(|node| node.pool.clone())
}

/// The pools for which a step waits.
fn awaited(state: &State, step: &StepId) -> Vec<PoolName> {
    let market = state.market();
    let request = market.request(step).into_iter();
    let pools = request.flat_map(|request| market.candidates(request));
    pools.map(|(name, _)| name.clone()).collect()
}
