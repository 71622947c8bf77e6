//! What becomes of a step whose attempt has ended. Pure: the records are emitted by whoever asks.
//!
//! | how it ended | what becomes of the step |
//! |---|---|
//! | it was cancelled, however it ended | `cancelled` |
//! | it ran over its `timeout`, however it ended | `failed`; never retried, for it would run over again |
//! | code 0 | `succeeded`, also for one that was to give way and finished within its grace |
//! | it was to give way to another step or leave its host | waits again, for free; `preempted` with `on_preempt: fail` |
//! | its host was lost or rebooted, or its lease passed | waits again, for free |
//! | another code, a signal, or nobody saw how | waits again while it has retries, else `failed` |
//! | it could not be started | `failed`; never retried, for the same command would fail again |

use sluice_common::id::NodeName;
use sluice_common::reason::Reason;
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptEnd, StopWhy};

use crate::state::{Attempt, Step};
use crate::words;

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is over.
    Over(StepState, Reason),
    /// It waits again, in its old place.
    Again(Reason),
}

/// Who says that an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    /// Its host, or what its host no longer lists.
    Host,
    /// Nobody: its host is lost.
    Nobody,
}

/// What becomes of `step`, whose `attempt` has ended on `node`.
pub(crate) fn verdict(
    step: &Step,
    attempt: &Attempt,
    node: &NodeName,
    end: &AttemptEnd,
    witness: Witness,
) -> Verdict {
    // What the core decided goes before what the host tells: a cancel that was answered is not taken back because a
    // timeout came in at the same moment.
    let verdict = match attempt.stopping.or(end.stopped) {
        Some(StopWhy::Cancelled) => Verdict::Over(StepState::Cancelled, words::cancelled()),
        Some(StopWhy::TimedOut) => Verdict::Over(StepState::Failed, words::timed_out()),
        Some(StopWhy::Drained) => by_choice(step, gave_way(&end.exit, words::drained(node))),
        Some(StopWhy::Preempted) => by_choice(step, gave_way(&end.exit, words::preempted())),
        Some(StopWhy::Superseded) => gave_way(&end.exit, words::superseded(node)),
        None if witness == Witness::Nobody => Verdict::Again(words::host_lost(node)),
        None => by_exit(step, node, &end.exit),
    };
    bounded(attempt, verdict)
}

/// A step that gave way may rather be over than wait again.
fn by_choice(step: &Step, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Again(reason) if step.spec.on_preempt == OnPreempt::Fail => {
            Verdict::Over(StepState::Preempted, reason)
        }
        Verdict::Again(_) | Verdict::Over(..) => verdict,
    }
}

fn gave_way(exit: &Exit, why: Reason) -> Verdict {
    match exit {
        Exit::Code(0) => succeeded(),
        Exit::StartFailed(sentence) => failed(words::start_failed(sentence)),
        Exit::Code(_)
        | Exit::Signal(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::Unknown => Verdict::Again(why),
    }
}

fn by_exit(step: &Step, node: &NodeName, exit: &Exit) -> Verdict {
    match exit {
        Exit::Code(0) => succeeded(),
        Exit::Code(code) => failed_or_again(step, words::non_zero_exit(*code)),
        Exit::Signal(signal) => failed_or_again(step, words::killed_by_signal(*signal)),
        Exit::StartFailed(sentence) => failed(words::start_failed(sentence)),
        Exit::LeaseExpired => Verdict::Again(words::lease_expired(node)),
        Exit::HostRebooted => Verdict::Again(words::host_rebooted(node)),
        Exit::Unknown => failed_or_again(step, words::exit_unknown(node)),
    }
}

fn succeeded() -> Verdict {
    Verdict::Over(StepState::Succeeded, words::completed())
}

fn failed(reason: Reason) -> Verdict {
    Verdict::Over(StepState::Failed, reason)
}

fn failed_or_again(step: &Step, failure: Reason) -> Verdict {
    if step.retries_spent >= step.spec.retries {
        return failed(failure);
    }
    let spent = step.retries_spent + 1;
    Verdict::Again(words::retry(failure, spent, step.spec.retries))
}

/// Attempts are numbered, and numbers end.
fn bounded(attempt: &Attempt, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Again(reason) if attempt.number == u32::MAX => failed(reason),
        Verdict::Again(_) | Verdict::Over(..) => verdict,
    }
}
