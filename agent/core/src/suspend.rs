//! States of one attempt between suspend and resume. Pure: [`crate::attempt`] passes events here while an attempt is
//! being
//! suspended, is suspended or is being resumed.
//!
//! ```text
//!           suspend                   seen frozen              resume                   seen thawed
//! Running ----------> Suspending ------------------> Suspended --------> Resuming --------------------> Running
//!                         |  refused, or too late                            | too late, or not restored
//!                         +-------------> Failed <--------------------------+
//! ```
//! An attempt with GPU memory counts as frozen only when its GPUs were seen empty: [`crate::on::suspension`] waits for
//! that. A failed attempt keeps running if it can, and is reported until it is stopped or resumed. A stop ends every
//! state: a suspended attempt is killed at once, because it has no resources to shut down; any other is thawed first. The
//! step's `timeout` is paused from the suspend order until it runs again; a restarted agent learns that time from the
//! supervisor.

mod orders;

use alloc::borrow::ToOwned;
use alloc::vec;

use sluice_common::amount::megabytes_up;
use sluice_common::supervision::{
    AttemptView, BootMillis, FreezeRefusal, FreezerState, HostPhase, MovedMemory, Process,
};
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason, SuspendFailure};

use crate::attempt::{Attempt, Effect, Effects, Transition, run, started, stopping};
use crate::input::Now;
use crate::stop::{Stop, later};

/// Time limit of a freeze or thaw. A thousand processes take milliseconds; a process that takes longer is
/// blocked in the kernel.
pub(crate) const SUSPEND_LIMIT: Span = Span::from_secs(30);

/// Default time limit for moving GPU memory, in addition: tens of seconds for full GPUs, twice, because a
/// failed move is rolled back.
pub const DEFAULT_MOVE_LIMIT: Span = Span::from_secs(120);

/// An attempt that is not simply running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    pub(crate) process: Process,
    /// Time between SIGTERM and SIGKILL after the timeout.
    grace: Span,
    /// The rest of its `timeout`.
    left: Option<Span>,
    pub(crate) stage: SuspendStage,
    /// Parameters for the move of its GPU memory; `None` if it has none.
    pub(crate) holding: Option<GpuHolding>,
    /// The memory that was moved from its GPUs.
    pub(crate) moved: Option<MovedMemory>,
    /// Whether the reverse order follows as soon as this one is answered: two unanswered orders could not be
    /// distinguished by their answers.
    turns: bool,
}

/// Parameters for the move of an attempt's GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuHolding {
    /// Host memory reserved for it, in units of 10^6 bytes.
    pub(crate) room_mb: u64,
    /// Time limit of the move, and of the restore.
    pub(crate) limit: Span,
}

/// For an attempt that a restarted agent adopts during a move: the coordinator sends the reservation again.
const ADOPTED_HOLDING: GpuHolding = GpuHolding {
    room_mb: u64::MAX,
    limit: DEFAULT_MOVE_LIMIT,
};

/// Stage of a suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SuspendStage {
    /// The supervisor was ordered to freeze the attempt.
    Suspending {
        /// Time limit of the stage.
        until: BootMillis,
    },
    /// No process of the attempt runs.
    Suspended,
    /// The supervisor was ordered to thaw the attempt.
    Resuming {
        /// Time limit of the stage.
        until: BootMillis,
    },
    /// The freeze or thaw failed.
    Failed(SuspendFailure),
}

impl Suspension {
    /// Starts to suspend a running attempt.
    pub(crate) fn begin(
        now: Now,
        process: Process,
        timeout_at: Option<BootMillis>,
        grace: Span,
        holding: Option<GpuHolding>,
    ) -> Transition {
        let suspension = Self {
            process,
            grace,
            left: left(timeout_at, now.boot),
            stage: SuspendStage::Suspending {
                until: deadline(now, holding),
            },
            holding,
            moved: None,
            turns: false,
        };
        suspension.entered()
    }

