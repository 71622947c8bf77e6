//! The exit of `run` after a step's end: its exit code, and a message if the code alone does not tell what happened.

use sluice_common::api::StepView;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;

use crate::client::ApiError;
use crate::failure::Failure;
use crate::render::{safe, step::exit};
use crate::signals;

/// Exit of `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunExit {
    /// With the exit code of the step's program.
    Own(u8),
    /// With this code, because the step was cancelled.
    Cancelled(u8),
    /// With the code for steps that did not end by themselves: rejected, lost, never started.
    Sluice,
}

/// Returns how `run` ends for a step that has ended; `interrupted` is the signal that made this command cancel it.
///
/// A program that ended with 0 because it was stopped did not do its work, so that is no success.
pub(super) fn of(step: &StepView, interrupted: Option<i32>) -> RunExit {
    let own = program_code(step);
    match step.state {
        StepState::Succeeded => RunExit::Own(0),
        StepState::Cancelled => {
            let by_us = interrupted.map(signals::exit_code);
            match own.filter(|code| *code != 0).or(by_us) {
                Some(code) => RunExit::Cancelled(code),
                None => RunExit::Sluice,
            }
        }
        StepState::Failed => own
            .filter(|code| *code != 0)
            .map_or(RunExit::Sluice, RunExit::Own),
        StepState::Rejected | StepState::Preempted => RunExit::Sluice,
        StepState::Queued
        | StepState::Allocated
        | StepState::Starting
        | StepState::Running
        | StepState::Suspending
        | StepState::Suspended
        | StepState::Resuming
        | StepState::Stopping => RunExit::Sluice,
    }
}

/// Returns the exit code of the program as a shell would give it.
fn program_code(step: &StepView) -> Option<u8> {
    let exit = step.exit.as_ref()?;
    // A kill for lack of memory or disk is that signal; the reason tells it.
    let code = step.reason.code;
    let killed = matches!(code, ReasonCode::OutOfMemory | ReasonCode::StorageExceeded)
        .then_some(nix::libc::SIGKILL);
    exit.code
        .map(byte)
        .or_else(|| exit.signal.or(killed).map(signals::exit_code))
}

fn byte(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Whether the exit code tells everything: the program chose it, and Sluice did not interfere. 143 may be a timeout,
/// another user's signal, or the program's own code.
pub(super) fn tells_all(step: &StepView) -> bool {
    matches!(
        step.reason.code,
        ReasonCode::Completed | ReasonCode::NonZeroExit
    )
}

/// Returns what happened, and how the program ended.
pub(super) fn sentence(step: &StepView) -> String {
    let (id, message) = (safe(&step.id), safe(&step.reason.message));
    let seen = step
        .exit
        .as_ref()
        .filter(|exit| exit.code.is_some() || exit.signal.is_some());
    let how = seen.map_or(String::new(), |end| format!(" ({})", exit(end)));
    let timeout = step.timeout.as_deref().map(safe);
    match (step.state, timeout) {
        (StepState::Rejected, _) => format!("{id} was rejected: {message}"),
        (StepState::Failed, Some(timeout)) if step.reason.code == ReasonCode::TimedOut => {
            format!("{id} timed out after {timeout}{how}")
        }
        (state, _) => format!("{id} {state}{how}: {message}"),
    }
}

/// The failure of a command whose step cannot be watched any more.
pub(super) fn unwatchable(step: &StepView, error: ApiError) -> Failure {
    match error.status() {
        Some(404) => Failure::Failed(format!(
            "the cluster no longer knows {}: how it ended is not known",
            safe(&step.id)
        )),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;
    use sluice_common::api::ExitView;

    fn ended(state: StepState, code: Option<i32>, signal: Option<i32>) -> StepView {
        let mut step = running();
        step.state = state;
        step.exit = (code.is_some() || signal.is_some()).then_some(ExitView {
            code,
            signal,
            message: None,
        });
        step
    }

    #[test]
    fn a_program_s_end_is_passed_on() {
        use StepState::{Failed, Succeeded};
        for (state, code, signal, ending) in [
            (Succeeded, Some(0), None, RunExit::Own(0)),
            (Failed, Some(7), None, RunExit::Own(7)),
            (Failed, Some(255), None, RunExit::Own(255)),
            (Failed, None, Some(9), RunExit::Own(137)),
            (Failed, None, None, RunExit::Sluice),
            (Failed, Some(0), None, RunExit::Sluice),
        ] {
            assert_eq!(
                of(&ended(state, code, signal), None),
                ending,
                "{state} {code:?} {signal:?}"
            );
        }
    }

    #[test]
    fn what_is_no_end_of_the_program_is_sluice_s() {
        for state in [StepState::Rejected, StepState::Preempted] {
            assert_eq!(
                of(&ended(state, None, Some(15)), None),
                RunExit::Sluice,
                "{state}"
            );
        }
    }

    #[test]
    fn a_cancelled_step_never_looks_like_success() {
        let state = StepState::Cancelled;
        assert_eq!(
            of(&ended(state, None, Some(15)), Some(2)),
            RunExit::Cancelled(143)
        );
        assert_eq!(
            of(&ended(state, Some(0), None), Some(2)),
            RunExit::Cancelled(130)
        );
        assert_eq!(
            of(&ended(state, None, None), Some(15)),
            RunExit::Cancelled(143)
        );
        assert_eq!(of(&ended(state, Some(0), None), None), RunExit::Sluice);
        assert_eq!(of(&ended(state, None, None), None), RunExit::Sluice);
        assert_eq!(
            of(&ended(state, Some(3), None), None),
            RunExit::Cancelled(3)
        );
    }

    #[test]
    fn a_code_tells_all_where_the_program_chose_it() {
        let mut step = ended(StepState::Failed, Some(7), None);
        for (code, all) in [
            (ReasonCode::NonZeroExit, true),
            (ReasonCode::Completed, true),
            (ReasonCode::TimedOut, false),
            (ReasonCode::KilledBySignal, false),
            (ReasonCode::OutOfMemory, false),
            (ReasonCode::StorageExceeded, false),
            (ReasonCode::HostLost, false),
        ] {
            step.reason.code = code;
            assert_eq!(tells_all(&step), all, "{code}");
        }
    }

    #[test]
    fn sentences_say_what_happened() {
        let mut step = ended(StepState::Failed, None, Some(9));
        step.reason.message = "it was killed".into();
        assert_eq!(
            sentence(&step),
            "k3v9 failed (signal 9 (SIGKILL)): it was killed"
        );
        let mut step = ended(StepState::Failed, None, Some(15));
        step.reason.code = ReasonCode::TimedOut;
        assert_eq!(
            sentence(&step),
            "k3v9 timed out after 2h (signal 15 (SIGTERM))"
        );
        let mut step = ended(StepState::Rejected, None, None);
        step.reason.message = "no host has 9 GPUs".into();
        assert_eq!(sentence(&step), "k3v9 was rejected: no host has 9 GPUs");
    }
}
