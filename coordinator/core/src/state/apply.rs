//! Applies records to the state: one function for each record. A record that does not fit the state is refused by
//! number and name, so that a damaged log, or one of another version, stops a start instead of corrupting the state.
//! Nodes are in `apply/node.rs`, pools in `apply/pool.rs`.

mod admission;
mod array;
mod attempt;
mod dependency;
mod forget;
mod lease;
mod mismatch;
mod node;
mod nominate;
mod pool;
mod recovery;
mod services;
mod start;
mod step_move;
mod suspend;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

pub use mismatch::Mismatch;
use mismatch::RecordRef;

use attempt::{attempt_mut, attempt_of, drop_oldest_attempt, follow_parts, part_in};
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::StepSpec;
use sluice_common::time::{Span, Time};
use sluice_reasons::Cause;
use sluice_scheduler::remember_eviction;

use crate::model::pool::Pool;
use crate::model::step::{Attempt, FailedPart, Finished, Part, PartPhase, Step};
use crate::record;
use crate::record::{
    Allocated, Ended, LogEntry, Record, Released, Started, StepEnded, StepQueued, StepRejected,
    Stopping,
};

use super::{State, Steps};

/// A record that does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} does not follow from those before it: {what}")]
pub struct ApplyError {
    pub seq: u64,
    pub what: Mismatch,
}

/// Whether a record fits; the caller adds its number.
type ApplyResult = Result<(), Mismatch>;

impl State {
    /// Applies one record to the state.
    ///
    /// # Errors
    /// The record's number is not the next, or it names something that does not exist or cannot happen now. The state
    /// may then be half changed and must not be used.
    pub fn apply(&mut self, stamped: &LogEntry) -> Result<(), ApplyError> {
        let LogEntry { seq, at, record } = stamped;
        let fit = if *seq == self.stored.seq + 1 {
            self.stored.seq = *seq;
            self.stored.clock = *at;
            self.index.scheduler_mut().set_clock(*at);
            let about = record.step().cloned();
            let stands = |state: &Self| Some(state.step(about.as_ref()?)?.state);
            let from = stands(self);
            let fit = self.fold(*at, record);
            let scheduler = self.index.scheduler_mut();
            scheduler.copy_fair_uses(&mut self.stored.fair_uses);
            let to = stands(self);
            self.index.count(from, to);
            if let Some(about) = &about {
                self.follow_array(about);
                self.follow_inside(about);
            }
            fit
        } else {
            Err(Mismatch::Number {
                next: self.stored.seq + 1,
            })
        };
        fit.map_err(|what| ApplyError { seq: *seq, what })
    }