    /// Adopts an attempt that is frozen or being frozen.
    pub(crate) fn met(now: Now, process: Process, view: &AttemptView) -> Option<Transition> {
        let (memo, freezer) = (&view.launch_record, &view.freezer);
        let timeout_at = timeout_at(view, process);
        let holding = (!memo.gpus.is_empty()).then_some(ADOPTED_HOLDING);
        let (next, mut effects) = Self::begin(now, process, timeout_at, memo.grace, holding);
        match (freezer, next) {
            (FreezerState::Thawed | FreezerState::Refused(_), _) => None,
            (FreezerState::Frozen | FreezerState::Moved(_), Attempt::Frozen(mut suspension)) => {
                suspension.left = left(timeout_at, view.frozen.since.unwrap_or(now.boot));
                Some(suspension.on_freezer(now, freezer))
            }
            (FreezerState::Restoring, Attempt::Frozen(suspension)) => {
                let (next, mut effects) = suspension.resuming(now);
                effects.retain(|effect| *effect != Effect::Thaw);
                Some((next, effects))
            }
            (_, next) => {
                // The freeze was ordered already.
                effects.retain(|effect| *effect != Effect::Freeze);
                Some((next, effects))
            }
        }
    }

    /// The phase for the coordinator.
    pub(crate) fn status(&self) -> AttemptPhase {
        let started = started(self.process);
        match &self.stage {
            SuspendStage::Suspending { .. } => AttemptPhase::Suspending(started),
            SuspendStage::Suspended => {
                let moved_mb = self.moved.as_ref().map_or(0, |it| megabytes_up(it.bytes));
                AttemptPhase::Suspended { started, moved_mb }
            }
            SuspendStage::Resuming { .. } => AttemptPhase::Resuming(started),
            SuspendStage::Failed(why) => {
                let why = why.clone();
                AttemptPhase::NotSuspended { started, why }
            }
        }
    }

    /// Handles an order to suspend, possibly repeated. Always reports.
    pub(crate) fn on_suspend(mut self, holding: Option<GpuHolding>) -> Transition {
        if matches!(
            self.stage,
            SuspendStage::Suspending { .. } | SuspendStage::Resuming { .. }
        ) {
            self.holding = holding.or(self.holding);
        }
        self.turns = matches!(self.stage, SuspendStage::Resuming { .. });
        self.reported()
    }

    /// Handles an order to resume. Always reports.
    pub(crate) fn on_resume(self, now: Now) -> Transition {
        match self.stage {
            SuspendStage::Suspended => self.resuming(now),
            SuspendStage::Suspending { .. } => Self {
                turns: true,
                ..self
            }
            .reported(),
            SuspendStage::Resuming { .. } => Self {
                turns: false,
                ..self
            }
            .reported(),
            SuspendStage::Failed(_) => self.running(now),
        }
    }

    /// Handles an order to resume while no order to the supervisor is unanswered: the attempt is frozen
    /// already, or the freeze was not ordered yet.
    pub(crate) fn on_resume_unanswered(self, now: Now) -> Transition {
        match self.stage {
            SuspendStage::Suspending { .. } => self.resuming(now),
            SuspendStage::Suspended | SuspendStage::Resuming { .. } | SuspendStage::Failed(_) => {
                self.on_resume(now)
            }
        }
    }

    fn resuming(self, now: Now) -> Transition {
        Self {
            stage: SuspendStage::Resuming {
                until: deadline(now, self.holding),
            },
            turns: false,
            ..self
        }
        .entered()
    }

    /// Handles a stop.
    pub(crate) fn on_stop(self, now: Now, why: StopReason, grace: Span) -> Transition {
        let grace = match self.stage {
            SuspendStage::Suspended => Span::ZERO,
            SuspendStage::Suspending { .. }
            | SuspendStage::Resuming { .. }
            | SuspendStage::Failed(_) => grace,
        };
        let is_frozen = self.stage == SuspendStage::Suspended;
        let (next, mut effects) = stopping(now, Some(self.process), why, grace);
        if !is_frozen {
            // Before the signal, which a frozen process does not receive.
            effects.insert(1, Effect::Thaw);
        }
        (next, effects)
    }

