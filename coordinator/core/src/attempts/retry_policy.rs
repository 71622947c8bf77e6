//! Decides whether a step is over or queued again after an attempt has ended. Pure: the caller emits the records.
//!
//! | how it ended | what becomes of the step |
//! |---|---|
//! | it was cancelled, however it ended | `cancelled` |
//! | it ran over its `timeout`, however it ended | `failed`; never retried, for it would run over again |
//! | it is an allocation that was not renewed, however it ended | `cancelled` |
//! | it is an allocation that its holder had, and would wait again below | `failed`: its holder has lost it |
//! | code 0 | `succeeded`, also for one that was to give way and finished within its grace |
//! | it was to give way to another step or leave its host | waits again, for free; `preempted` with `on_preempt: fail` |
//! | it was requeued by request | waits again, for free |
//! | it could not be frozen, or was frozen for too long | as if it was to give way |
//! | its host was lost or rebooted, could not start it, or its lease passed | waits again, for free |
//! | it did not start on its host: the supervisor was away, or the order came late or never | waits again, for free, also with `free_preemptions: false` |
//! | another code, a signal, or nobody saw how | waits again while it has retries, else `failed` |
//! | it was stopped because its liveness probe failed, however it ended | waits again while it has retries, else `failed` |
//! | it was killed because a GPU of its was lost | waits again while it has retries, else `failed` |
//! | a part of a gang ended badly, or its host was lost | all of it is stopped, and goes on as that part's end says |
//! | with `free_preemptions: false`, what waits again for free above | waits again while it has retries, else `preempted` or `failed` |
//! | it was stopped because its allocation ended | `cancelled`, `preempted` or `failed`, as that; never retried |
//! | it is inside an allocation, and its host was lost or could not start it | `failed`, because its allocation has no other |
//! | it could not be started | `failed`; never retried, for the same command would fail again |

use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_common::id::NodeName;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptEnd, StopReason};
use sluice_reasons::Cause;

use crate::attempts::endpoint::liveness_failed;
use crate::model::step::{Attempt, Part, Step};

/// The decision about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Ends the step.
    End(StepState, Cause),
    /// Queues the step again, in its old place.
    Retry(Cause),
}

/// Decides about `step`, whose `attempt` has ended on every host; `drained` is one of these hosts that is being
/// drained.
pub(crate) fn retry_decision(
    step: &Step,
    attempt: &Attempt,
    drained: Option<&NodeName>,
) -> RetryDecision {
    let (rank, part, end) =
        decisive_part(attempt).expect("an attempt has parts, and all have ended");
    let node = part.node.clone();
    if attempt.with_allocation {
        return with_allocation(step, attempt, (part, end));
    }
    // Decisions of the core take precedence over reports of the host: an answered cancel is not taken back because a
    // timeout came in at the same moment.
    let verdict = match attempt.stopping.or(end.stopped) {
        Some(StopReason::Cancelled) => RetryDecision::End(StepState::Cancelled, Cause::Cancelled),
        Some(StopReason::TimedOut) => RetryDecision::End(StepState::Failed, Cause::TimedOut),
        Some(StopReason::Drained) => {
            let node = drained.cloned().unwrap_or(node);
            by_choice(step, gave_way(part, end, Cause::Drained { node }))
        }
        Some(StopReason::Preempted) => by_choice(step, gave_way(part, end, Cause::Preempted)),
        Some(StopReason::GpuLost) if end.exit == Exit::Code(0) => {
            over(StepState::Succeeded, part, end)
        }
        Some(StopReason::GpuLost) => failed_or_again(step, Cause::GpuLost { node }),
        Some(StopReason::Requeued) => gave_way(part, end, Cause::Requeued),
        Some(StopReason::NotSuspended) => {
            by_choice(step, gave_way(part, end, not_suspended(attempt)))
        }
        Some(StopReason::SuspendedTooLong) => {
            by_choice(step, gave_way(part, end, Cause::SuspendedTooLong))
        }
        Some(StopReason::NotRenewed) => RetryDecision::End(StepState::Cancelled, Cause::NotRenewed),
        Some(StopReason::LivenessFailed) => failed_or_again(step, liveness_failed(attempt, part)),
        Some(StopReason::Superseded) => gave_way(part, end, Cause::Superseded { node }),
        Some(StopReason::PeerEnded) | None => {
            let lost = attempt.broken_by.as_ref().is_some_and(|by| by.lost);
            let why = match lost {
                true => Cause::HostLost { node: node.clone() },
                false => exited(part, end),
            };
            let of_all = match attempt.parts.len() {
                1 => why,
                _ => Cause::OfRank {
                    rank: rank as u64,
                    node,
                    part: Box::new(why),
                },
            };
            match lost {
                true => free_or_paid(step, of_all, StepState::Failed),
                false => by_exit(step, part, end, of_all),
            }
        }
    };
    bounded(step, attempt, inside(step, verdict))
}