    fn fold(&mut self, at: Time, record: &Record) -> ApplyResult {
        match record {
            Record::CoordinatorStarted { epoch, lost_after } => {
                self.on_coordinator_started(at, epoch, *lost_after)
            }
            Record::ClockJumped(jump) => self.on_clock_jumped(jump.by),
            Record::PoolPut(it) => self.on_pool_put(it),
            Record::PolicyPut(it) => self.on_policy_put(it),
            Record::PolicyDeleted { pool, subject } => self.on_policy_deleted(pool, subject),
            Record::PlatformPut(it) => self.on_platform_put(it),
            Record::PlatformDeleted { pool, platform } => self.on_platform_deleted(pool, platform),
            Record::PoolDeleted { pool } => self.on_pool_deleted(pool),
            Record::NodeReported(it) => self.on_node_reported(at, it),
            Record::NodeReady { node } => self.on_node(at, node, NodeState::Ready),
            Record::NodeReconciling { node } => self.on_node(at, node, NodeState::Reconciling),
            Record::NodeUnsupervised { node, why } => self.on_node_unsupervised(at, node, why),
            Record::NodeUnreachable { node } => self.on_node(at, node, NodeState::Unreachable),
            Record::NodeLost { node } => self.on_node(at, node, NodeState::Lost),
            Record::NodeCordoned { node, reason } => self.on_node_cordoned(at, node, reason),
            Record::NodeDraining(it) => self.on_node_draining(at, it),
            Record::NodeMoving { node, pool } => self.on_node_moving(at, node, pool),
            Record::NodeMoved { node, pool } => self.on_node_moved(node, pool),
            Record::NodeUncordoned { node } => self.on_node_uncordoned(node),
            Record::NodeLabelled(it) => self.on_node_labelled(it),
            Record::NodeDrained { node } => self.on_node_drained(at, node),
            Record::GpusReported { node, states } => self.on_gpus_reported(node, states),
            Record::GpusCordoned(it) => self.on_gpus_cordoned(at, it),
            Record::GpusUncordoned { node, gpus } => self.on_gpus_uncordoned(node, gpus),
            Record::NodeLeaving { node } => self.on_node_leaving(node),
            Record::NodeDeleted { node } => self.on_node_deleted(node),
            Record::StepQueued(it) => self.on_step_queued(at, it),
            Record::PartQueued(it) => self.on_part_queued(at, it),
            Record::PartsEnded(it) => self.on_parts_ended(at, it),
            Record::DependencyMet { step, on } => self.on_dependency_met(at, step, on),
            Record::BeginReached { step } => self.on_begin_reached(at, step),
            Record::StepMoved(it) => self.on_step_moved(at, it),
            Record::ClusterPut { terms } => self.on_cluster_put(terms),
            Record::TopologyPut { terms } => self.on_topology_put(terms),
            Record::ValidationPut { validation, terms } => {
                self.on_validation_put(validation, terms)
            }
            Record::ValidationDeleted { validation } => self.on_validation_deleted(validation),
            Record::TemplatePut { template, terms } => self.on_template_put(template, terms),
            Record::TemplateDeleted { template } => self.on_template_deleted(template),
            Record::StepRejected(it) => self.on_step_rejected(at, it),
            Record::Allocated(it) => self.on_allocated(at, it),
            Record::Nominated { step, nomination } => self.on_nominated(step, nomination),
            Record::Withdrawn { step } => self.on_withdrawn(step),
            Record::Starting { attempt, node } => self.on_starting(attempt, node),
            Record::Started(it) => self.on_started(at, it),
            Record::PortsAllocated(it) => self.on_ports_allocated(it),
            Record::ReadinessChanged(it) => self.on_readiness_changed(at, it),
            Record::Stopping(it) => self.on_stopping(at, it),
            Record::Checkpointed { attempt, saved_at } => self.on_checkpointed(attempt, *saved_at),
            Record::Ended(it) => self.on_ended(it),
            Record::Released(it) => self.on_released(at, it),
            Record::Requeued { step, reason } => self.on_requeued(at, step, reason),
            Record::StepEnded(it) => self.on_step_ended(at, it),
            Record::StepForgotten { step, deleted } => self.on_step_forgotten(step, *deleted),
            Record::Suspending(it) => self.on_suspending(at, it),
            Record::Suspended(it) => self.on_suspended(at, it),
            Record::Resuming { attempt, backfill } => self.on_resuming(at, attempt, backfill),
            Record::Resumed { attempt, node: _ } => self.on_resumed(attempt),
            Record::NotSuspended(it) => self.on_not_suspended(&it.attempt, &it.why),
            Record::Held { step } => self.on_held(step),
            Record::Renewed(it) => self.on_renewed(it),
            Record::Unheld { step } => self.on_unheld(at, step),
            Record::AccessChanged { change } => self.on_access_changed(at, change),
            Record::Audited { .. } | Record::NodeRefused { .. } => Ok(()),
            Record::JoinTokenMade(made) => self.on_join_token_made(at, made),
            Record::JoinTokenUsed(it) => self.on_join_token_used(it),
            Record::JoinTokenRevoked { token } => self.on_join_token_revoked(at, token),
            Record::JoinRefused(record::JoinRefused { token, .. }) => self.on_join_refused(token),
            Record::NodeRevoked { node, generation } => self.on_node_revoked(node, *generation),
            Record::RecoveryBegan { why, known } => self.on_recovery_began(at, *why, *known),
            Record::RecoveryEnded { end: _ } => self.on_recovery_ended(),
            Record::Adopted(it) => self.on_adopted(at, it),
            Record::GpuCarving { node, order } => self.on_gpu_carving(at, node, order),
            Record::GpuCarved { node, gpu } => self.on_gpu_carved(node, gpu),
            Record::GpuNotCarved(it) => self.on_gpu_not_carved(it),
            Record::ServicePut(it) => self.on_service_put(at, it),
            Record::ServiceScaled(it) => self.on_service_scaled(it),
            Record::ServiceDeleting { service } => self.on_service_deleting(at, service),
            Record::ServiceDeleted(it) => self.on_service_deleted(it),
            Record::ReplicaStarted(it) => self.on_replica_started(at, it),
            Record::ReplicaChanged(it) => self.on_replica_changed(at, it),
            Record::ReplicaEnded(it) => self.on_replica_ended(at, it),
            Record::ReplicaFailed(it) => self.on_replica_failed(at, it),
            Record::ServiceRecovered { service } => self.on_service_recovered(service),
            Record::RolloutEnded {
                service, stalled, ..
            } => self.on_rollout_ended(service, stalled.as_ref()),
        }
    }