    /// Handles the freezer state in a view. The view may be older than the last order, so only the awaited
    /// state counts.
    pub(crate) fn on_freezer(self, now: Now, freezer: &FreezerState) -> Transition {
        match (&self.stage, freezer) {
            (SuspendStage::Suspending { .. }, FreezerState::Frozen | FreezerState::Moved(_)) => {
                self.stands_still(now, freezer)
            }
            (SuspendStage::Suspending { .. }, FreezerState::Refused(why)) => {
                let why = refusal(why);
                self.failed(now, why)
            }
            // Another program has thawed it, which must be undone: its GPUs may belong to others.
            (SuspendStage::Suspended, FreezerState::Thawed | FreezerState::Refused(_)) => {
                (Attempt::Frozen(self), vec![Effect::Freeze])
            }
            (SuspendStage::Resuming { .. }, FreezerState::Thawed) => self.running(now),
            (
                SuspendStage::Resuming { .. },
                FreezerState::Refused(FreezeRefusal::NotRestored(sentence)),
            ) => {
                let why = SuspendFailure::NotResumed(sentence.clone());
                self.failed(now, why)
            }
            (
                SuspendStage::Suspending { .. },
                FreezerState::Thawed
                | FreezerState::Freezing
                | FreezerState::Moving
                | FreezerState::Restoring,
            )
            | (
                SuspendStage::Suspended,
                FreezerState::Freezing
                | FreezerState::Frozen
                | FreezerState::Moving
                | FreezerState::Moved(_)
                | FreezerState::Restoring,
            )
            | (
                SuspendStage::Resuming { .. },
                FreezerState::Freezing
                | FreezerState::Frozen
                | FreezerState::Refused(_)
                | FreezerState::Moving
                | FreezerState::Moved(_)
                | FreezerState::Restoring,
            )
            | (SuspendStage::Failed(_), _) => (Attempt::Frozen(self), Effects::new()),
        }
    }

    /// Handles the time limit; the timer may fire needlessly.
    pub(crate) fn on_timer(self, now: Now) -> Transition {
        match self.stage {
            SuspendStage::Suspending { until } if until <= now.boot => {
                let why = match self.moved {
                    Some(_) => SuspendFailure::GpusBusy,
                    None => SuspendFailure::TimedOut,
                };
                let (next, mut effects) = self.failed(now, why);
                effects.insert(0, Effect::Thaw);
                (next, effects)
            }
            SuspendStage::Resuming { until } if until <= now.boot => {
                let limit = limit(self.holding);
                let sentence = alloc::format!("it did not run again within {limit}");
                self.failed(now, SuspendFailure::NotResumed(sentence))
            }
            SuspendStage::Suspending { until } | SuspendStage::Resuming { until } => {
                (Attempt::Frozen(self), vec![Effect::WakeSuspension(until)])
            }
            SuspendStage::Suspended | SuspendStage::Failed(_) => {
                (Attempt::Frozen(self), Effects::new())
            }
        }
    }

    /// Repeats the order of the stage, which a restarted supervisor may have missed.
    pub(crate) fn order_again(&self) -> Effects {
        match self.stage {
            SuspendStage::Suspending { .. } => vec![Effect::Freeze],
            SuspendStage::Resuming { .. } | SuspendStage::Failed(_) => vec![Effect::Thaw],
            SuspendStage::Suspended => Effects::new(),
        }
    }

    /// Orders the supervisor to do what the stage is about, and reports.
    fn entered(self) -> Transition {
        let order = self.order_again();
        let wake = match self.stage {
            SuspendStage::Suspending { until } | SuspendStage::Resuming { until } => {
                Some(Effect::WakeSuspension(until))
            }
            SuspendStage::Suspended | SuspendStage::Failed(_) => None,
        };
        let (next, mut effects) = self.reported();
        effects.extend(order);
        effects.extend(wake);
        (next, effects)
    }

    fn reported(self) -> Transition {
        let report = Effect::Report(self.status());
        (Attempt::Frozen(self), vec![report])
    }

    /// The processes are frozen; with GPU memory, the GPUs must be seen empty before the attempt counts as
    /// suspended.
    fn stands_still(self, now: Now, freezer: &FreezerState) -> Transition {
        if self.turns {
            return self.resuming(now);
        }
        if self.holding.is_none() {
            return self.frozen();
        }
        let moved = match freezer {
            FreezerState::Moved(moved) => moved.clone(),
            FreezerState::Thawed
            | FreezerState::Freezing
            | FreezerState::Frozen
            | FreezerState::Refused(_)
            | FreezerState::Moving
            | FreezerState::Restoring => MovedMemory::default(),
        };
        let moved = Some(moved);
        let next = Attempt::Frozen(Self { moved, ..self });
        (next, vec![Effect::AwaitMoved])
    }

    /// The GPUs were seen empty.
    pub(crate) fn on_moved(self) -> Transition {
        match (&self.stage, &self.moved) {
            (SuspendStage::Suspending { .. }, Some(_)) if !self.turns => self.frozen(),
            (
                SuspendStage::Suspending { .. }
                | SuspendStage::Suspended
                | SuspendStage::Resuming { .. }
                | SuspendStage::Failed(_),
                _,
            ) => (Attempt::Frozen(self), Effects::new()),
        }
    }