/// Decides about a step that was stopped because its allocation ended: it never waits for another.
fn with_allocation(
    step: &Step,
    attempt: &Attempt,
    (part, end): (&Part, &AttemptEnd),
) -> RetryDecision {
    let cause = attempt.stopping.unwrap_or(StopReason::PeerEnded);
    if end.exit == Exit::Code(0) && cause != StopReason::Cancelled {
        return over(StepState::Succeeded, part, end);
    }
    let allocation = step.spec.inside.clone();
    let allocation = allocation.unwrap_or_else(|| step.id.clone());
    let reason = Cause::AllocationEnded { allocation, cause };
    RetryDecision::End(end_state(step, cause), reason)
}

/// The state of a step that ends because its allocation ends for `why`.
pub(crate) fn end_state(step: &Step, why: StopReason) -> StepState {
    // One that never started has lost nothing.
    if step.attempts.is_empty() {
        return StepState::Cancelled;
    }
    match why {
        StopReason::Cancelled | StopReason::NotRenewed => StepState::Cancelled,
        StopReason::Preempted | StopReason::Drained => StepState::Preempted,
        StopReason::TimedOut
        | StopReason::Superseded
        | StopReason::PeerEnded
        | StopReason::GpuLost
        | StopReason::Requeued
        | StopReason::NotSuspended
        | StopReason::SuspendedTooLong
        | StopReason::LivenessFailed => StepState::Failed,
    }
}

/// Ends a step inside an allocation instead of queueing it again after its host was lost, because its allocation is lost with
/// the host, or failed to start it, because its allocation has no other.
fn inside(step: &Step, decision: RetryDecision) -> RetryDecision {
    use ReasonCode::{HostFailed, HostLost, HostRebooted, LeaseExpired, PrologFailed};
    let codes = [
        HostLost,
        HostRebooted,
        LeaseExpired,
        HostFailed,
        PrologFailed,
    ];
    match decision {
        RetryDecision::Retry(reason)
            if step.spec.inside.is_some() && codes.contains(&reason.code()) =>
        {
            RetryDecision::End(StepState::Failed, reason)
        }
        decision @ (RetryDecision::Retry(_) | RetryDecision::End(..)) => decision,
    }
}

/// The reason for which an attempt ended, whatever was decided about the step; `None` while it has not ended.
pub(crate) fn outcome(step: &Step, attempt: &Attempt) -> Option<Cause> {
    if !attempt.has_ended() {
        return None;
    }
    // A step without retries left gets its own failure as the reason.
    let retries_spent = step.spec.retries;
    let attempts = Vec::new();
    let spent = Step {
        retries_spent,
        attempts,
        ..step.clone()
    };
    match retry_decision(&spent, attempt, None) {
        RetryDecision::End(_, reason) | RetryDecision::Retry(reason) => Some(reason),
    }
}

/// Applies the step's own choice after a preemption: end, or spend a retry.
fn by_choice(step: &Step, verdict: RetryDecision) -> RetryDecision {
    match verdict {
        RetryDecision::Retry(reason) if step.spec.on_preempt == OnPreempt::Fail => {
            RetryDecision::End(StepState::Preempted, reason)
        }
        RetryDecision::Retry(reason) => free_or_paid(step, reason, StepState::Preempted),
        over @ RetryDecision::End(..) => over,
    }
}