    fn on_step_queued(&mut self, at: Time, it: &StepQueued) -> ApplyResult {
        let StepQueued {
            step: id,
            spec,
            unmet,
            not_before,
            excluded_pools,
            route,
            provenance,
        } = it;
        let mut step = self.new_step(at, id, spec, StepState::Queued, Cause::Submitted)?;
        step.unmet = unmet.clone();
        step.not_before = *not_before;
        step.excluded_pools = excluded_pools.clone();
        step.route = route.clone();
        step.provenance = provenance.clone();
        self.take_up_parts(&mut step)?;
        self.index.note_submitted(&step);
        self.index.dependents.add(&step);
        for on in unmet {
            let state = self.state_of(on);
            need(state.is_some(), || RecordRef::Step(on.clone()).into())?;
            if state.is_some_and(StepState::is_terminal) {
                self.index.dependents.note_end(on);
            }
        }
        if step.is_schedulable() {
            self.index.enqueue(&step);
        }
        self.stored.steps.insert(step);
        Ok(())
    }

    fn on_step_rejected(&mut self, at: Time, it: &StepRejected) -> ApplyResult {
        let (id, spec, why) = (&it.step, &it.spec, &it.reason);
        let mut step = self.new_step(at, id, spec, StepState::Rejected, why.clone())?;
        let seq = self.stored.seq;
        step.finished = Some(Finished { seq, at });
        self.index.note_submitted(&step);
        self.index.note_finished(&step);
        self.stored.steps.insert(step);
        self.end_waiting_parts(at, id, (StepState::Rejected, why))
    }

    fn new_step(
        &self,
        at: Time,
        id: &StepId,
        spec: &Arc<StepSpec>,
        state: StepState,
        reason: Cause,
    ) -> Result<Step, Mismatch> {
        need(!self.stored.steps.contains_key(id), || {
            Mismatch::There(RecordRef::Step(id.clone()))
        })?;
        let (id, place, spec) = (id.clone(), self.stored.seq, spec.clone());
        Ok(Step::new(id, spec, place, at, (state, reason)))
    }

    fn on_allocated(&mut self, at: Time, it: &Allocated) -> ApplyResult {
        let Allocated {
            attempt: id,
            pool,
            placements,
            backfill,
            port,
        } = it;
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let next = step.latest().map_or(1, |last| last.number + 1);
        let queued = step.state == StepState::Queued && step.is_ready();
        need(queued && id.number == next, || {
            Mismatch::NotQueued(id.clone(), step.state)
        })?;
        self.index.dequeue(step);
        self.stored.nominations.remove(&step.id);
        let attempt = Attempt {
            number: id.number,
            pool: pool.clone(),
            allocated_at: at,
            began_at: None,
            saved_at: None,
            stopping: None,
            stopping_at: None,
            stop_grace: None,
            preempted_by: None,
            with_allocation: false,
            backfill: backfill.clone(),
            port: *port,
            broken_by: None,
            suspension: None,
            was_frozen: false,
            not_suspended: None,
            parts: placements.iter().map(Part::new).collect(),
        };
        step.state = StepState::Allocated;
        step.reason = Cause::Allocated {
            nodes: placements.iter().map(|it| it.node.clone()).collect(),
        };
        self.index.hold(id, step, &attempt);
        step.attempts.push(attempt);
        drop_oldest_attempt(step);
        if let Some(part) = step.part_of.clone() {
            self.begin_array(&part);
        }
        self.place_nodes(placements.iter().map(|placement| &placement.node))
    }

