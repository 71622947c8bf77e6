//! Applies records of attempts and their parts: finds them, checks their phase, and updates the step.

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::state::StepState;
use sluice_common::time::Time;
use sluice_reasons::Cause;

use crate::model::step::{Attempt, MAX_ATTEMPTS_KEPT, Part, PartPhase, Step};

use crate::record::{PortsAllocated, ReadinessChanged};
use crate::state::State;

use super::{ApplyResult, Mismatch, RecordRef, need, step_mut};

impl State {
    pub(super) fn on_ports_allocated(&mut self, it: &PortsAllocated) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &it.attempt.step)?;
        let phases = [PartPhase::Starting, PartPhase::Running];
        let part = part_in(step, &it.attempt, &it.node, &phases)?;
        part.endpoint.get_or_insert_default().ports = it.ports.clone();
        Ok(())
    }

    pub(super) fn on_readiness_changed(&mut self, at: Time, it: &ReadinessChanged) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &it.attempt.step)?;
        let part = part_in(step, &it.attempt, &it.node, &[PartPhase::Running])?;
        let endpoint = part.endpoint.get_or_insert_default();
        endpoint.succeeds = it.ready;
        endpoint.failure = it.failure.clone();
        endpoint.changed_at = at;
        if it.ready {
            endpoint.succeeded_at = at;
            endpoint.times = endpoint.times.saturating_add(1);
        }
        Ok(())
    }
}

pub(super) fn attempt_mut<'a>(
    step: &'a mut Step,
    id: &AttemptId,
) -> Result<&'a mut Attempt, Mismatch> {
    let attempt = step.attempts.iter_mut().find(|a| a.number == id.number);
    attempt.ok_or_else(|| RecordRef::Attempt(id.clone()).into())
}

pub(super) fn attempt_of<'a>(step: &'a Step, id: &AttemptId) -> Result<&'a Attempt, Mismatch> {
    let attempt = step.attempt(id.number);
    attempt.ok_or_else(|| RecordRef::Attempt(id.clone()).into())
}

/// The part of an attempt on a node, if it is in one of these phases.
pub(super) fn part_in<'a>(
    step: &'a mut Step,
    id: &AttemptId,
    node: &NodeName,
    phases: &[PartPhase],
) -> Result<&'a mut Part, Mismatch> {
    let attempt = attempt_mut(step, id)?;
    let part = attempt.parts.iter_mut().find(|part| part.node == *node);
    let part = part.ok_or_else(|| Mismatch::NotOn(id.clone(), node.clone()))?;
    need(phases.contains(&part.phase), || {
        Mismatch::Phase(id.clone(), node.clone(), part.phase)
    })?;
    Ok(part)
}

/// Updates the state of a step that is not being stopped by its parts: it starts when the first of its hosts begins,
/// and runs once all of them have.
pub(super) fn follow_parts(step: &mut Step, id: &AttemptId, latest: &NodeName) -> ApplyResult {
    let attempt = attempt_of(step, id)?;
    if attempt.has_ended() || step.state == StepState::Stopping || attempt.suspension.is_some() {
        return Ok(());
    }
    let runs = attempt
        .parts
        .iter()
        .all(|part| part.phase >= PartPhase::Running);
    let (state, reason) = match runs {
        true => (StepState::Running, running(attempt)),
        false => (
            StepState::Starting,
            starting(latest, step.spec.inputs.len()),
        ),
    };
    if step.state != state {
        step.state = state;
        step.reason = reason;
    }
    Ok(())
}

fn starting(node: &NodeName, inputs: usize) -> Cause {
    let node = node.clone();
    Cause::Starting { node, inputs }
}

pub(super) fn running(attempt: &Attempt) -> Cause {
    Cause::Running {
        nodes: attempt.parts.iter().map(|part| part.node.clone()).collect(),
    }
}

/// Drops the oldest attempts beyond the bound. An attempt whose resources are not free stays, whatever its age.
pub(super) fn drop_oldest_attempt(step: &mut Step) {
    if step.attempts.len() > MAX_ATTEMPTS_KEPT {
        let oldest = step.attempts.iter().position(Attempt::is_released);
        oldest.map(|at| step.attempts.remove(at));
    }
}
