//! Applies records of a recovery: it begins and ends, and attempts are adopted.

use alloc::collections::BTreeSet;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::state::StepState;
use sluice_common::time::Time;
use sluice_reasons::Cause;

use crate::model::recovery::{FrozenOnHost, LogPoint, Recovery, RecoveryCause, Warrant};
use crate::model::step::{Attempt, Part, PartPhase, Step, Suspension, SuspensionPhase};
use crate::record::Adopted;
use crate::state::State;

use super::attempt::drop_oldest_attempt;
use super::{ApplyResult, Mismatch, RecordRef, need};

impl State {
    pub(super) fn on_recovery_began(
        &mut self,
        since: Time,
        why: RecoveryCause,
        known: LogPoint,
    ) -> ApplyResult {
        self.stored.recovery = Some(Recovery { why, since, known });
        self.skip_replica_numbers();
        Ok(())
    }

    pub(super) fn on_recovery_ended(&mut self) -> ApplyResult {
        let was = self.stored.recovery.take();
        self.renew_rollouts();
        need(was.is_some(), || Mismatch::NotRecovering)
    }

    /// Adds the step if it is not known. Its attempt holds from now on what its host reported.
    pub(super) fn on_adopted(&mut self, at: Time, it: &Adopted) -> ApplyResult {
        let Adopted {
            attempt: id,
            node,
            warrant,
            frozen,
        } = it;
        let frozen = *frozen;
        need(self.stored.pools.contains_key(&warrant.pool), || {
            RecordRef::Pool(warrant.pool.clone()).into()
        })?;
        if let Some((array, index)) = self.waiting_part(&id.step) {
            let part = self.enter_part(&id.step, &array, index)?;
            self.index.enqueue(&part);
            self.stored.steps.insert(part);
        }
        self.claim_replica(at, &id.step, &warrant.spec);
        let mut step = self.take_out(at, id, warrant)?;
        let attempt = adopted(at, id, node, warrant, frozen);
        step.retries_spent = step.retries_spent.max(warrant.retries_spent);
        match attempt.is_frozen() {
            true => {
                step.state = StepState::Suspended;
                step.reason = Cause::Suspended;
            }
            false => {
                step.state = StepState::Allocated;
                step.reason = Cause::Adopted { node: node.clone() };
            }
        }
        self.index.hold(id, &step, &attempt);
        if attempt.is_frozen() && !step.held {
            self.index.scheduler_mut().await_resumption(id);
        }
        step.attempts.push(attempt);
        drop_oldest_attempt(&mut step);
        if let Some(part) = step.part_of.clone() {
            self.begin_array(&part);
        }
        self.stored.steps.insert(step);
        let nodes = warrant.placements.iter().map(|placement| &placement.node);
        nodes.clone().for_each(|node| self.note_filled(node));
        self.place_nodes(nodes)
    }

    /// Notes that a drained node that was empty is not empty any more.
    fn note_filled(&mut self, node: &NodeName) {
        let node = self.stored.nodes.get_mut(node);
        let cordon = node.and_then(|node| node.cordon.as_mut());
        if let Some(drain) = cordon.and_then(|cordon| cordon.drain.as_mut()) {
            drain.empty_since = None;
        }
    }

    /// Returns the step, removed from the queue.
    fn take_out(&mut self, at: Time, id: &AttemptId, warrant: &Warrant) -> Result<Step, Mismatch> {
        let Some(step) = self.stored.steps.remove(&id.step) else {
            let mut step = self.new_step(
                at,
                &id.step,
                &warrant.spec,
                StepState::Queued,
                Cause::Submitted,
            )?;
            step.submitted_at = warrant.submitted_at;
            step.part_of = warrant.part_of(&id.step);
            step.excluded_pools = warrant.excluded_pools.clone();
            if step.spec.lease.is_none() {
                // A pool without hosts that was made again does not know what was submitted before the first.
                let hostless = self.stored.pools.values().filter(|pool| pool.is_hostless());
                step.excluded_pools
                    .extend(hostless.map(|pool| pool.name.clone()));
            }
            step.route = warrant.route.clone();
            step.provenance = warrant.provenance.clone();
            self.index.note_submitted(&step);
            return Ok(step);
        };
        let last = step.latest().map_or(0, |last| last.number);
        need(step.state == StepState::Queued && last < id.number, || {
            Mismatch::NotAdopted(id.clone(), step.state, last)
        })?;
        self.index.dequeue(&step);
        self.stored.nominations.remove(&step.id);
        self.index.dependents.remove(&step);
        Ok(Step {
            unmet: BTreeSet::new(),
            not_before: None,
            ..step
        })
    }
}

fn adopted(
    at: Time,
    id: &AttemptId,
    node: &NodeName,
    warrant: &Warrant,
    frozen: Option<FrozenOnHost>,
) -> Attempt {
    let part = |placement| {
        let mut part = Part::new(placement);
        if let Some(frozen) = frozen.filter(|_| part.node == *node) {
            part.phase = PartPhase::Running;
            part.started = Some(frozen.process);
        }
        part
    };
    Attempt {
        number: id.number,
        pool: warrant.pool.clone(),
        allocated_at: at,
        began_at: frozen.map(|_| at),
        saved_at: None,
        stopping: None,
        stopping_at: None,
        stop_grace: None,
        preempted_by: None,
        with_allocation: false,
        backfill: BTreeSet::new(),
        port: warrant.port,
        broken_by: None,
        suspension: frozen.map(|frozen| Suspension {
            phase: SuspensionPhase::Suspended,
            since: at,
            moved_mb: frozen.moved_mb,
        }),
        was_frozen: frozen.is_some(),
        not_suspended: None,
        parts: warrant.placements.iter().map(part).collect(),
    }
}
