//! What becomes of a step whose attempt has ended. Pure: the records are emitted by whoever asks.
//!
//! | how it ended | what becomes of the step |
//! |---|---|
//! | it was cancelled, however it ended | `cancelled` |
//! | it ran over its `timeout`, however it ended | `failed`; never retried, for it would run over again |
//! | code 0 | `succeeded`, also for one that was to give way and finished within its grace |
//! | it was to give way to another step or leave its host | waits again, for free; `preempted` with `on_preempt: fail` |
//! | somebody had it start anew | waits again, for free |
//! | it could not be frozen, or was frozen for too long | as if it was to give way |
//! | its host was lost or rebooted, could not start it, or its lease passed | waits again, for free |
//! | it did not begin on its host: the supervisor was away, or the order came late or never | waits again, for free, also with `free_preemptions: false` |
//! | another code, a signal, or nobody saw how | waits again while it has retries, else `failed` |
//! | it was killed because a GPU of its was lost | waits again while it has retries, else `failed` |
//! | a part of a gang ended badly, or its host was lost | all of it is stopped, and goes on as that part's end says |
//! | with `free_preemptions: false`, what waits again for free above | waits again while it has retries, else `preempted` or `failed` |
//! | it could not be started | `failed`; never retried, for the same command would fail again |

use alloc::vec::Vec;

use sluice_common::id::NodeName;
use sluice_common::reason::Reason;
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptEnd, StopWhy};

use crate::model::step::{Attempt, Part, Step};
use crate::words;

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is over.
    Over(StepState, Reason),
    /// It waits again, in its old place.
    Again(Reason),
}

/// What becomes of `step`, whose `attempt` has ended on every host; `drained` is one of them that is being emptied.
pub(crate) fn verdict(step: &Step, attempt: &Attempt, drained: Option<&NodeName>) -> Verdict {
    let (rank, part, end) = telling(attempt).expect("an attempt has parts, and all have ended");
    // What the core decided goes before what the host tells: a cancel that was answered is not taken back because a
    // timeout came in at the same moment.
    let verdict = match attempt.stopping.or(end.stopped) {
        Some(StopWhy::Cancelled) => Verdict::Over(StepState::Cancelled, words::cancelled()),
        Some(StopWhy::TimedOut) => Verdict::Over(StepState::Failed, words::timed_out()),
        Some(StopWhy::Drained) => by_choice(
            step,
            gave_way(&end.exit, words::drained(drained.unwrap_or(&part.node))),
        ),
        Some(StopWhy::Preempted) => by_choice(step, gave_way(&end.exit, words::preempted())),
        Some(StopWhy::GpuLost) => match end.exit {
            Exit::Code(0) => succeeded(),
            Exit::Code(_)
            | Exit::Signal(_)
            | Exit::StartFailed(_)
            | Exit::LeaseExpired
            | Exit::HostRebooted
            | Exit::Unknown
            | Exit::OutOfMemory { .. }
            | Exit::StorageExceeded(_)
            | Exit::PrologFailed(_)
            | Exit::NotBegun(_)
            | Exit::HostFailed(_) => failed_or_again(step, words::gpu_lost(&part.node)),
        },
        Some(StopWhy::Requeued) => gave_way(&end.exit, words::requeued()),
        Some(StopWhy::NotSuspended) => by_choice(step, gave_way(&end.exit, not_suspended(attempt))),
        Some(StopWhy::SuspendedTooLong) => {
            by_choice(step, gave_way(&end.exit, words::suspended_too_long()))
        }
        Some(StopWhy::Superseded) => gave_way(&end.exit, words::superseded(&part.node)),
        Some(StopWhy::PeerEnded) | None => {
            let lost = attempt.broken_by.as_ref().is_some_and(|by| by.lost);
            let of = |reason| match attempt.parts.len() {
                1 => reason,
                _ => words::of_rank(rank, &part.node, reason),
            };
            match lost {
                true => free_or_paid(step, of(words::host_lost(&part.node)), StepState::Failed),
                false => by_exit(step, &part.node, end, of),
            }
        }
    };
    bounded(attempt, verdict)
}

/// How an attempt ended, whatever became of the step then; `None` while it has not ended.
pub(crate) fn outcome(step: &Step, attempt: &Attempt) -> Option<Reason> {
    if !attempt.has_ended() {
        return None;
    }
    // One that has no retries left is told of its failure as it is.
    let retries_spent = step.spec.retries;
    let attempts = Vec::new();
    let spent = Step {
        retries_spent,
        attempts,
        ..step.clone()
    };
    match verdict(&spent, attempt, None) {
        Verdict::Over(_, reason) | Verdict::Again(reason) => Some(reason),
    }
}