    /// The GPU memory cannot be moved; nothing was done yet.
    pub(crate) fn on_unmovable(self, now: Now, why: SuspendFailure) -> Transition {
        match self.stage {
            SuspendStage::Suspending { .. } => self.failed(now, why),
            SuspendStage::Suspended | SuspendStage::Resuming { .. } | SuspendStage::Failed(_) => {
                (Attempt::Frozen(self), Effects::new())
            }
        }
    }

    fn frozen(self) -> Transition {
        let stage = SuspendStage::Suspended;
        Self { stage, ..self }.reported()
    }

    fn failed(self, now: Now, why: SuspendFailure) -> Transition {
        if self.turns && matches!(self.stage, SuspendStage::Suspending { .. }) {
            return self.running(now);
        }
        let stage = SuspendStage::Failed(why);
        Self {
            stage,
            turns: false,
            ..self
        }
        .reported()
    }

    /// The attempt runs, and its timeout continues.
    fn running(self, now: Now) -> Transition {
        let timeout_at = self.left.map(|left| later(now.boot, left));
        if self.turns && matches!(self.stage, SuspendStage::Resuming { .. }) {
            return Self::begin(now, self.process, timeout_at, self.grace, self.holding);
        }
        let next = Attempt::Running {
            process: self.process,
            timeout_at,
            grace: self.grace,
        };
        let mut effects = vec![Effect::Report(next.status())];
        effects.extend(timeout_at.map(Effect::WakeTimeout));
        (next, effects)
    }
}

/// The rest of the `timeout` at the time of the suspend order.
fn left(timeout_at: Option<BootMillis>, since: BootMillis) -> Option<Span> {
    timeout_at.map(|at| Span::from_millis(at.0.saturating_sub(since.0)))
}

/// When a process has run for its `timeout`, without the time that it was frozen.
pub(crate) fn timeout_at(view: &AttemptView, process: Process) -> Option<BootMillis> {
    let timeout = view.launch_record.timeout?;
    Some(later(later(process.started(), timeout), view.frozen.before))
}

/// Adopts a process that runs or is frozen since before the agent started.
pub(crate) fn meet(now: Now, view: &AttemptView, process: Process) -> Transition {
    let frozen = Suspension::met(now, process, view);
    frozen.unwrap_or_else(|| run(view, process))
}

fn limit(holding: Option<GpuHolding>) -> Span {
    let moving = holding.map_or(0, |holding| holding.limit.millis());
    Span::from_millis(
        SUSPEND_LIMIT
            .millis()
            .saturating_add(moving.saturating_mul(2)),
    )
}

fn deadline(now: Now, holding: Option<GpuHolding>) -> BootMillis {
    later(now.boot, limit(holding))
}

fn refusal(why: &FreezeRefusal) -> SuspendFailure {
    match why {
        FreezeRefusal::Unsupported => SuspendFailure::NoFreezer,
        FreezeRefusal::Failed(sentence) | FreezeRefusal::NotRestored(sentence) => {
            SuspendFailure::Refused(sentence.to_owned())
        }
        FreezeRefusal::NoCheckpoint => SuspendFailure::NoCheckpoint,
        FreezeRefusal::SeveralProcesses => SuspendFailure::SeveralProcesses,
        FreezeRefusal::TimedOut => SuspendFailure::TimedOut,
    }
}

/// Whether the process of a suspended attempt still exists, by a view.
pub(crate) fn still_runs(view: &AttemptView) -> bool {
    match view.phase {
        HostPhase::Running(_) => true,
        HostPhase::Ended(_) | HostPhase::Gone(_) => false,
    }
}

/// Thaws a frozen attempt that was asked to end: the thaw order may have been lost with a supervisor.
pub(crate) fn thaw_to_ask(stop: Stop, view: &AttemptView) -> Effects {
    match (stop, &view.freezer) {
        (
            Stop::Asked { .. },
            FreezerState::Freezing | FreezerState::Frozen | FreezerState::Moved(_),
        ) if still_runs(view) => vec![Effect::Thaw],
        (Stop::Asked { .. } | Stop::Killing { .. }, _) => Effects::new(),
    }
}

#[cfg(test)]
mod tests;
