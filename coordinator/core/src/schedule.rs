//! Who starts, and who gives way: asks the market for the next move in each pool in which something stirred, and turns
//! moves into records and orders, until there is none.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::wire::StopWhy;

use crate::core::Core;
use crate::dealing;
use crate::input::TimerKey;
use crate::market::Move;
use crate::record::Record;
use crate::state::{HostUnits, State, Step};

/// Ports at which gangs meet: from the one that PyTorch's launcher takes where it is told none, as many as a host holds
/// attempts.
const MEETING_PORTS: RangeInclusive<u16> = 29_500..=(29_500 + MAX_ATTEMPTS_PER_NODE as u16 - 1);

/// The pools in which `record` could let a step start. It is asked before the record is applied and after: a node that
/// moves stirs both its pools.
pub(crate) fn stirred(state: &State, record: &Record) -> Vec<PoolName> {
    match record {
        Record::PoolPut { pool, .. }
        | Record::PolicyPut { pool, .. }
        | Record::PolicyDeleted { pool, .. }
        | Record::PlatformPut { pool, .. }
        | Record::PlatformDeleted { pool, .. }
        | Record::PoolDeleted { pool } => Vec::from([pool.clone()]),
        Record::NodeReported { node, .. }
        | Record::NodeReady { node }
        | Record::NodeReconciling { node }
        | Record::NodeUnsupervised { node, .. }
        | Record::NodeUnreachable { node }
        | Record::NodeLost { node }
        | Record::NodeCordoned { node, .. }
        | Record::NodeDraining { node, .. }
        | Record::NodeUncordoned { node }
        | Record::NodeMoving { node, .. }
        | Record::NodeMoved { node, .. }
        | Record::NodeLabelled { node, .. }
        | Record::NodeLeaving { node }
        | Record::GpusReported { node, .. }
        | Record::GpusCordoned { node, .. }
        | Record::GpusUncordoned { node, .. }
        | Record::NodeDeleted { node } => home(state, node).into_iter().collect(),
        Record::Released { attempt, node } => {
            let run = state.market().run(attempt);
            let granted = run.map(|run| run.pool.clone());
            granted.into_iter().chain(home(state, node)).collect()
        }
        Record::StepQueued { step, .. }
        | Record::Requeued { step, .. }
        | Record::StepEnded { step, .. } => awaited(state, step),
        Record::Held { step } | Record::Unheld { step } => awaited(state, step),
        Record::Allocated { attempt, .. } | Record::Resuming { attempt, .. } => {
            awaited(state, &attempt.step)
        }
        Record::Suspended { attempt, node, .. } => {
            let run = state.market().run(attempt);
            let granted = run.map(|run| run.pool.clone());
            granted.into_iter().chain(home(state, node)).collect()
        }
        // What comes free by itself may be the rest of what somebody lacks.
        Record::Stopping { attempt, .. }
        | Record::Ended { attempt, .. }
        | Record::Suspending { attempt, .. } => {
            let run = state.market().run(attempt);
            run.map(|run| run.pool.clone()).into_iter().collect()
        }
        Record::CoordinatorStarted { .. }
        | Record::ClockJumped(_)
        | Record::StepRejected { .. }
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
        | Record::Started { .. }
        | Record::Resumed { .. }
        | Record::NotSuspended { .. }
        | Record::Checkpointed { .. }
        | Record::JoinTokenMade(_)
        | Record::JoinTokenUsed { .. }
        | Record::JoinTokenRevoked { .. }
        | Record::JoinRefused { .. }
        | Record::NodeRefused { .. }
        | Record::NodeRevoked { .. }
        | Record::RecoveryBegan { .. }
        | Record::Adopted { .. }
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

impl Core {
    /// Makes every move that there is in the pools in which something stirred. None in a recovery: what waits here may run
    /// on a host that has not told of it.
    pub(crate) fn schedule(&mut self) {
        if self.state.recovery().is_some() {
            return;
        }
        while let Some(pool) = self.dirty.first().cloned() {
            match self.state.market().next_move(&pool, self.now) {
                Some(next) => self.make(next),
                None => {
                    self.dirty.remove(&pool);
                    self.wake_when_spared_no_longer(pool);
                }
            }
        }
    }

    fn make(&mut self, next: Move) {
        match next {
            Move::Grant {
                step,
                pool,
                hosts,
                platform,
                backfill,
            } => self.grant(&step, pool, &hosts, platform.as_ref(), backfill),
            Move::Nominate {
                step,
                nomination,
                victims,
                frozen,
            } => {
                let by = step.clone();
                self.record(Record::Nominated { step, nomination });
                for victim in victims {
                    // It holds its units until its hosts say that nothing of it is left, or that it is frozen.
                    match frozen.contains(&victim) {
                        true => self.suspend_attempt(&victim, Some(by.clone())),
                        false => self.stop_attempt(&victim, StopWhy::Preempted, Some(by.clone())),
                    }
                }
            }
            Move::Withdraw { step } => self.record(Record::Withdrawn { step }),
        }
    }

    fn grant(
        &mut self,
        id: &StepId,
        pool: PoolName,
        hosts: &[NodeName],
        platform: Option<&PlatformName>,
        backfill: BTreeSet<StepId>,
    ) {
        let step = self.state.step(id).expect("what waits is remembered");
        if let Some(frozen) = step.live() {
            let attempt = step.attempt_id(frozen.number);
            return self.resume_attempt(&attempt, backfill);
        }
        let attempt = next_attempt(step);
        let request = HostUnits::of(&step.spec.request);
        let nodes = hosts.iter().filter_map(|host| self.state.node(host));
        let placements = nodes
            .map(|node| dealing::place(&self.state, node, id, request, platform))
            .collect();
        let port = self.meeting_port(hosts);
        self.record(Record::Allocated {
            attempt: attempt.clone(),
            pool,
            placements,
            backfill,
            port,
        });
        for host in hosts {
            self.send_assignment(host, &attempt);
        }
    }

    /// A port for the parts of a gang to meet at on their first host: the lowest that no other gang has at its address. Where
    /// one host is granted there is nobody to meet.
    fn meeting_port(&self, hosts: &[NodeName]) -> Option<u16> {
        let [first, _, ..] = hosts else {
            return None;
        };
        let address = self.state.node(first)?.address();
        let there = self.state.nodes_at(address).flat_map(|node| {
            let attempts = self.state.attempts_on(node);
            attempts.map(move |id| (node, id))
        });
        let taken: BTreeSet<u16> = there
            .filter_map(|(node, id)| Some((node, self.state.step(&id.step)?.attempt(id.number)?)))
            .filter(|(node, attempt)| attempt.parts.first().is_some_and(|p| p.node == **node))
            .filter_map(|(_, attempt)| attempt.port)
            .collect();
        MEETING_PORTS.into_iter().find(|port| !taken.contains(port))
    }

    /// Runs are spared for a time after their start; when it is over for the next of them, the pool is looked at again.
    fn wake_when_spared_no_longer(&mut self, pool: PoolName) {
        let wake = self.state.market().spared_until(&pool, self.now);
        if let Some(at) = wake {
            self.set_timer(TimerKey::Pool(pool), at);
        }
    }
}

fn next_attempt(step: &Step) -> AttemptId {
    let last = step.latest().map_or(0, |attempt| attempt.number);
    step.attempt_id(last + 1)
}