/// A step that gave way may rather be over than wait again, or pay for it.
fn by_choice(step: &Step, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Again(reason) if step.spec.on_preempt == OnPreempt::Fail => {
            Verdict::Over(StepState::Preempted, reason)
        }
        Verdict::Again(reason) => free_or_paid(step, reason, StepState::Preempted),
        over @ Verdict::Over(..) => over,
    }
}

/// What was no fault of the step's: it waits again for free, or for a retry where that is its choice.
fn free_or_paid(step: &Step, reason: Reason, else_over: StepState) -> Verdict {
    if step.spec.free_preemptions {
        return Verdict::Again(reason);
    }
    again_or(step, reason, else_over)
}

/// Waits again for a retry, while there are any.
fn again_or(step: &Step, reason: Reason, else_over: StepState) -> Verdict {
    if step.retries_spent >= step.spec.retries {
        return Verdict::Over(else_over, reason);
    }
    let spent = step.retries_spent + 1;
    Verdict::Again(words::retry(reason, spent, step.spec.retries))
}

/// The part whose end stands for that of the whole, with its rank.
fn telling(attempt: &Attempt) -> Option<(usize, &Part, &AttemptEnd)> {
    let part = attempt.telling()?;
    let rank = attempt.parts.iter().position(|p| p.node == part.node)?;
    Some((rank, part, part.end.as_ref()?))
}

fn gave_way(exit: &Exit, why: Reason) -> Verdict {
    match exit {
        Exit::Code(0) => succeeded(),
        Exit::StartFailed(sentence) => failed(words::start_failed(sentence)),
        Exit::HostFailed(_)
        | Exit::PrologFailed(_)
        | Exit::NotBegun(_)
        | Exit::Code(_)
        | Exit::Signal(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_)
        | Exit::Unknown => Verdict::Again(why),
    }
}

fn by_exit(
    step: &Step,
    node: &NodeName,
    end: &AttemptEnd,
    of: impl Fn(Reason) -> Reason,
) -> Verdict {
    match &end.exit {
        Exit::Code(0) => succeeded(),
        Exit::Code(code) => failed_or_again(step, of(words::non_zero_exit(*code))),
        Exit::Signal(signal) => failed_or_again(step, of(words::killed_by_signal(*signal))),
        Exit::StartFailed(sentence) => failed(of(words::start_failed(sentence))),
        Exit::HostFailed(sentence) => free_or_paid(
            step,
            of(words::host_failed(node, sentence)),
            StepState::Failed,
        ),
        Exit::PrologFailed(sentence) => free_or_paid(
            step,
            of(words::prolog_failed(node, sentence)),
            StepState::Failed,
        ),
        // Nothing of it ever ran, so there is nothing to pay for.
        Exit::NotBegun(sentence) => Verdict::Again(of(words::not_begun(node, sentence))),
        Exit::LeaseExpired => free_or_paid(step, of(words::lease_expired(node)), StepState::Failed),
        Exit::HostRebooted => free_or_paid(step, of(words::host_rebooted(node)), StepState::Failed),
        Exit::OutOfMemory(found) => failed_or_again(step, of(words::out_of_memory(node, *found))),
        Exit::StorageExceeded(found) => {
            failed_or_again(step, of(words::storage_exceeded(node, *found)))
        }
        Exit::Unknown => failed_or_again(step, of(words::exit_unknown(node))),
    }
}

/// One that could not be frozen waits as if it had been stopped for good: it was to give way.
fn not_suspended(attempt: &Attempt) -> Reason {
    let why = attempt.not_suspended.as_ref();
    why.map_or_else(words::preempted, words::not_suspended)
}

fn succeeded() -> Verdict {
    Verdict::Over(StepState::Succeeded, words::completed())
}

fn failed(reason: Reason) -> Verdict {
    Verdict::Over(StepState::Failed, reason)
}

fn failed_or_again(step: &Step, failure: Reason) -> Verdict {
    again_or(step, failure, StepState::Failed)
}

/// Attempts are numbered, and numbers end.
fn bounded(attempt: &Attempt, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Again(reason) if attempt.number == u32::MAX => failed(reason),
        Verdict::Again(_) | Verdict::Over(..) => verdict,
    }
}
