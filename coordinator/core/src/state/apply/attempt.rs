//! Attempts and their parts as records find them: which is meant, whether it is where it must be, and what follows for
//! its step.

use alloc::format;
use alloc::string::String;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::state::StepState;

use crate::model::step::{Attempt, MAX_ATTEMPTS_KEPT, Part, PartPhase, Step};
use crate::words;

use super::{Fit, need};

pub(super) fn attempt_mut<'a>(
    step: &'a mut Step,
    id: &AttemptId,
) -> Result<&'a mut Attempt, String> {
    let attempt = step.attempts.iter_mut().find(|a| a.number == id.number);
    attempt.ok_or_else(|| format!("there is no attempt {id}"))
}

pub(super) fn attempt_of<'a>(step: &'a Step, id: &AttemptId) -> Result<&'a Attempt, String> {
    let attempt = step.attempt(id.number);
    attempt.ok_or_else(|| format!("there is no attempt {id}"))
}

/// The part of an attempt on a node, where it is in one of these phases.
pub(super) fn part_in<'a>(
    step: &'a mut Step,
    id: &AttemptId,
    node: &NodeName,
    phases: &[PartPhase],
) -> Result<&'a mut Part, String> {
    let attempt = attempt_mut(step, id)?;
    let part = attempt.parts.iter_mut().find(|part| part.node == *node);
    let part = part.ok_or_else(|| format!("attempt {id} is not on node `{node}`"))?;
    need(phases.contains(&part.phase), || {
        format!("attempt {id} on `{node}` is {:?} already", part.phase)
    })?;
    Ok(part)
}

/// Where a step stands while its attempt lives and nothing stops it: it starts when the first of its hosts begins, and
/// runs once all of them have.
pub(super) fn follow_parts(step: &mut Step, id: &AttemptId, latest: &NodeName) -> Fit {
    let attempt = attempt_of(step, id)?;
    if attempt.has_ended() || step.state == StepState::Stopping || attempt.suspension.is_some() {
        return Ok(());
    }
    let parts = attempt.parts.iter();
    let (state, reason) = match parts.map(|part| part.phase).min() {
        Some(PartPhase::Running) => (StepState::Running, words::running(attempt)),
        Some(_) | None => (StepState::Starting, words::starting(latest)),
    };
    if step.state != state {
        step.state = state;
        step.reason = reason;
    }
    Ok(())
}

/// Keeps the list of attempts within its bound. One whose units are not free stays, whatever its age.
pub(super) fn drop_oldest_attempt(step: &mut Step) {
    if step.attempts.len() > MAX_ATTEMPTS_KEPT {
        let oldest = step.attempts.iter().position(Attempt::is_released);
        oldest.map(|at| step.attempts.remove(at));
    }
}