/// Requeues a step after an end that was not its fault, for free or for a retry, as the step chooses.
fn free_or_paid(step: &Step, reason: Cause, else_over: StepState) -> RetryDecision {
    if step.spec.free_preemptions {
        return RetryDecision::Retry(reason);
    }
    again_or(step, reason, else_over)
}

/// Requeues a step for a retry, if one is left.
fn again_or(step: &Step, reason: Cause, else_over: StepState) -> RetryDecision {
    if step.retries_spent >= step.spec.retries {
        return RetryDecision::End(else_over, reason);
    }
    RetryDecision::Retry(Cause::Retry {
        after: Box::new(reason),
        spent: step.retries_spent + 1,
        allowed: step.spec.retries,
    })
}

/// The part whose end decides for the whole attempt, with its rank.
fn decisive_part(attempt: &Attempt) -> Option<(usize, &Part, &AttemptEnd)> {
    let part = attempt.decisive_part()?;
    let rank = attempt.parts.iter().position(|p| p.node == part.node)?;
    Some((rank, part, part.end.as_ref()?))
}

fn gave_way(part: &Part, end: &AttemptEnd, why: Cause) -> RetryDecision {
    match &end.exit {
        Exit::Code(0) => over(StepState::Succeeded, part, end),
        Exit::StartFailed(_) => over(StepState::Failed, part, end),
        Exit::HostFailed(_)
        | Exit::PrologFailed(_)
        | Exit::NotBegun(_)
        | Exit::Code(_)
        | Exit::Signal(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_)
        | Exit::Unknown => RetryDecision::Retry(why),
    }
}

/// Decides about a step whose part ended by itself; `why` is the reason of the whole.
fn by_exit(step: &Step, part: &Part, end: &AttemptEnd, why: Cause) -> RetryDecision {
    match &end.exit {
        Exit::Code(0) => over(StepState::Succeeded, part, end),
        Exit::StartFailed(_) => failed(why),
        // The command never ran, so no retry is spent.
        Exit::NotBegun(_) => RetryDecision::Retry(why),
        Exit::HostFailed(_) | Exit::PrologFailed(_) | Exit::LeaseExpired | Exit::HostRebooted => {
            free_or_paid(step, why, StepState::Failed)
        }
        Exit::Code(_)
        | Exit::Signal(_)
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_)
        | Exit::Unknown => failed_or_again(step, why),
    }
}

/// An attempt that could not be frozen is treated as stopped by a preemption.
fn not_suspended(attempt: &Attempt) -> Cause {
    match attempt.not_suspended.clone() {
        Some(failure) => Cause::NotSuspended { failure },
        None => Cause::Preempted,
    }
}

fn exited(part: &Part, end: &AttemptEnd) -> Cause {
    Cause::Exited {
        node: part.node.clone(),
        exit: end.exit.clone(),
    }
}

fn over(state: StepState, part: &Part, end: &AttemptEnd) -> RetryDecision {
    RetryDecision::End(state, exited(part, end))
}

fn failed(reason: Cause) -> RetryDecision {
    RetryDecision::End(StepState::Failed, reason)
}

fn failed_or_again(step: &Step, failure: Cause) -> RetryDecision {
    again_or(step, failure, StepState::Failed)
}

/// Ends a step whose attempt numbers are exhausted, and an allocation that its holder has had.
fn bounded(step: &Step, attempt: &Attempt, verdict: RetryDecision) -> RetryDecision {
    // After a restore it is unknown whether its holder had it.
    let may_have_run = attempt.has_run() || attempt.stopping == Some(StopReason::Superseded);
    let was_held = step.lease.is_some() && may_have_run;
    match verdict {
        RetryDecision::Retry(reason) if attempt.number == u32::MAX || was_held => failed(reason),
        RetryDecision::Retry(_) | RetryDecision::End(..) => verdict,
    }
}