    fn on_starting(&mut self, id: &AttemptId, node: &NodeName) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let part = part_in(step, id, node, &[PartPhase::Allocated])?;
        part.phase = PartPhase::Starting;
        follow_parts(step, id, node)
    }

    fn on_started(&mut self, at: Time, it: &Started) -> ApplyResult {
        let Started {
            attempt: id,
            node,
            process,
        } = it;
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let part = part_in(step, id, node, &[PartPhase::Starting])?;
        part.phase = PartPhase::Running;
        part.started = Some(*process);
        attempt_mut(step, id)?.began_at.get_or_insert(at);
        if step.is_hostless() {
            // It counts anew for the time that it has run.
            step.not_waited = Span::ZERO;
        }
        self.index.scheduler_mut().start(id, at);
        follow_parts(step, id, node)
    }

    fn on_checkpointed(&mut self, id: &AttemptId, at: Time) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        attempt_mut(step, id)?.saved_at = Some(at);
        self.index.scheduler_mut().save(id, at);
        Ok(())
    }

    fn on_stopping(&mut self, at: Time, it: &Stopping) -> ApplyResult {
        let Stopping {
            attempt: id,
            why,
            by,
            grace,
            by_priority,
            with_allocation,
        } = it;
        let (why, grace) = (*why, *grace);
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let own = step.spec.grace;
        let attempt = attempt_mut(step, id)?;
        need(!attempt.has_ended(), || Mismatch::Ended(id.clone()))?;
        attempt.stopping = Some(why);
        attempt.with_allocation |= *with_allocation;
        attempt.lose_readiness();
        attempt.on_told_to_stop(at, grace, own);
        attempt.preempted_by = by.clone().or(attempt
            .preempted_by
            .take()
            .filter(|_| attempt.suspension.is_some()));
        if attempt.is_frozen() {
            // The step no longer waits to be resumed.
            self.stored.nominations.remove(&id.step);
            self.index.scheduler_mut().dequeue(&id.step);
        }
        if *by_priority {
            let pool = attempt.pool.clone();
            remember_eviction(&mut step.evictions, at);
            let scheduler = self.index.scheduler_mut();
            scheduler.evict(id, at);
            let lost = scheduler.lost_work(&pool);
            self.stored.lost_work.insert(pool, lost);
        }
        self.index.scheduler_mut().stop(id);
        step.state = StepState::Stopping;
        step.reason = Cause::Stopping { cause: why };
        Ok(())
    }

    fn on_ended(&mut self, it: &Ended) -> ApplyResult {
        let Ended {
            attempt: id,
            node,
            end,
        } = it;
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let before = [
            PartPhase::Allocated,
            PartPhase::Starting,
            PartPhase::Running,
        ];
        let part = part_in(step, id, node, &before)?;
        part.phase = PartPhase::Ended;
        part.end = Some(end.clone());
        if let Some(endpoint) = &mut part.endpoint {
            endpoint.succeeds = false;
        }
        let lost = self.stored.nodes.get(node);
        let lost = lost.is_some_and(|node| node.state == NodeState::Lost);
        let attempt = attempt_mut(step, id)?;
        if attempt.broken_by.is_none() && attempt.stopping.is_none() && !end.is_clean() {
            attempt.broken_by = Some(FailedPart {
                node: node.clone(),
                lost,
            });
        }
        if attempt.has_ended() {
            if attempt.is_frozen() {
                self.stored.nominations.remove(&id.step);
                self.index.scheduler_mut().dequeue(&id.step);
            }
            self.index.scheduler_mut().stop(id);
        }
        follow_parts(step, id, node)
    }

    fn on_released(&mut self, at: Time, it: &Released) -> ApplyResult {
        let (id, node) = (&it.attempt, &it.node);
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let part = part_in(step, id, node, &[PartPhase::Ended])?;
        part.phase = PartPhase::Released;
        part.released_at = Some(at);
        if let Some(end) = &mut part.end {
            end.kept = it.kept.clone();
        }
        let attempt = attempt_of(step, id)?;
        if let Some(part) = attempt.on(node) {
            self.index.release(id, step, attempt, part);
        }
        self.index.note_finished(step);
        self.place_nodes(core::iter::once(node))
    }

    fn on_requeued(&mut self, at: Time, id: &StepId, reason: &Cause) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        let over = step.latest().is_some_and(Attempt::has_ended);
        let open = !step.state.is_terminal() && step.state != StepState::Queued;
        need(over && open, || {
            Mismatch::CannotWait(id.clone(), step.state)
        })?;
        if reason.code() == ReasonCode::Retry {
            step.retries_spent = step.retries_spent.saturating_add(1);
        }
        step.state = StepState::Queued;
        step.queued_again_at = Some(at);
        step.not_waited = Span::ZERO;
        step.reason = reason.clone();
        if step.is_schedulable() {
            self.index.enqueue(step);
        }
        Ok(())
    }

    fn on_step_ended(&mut self, at: Time, it: &StepEnded) -> ApplyResult {
        let StepEnded {
            step: id,
            state: end,
            reason,
        } = it;
        let end = *end;
        self.end_waiting_parts(at, id, (end, reason))?;
        let step = step_mut(&mut self.stored.steps, id)?;
        let open = !step.state.is_terminal() && step.live().is_none();
        need(open && end.is_terminal(), || {
            Mismatch::CannotEnd(id.clone(), step.state, end)
        })?;
        if step.state == StepState::Queued || step.array.is_some() {
            self.index.dequeue(step);
            self.stored.nominations.remove(id);
            self.index.dependents.remove(step);
            step.unmet = BTreeSet::new();
            step.not_before = None;
        }
        self.index.dependents.note_end(id);
        step.state = end;
        step.reason = reason.clone();
        let seq = self.stored.seq;
        step.finished = Some(Finished { seq, at });
        self.index.note_finished(step);
        if let Some(part) = step.part_of.clone() {
            self.note_part_end(at, &part, (end, reason));
        }
        Ok(())
    }
}

fn need(holds: bool, what: impl FnOnce() -> Mismatch) -> ApplyResult {
    if holds { Ok(()) } else { Err(what()) }
}

type Pools = alloc::collections::BTreeMap<PoolName, Pool>;

fn step_mut<'a>(steps: &'a mut Steps, id: &StepId) -> Result<&'a mut Step, Mismatch> {
    let step = steps.get_mut(id);
    step.ok_or_else(|| RecordRef::Step(id.clone()).into())
}
