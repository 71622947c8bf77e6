//! Freezing an attempt and letting it run again, as states of one attempt. Pure: [`crate::attempt`] hands the events of
//! an attempt that is being frozen, is frozen or is brought back to this file, and takes it back when it runs.
//!
//! ```text
//!           suspend                   seen frozen              resume                   seen thawed
//! Running ----------> Suspending ------------------> Suspended --------> Resuming --------------------> Running
//!                         |  refused, or too late                            | too late, or not restored
//!                         +-------------> Failed <--------------------------+
//! ```
//! One that holds memory of GPUs is seen frozen when its GPUs were seen free as well: [`crate::on::suspension`] waits for that.
//! What failed runs on as far as it can, and is reported until it is told to stop or to run on. A stop ends each of
//! them: one that is frozen is killed at once, for it holds no units with which it could end by itself; any other is
//! thawed first. The step's `timeout` stands still from the order to freeze until it runs again; an agent that starts
//! anew has from the supervisor how long that was.

mod orders;

use alloc::borrow::ToOwned;
use alloc::vec;

use sluice_common::amount::megabytes_up;
use sluice_common::supervision::{
    AttemptView, BootMillis, FreezeRefusal, FreezerState, HostPhase, MovedMemory, Process,
};
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason, SuspendFailure};

use crate::attempt::{Attempt, Effect, Effects, Next, run, started, stopping};
use crate::input::Now;
use crate::stop::{Stop, later};

/// Longest time that freezing or thawing may take. A group of a thousand processes takes milliseconds; what does not
/// come to rest in this time waits for something that the kernel will not interrupt.
pub(crate) const SUSPEND_LIMIT: Span = Span::from_secs(30);

/// Longest time that moving what is on GPUs may take beside that, where nobody says: tens of seconds for GPUs that are
/// full, twice, for what is begun in vain is undone.
pub const DEFAULT_MOVE_LIMIT: Span = Span::from_secs(120);

/// An attempt that is not simply running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    pub(crate) process: Process,
    /// Between the signal and the kill when it times out.
    grace: Span,
    /// How much of its `timeout` is left.
    left: Option<Span>,
    /// How far it has come.
    pub(crate) stage: Stage,
    /// What is to be known for moving what it holds on GPUs; none where it holds nothing there.
    pub(crate) holding: Option<Holding>,
    /// What was moved from its GPUs.
    pub(crate) moved: Option<MovedMemory>,
    /// Whether the other way is wanted as soon as this one has been gone: two orders that are not answered yet could not be
    /// told apart by their answers.
    turns: bool,
}

/// What is to be known for moving what an attempt holds on GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Room on the host for it, in units of 10^6 bytes.
    pub(crate) room_mb: u64,
    /// How long moving may take, and bringing back.
    pub(crate) limit: Span,
}

/// For one that a new agent meets on its way: the coordinator tells the room once more.
const MET_HOLDING: Holding = Holding {
    room_mb: u64::MAX,
    limit: DEFAULT_MOVE_LIMIT,
};

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The supervisor was told to freeze it.
    Suspending {
        /// When that has taken too long.
        until: BootMillis,
    },
    /// None of its processes runs.
    Suspended,
    /// The supervisor was told to thaw it.
    Resuming {
        /// When that has taken too long.
        until: BootMillis,
    },
    /// It could not be frozen, or not be thawed.
    Failed(SuspendFailure),
}

impl Suspension {
    /// One that runs is to be frozen.
    pub(crate) fn begin(
        now: Now,
        process: Process,
        timeout_at: Option<BootMillis>,
        grace: Span,
        holding: Option<Holding>,
    ) -> Next {
        let suspension = Self {
            process,
            grace,
            left: left(timeout_at, now.boot),
            stage: Stage::Suspending {
                until: deadline(now, holding),
            },
            holding,
            moved: None,
            turns: false,
        };
        suspension.entered()
    }

    /// One that a new agent meets while it is frozen, or is being frozen.
    pub(crate) fn met(now: Now, process: Process, view: &AttemptView) -> Option<Next> {
        let (memo, freezer) = (&view.launch_record, &view.freezer);
        let timeout_at = timeout_at(view, process);
        let holding = (!memo.gpus.is_empty()).then_some(MET_HOLDING);
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
                // It is on its way already.
                effects.retain(|effect| *effect != Effect::Freeze);
                Some((next, effects))
            }
        }
    }

    /// As the coordinator is told.
    pub(crate) fn status(&self) -> AttemptPhase {
        let started = started(self.process);
        match &self.stage {
            Stage::Suspending { .. } => AttemptPhase::Suspending(started),
            Stage::Suspended => {
                let moved_mb = self.moved.as_ref().map_or(0, |it| megabytes_up(it.bytes));
                AttemptPhase::Suspended { started, moved_mb }
            }
            Stage::Resuming { .. } => AttemptPhase::Resuming(started),
            Stage::Failed(why) => {
                let why = why.clone();
                AttemptPhase::NotSuspended { started, why }
            }
        }
    }

    /// It is to be frozen, perhaps once more. Always reports.
    pub(crate) fn on_suspend(mut self, holding: Option<Holding>) -> Next {
        if matches!(
            self.stage,
            Stage::Suspending { .. } | Stage::Resuming { .. }
        ) {
            self.holding = holding.or(self.holding);
        }
        self.turns = matches!(self.stage, Stage::Resuming { .. });
        self.reported()
    }

    /// It is to run again. Always reports.
    pub(crate) fn on_resume(self, now: Now) -> Next {
        match self.stage {
            Stage::Suspended => self.resuming(now),
            Stage::Suspending { .. } => Self {
                turns: true,
                ..self
            }
            .reported(),
            Stage::Resuming { .. } => Self {
                turns: false,
                ..self
            }
            .reported(),
            Stage::Failed(_) => self.running(now),
        }
    }

    /// It is to run again, and everything that the supervisor was told is answered: it stands still already, or nobody was
    /// told to freeze it yet.
    pub(crate) fn on_resume_unanswered(self, now: Now) -> Next {
        match self.stage {
            Stage::Suspending { .. } => self.resuming(now),
            Stage::Suspended | Stage::Resuming { .. } | Stage::Failed(_) => self.on_resume(now),
        }
    }

    fn resuming(self, now: Now) -> Next {
        Self {
            stage: Stage::Resuming {
                until: deadline(now, self.holding),
            },
            turns: false,
            ..self
        }
        .entered()
    }

    /// It is to stop.
    pub(crate) fn on_stop(self, now: Now, why: StopReason, grace: Span) -> Next {
        let grace = match self.stage {
            Stage::Suspended => Span::ZERO,
            Stage::Suspending { .. } | Stage::Resuming { .. } | Stage::Failed(_) => grace,
        };
        let is_frozen = self.stage == Stage::Suspended;
        let (next, mut effects) = stopping(now, Some(self.process), why, grace);
        if !is_frozen {
            // Before the signal, which none that is frozen hears.
            effects.insert(1, Effect::Thaw);
        }
        (next, effects)
    }

    /// The supervisor shows its freezer. What is shown may be older than the last order, so only what is waited for
    /// counts.
    pub(crate) fn on_freezer(self, now: Now, freezer: &FreezerState) -> Next {
        match (&self.stage, freezer) {
            (Stage::Suspending { .. }, FreezerState::Frozen | FreezerState::Moved(_)) => {
                self.stands_still(now, freezer)
            }
            (Stage::Suspending { .. }, FreezerState::Refused(why)) => {
                let why = refusal(why);
                self.failed(now, why)
            }
            // Somebody has thawed it, who must not: what it held may be another's.
            (Stage::Suspended, FreezerState::Thawed | FreezerState::Refused(_)) => {
                (Attempt::Frozen(self), vec![Effect::Freeze])
            }
            (Stage::Resuming { .. }, FreezerState::Thawed) => self.running(now),
            (
                Stage::Resuming { .. },
                FreezerState::Refused(FreezeRefusal::NotRestored(sentence)),
            ) => {
                let why = SuspendFailure::NotResumed(sentence.clone());
                self.failed(now, why)
            }
            (
                Stage::Suspending { .. },
                FreezerState::Thawed
                | FreezerState::Freezing
                | FreezerState::Moving
                | FreezerState::Restoring,
            )
            | (
                Stage::Suspended,
                FreezerState::Freezing
                | FreezerState::Frozen
                | FreezerState::Moving
                | FreezerState::Moved(_)
                | FreezerState::Restoring,
            )
            | (
                Stage::Resuming { .. },
                FreezerState::Freezing
                | FreezerState::Frozen
                | FreezerState::Refused(_)
                | FreezerState::Moving
                | FreezerState::Moved(_)
                | FreezerState::Restoring,
            )
            | (Stage::Failed(_), _) => (Attempt::Frozen(self), Effects::new()),
        }
    }

    /// It has taken too long, or the timer fires needlessly.
    pub(crate) fn on_timer(self, now: Now) -> Next {
        match self.stage {
            Stage::Suspending { until } if until <= now.boot => {
                let why = match self.moved {
                    Some(_) => SuspendFailure::GpusBusy,
                    None => SuspendFailure::TimedOut,
                };
                let (next, mut effects) = self.failed(now, why);
                effects.insert(0, Effect::Thaw);
                (next, effects)
            }
            Stage::Resuming { until } if until <= now.boot => {
                let limit = limit(self.holding);
                let sentence = alloc::format!("it did not run again within {limit}");
                self.failed(now, SuspendFailure::NotResumed(sentence))
            }
            Stage::Suspending { until } | Stage::Resuming { until } => {
                (Attempt::Frozen(self), vec![Effect::WakeSuspension(until)])
            }
            Stage::Suspended | Stage::Failed(_) => (Attempt::Frozen(self), Effects::new()),
        }
    }

    /// The order of the stage, for a supervisor that has come back and may have missed it.
    pub(crate) fn order_again(&self) -> Effects {
        match self.stage {
            Stage::Suspending { .. } => vec![Effect::Freeze],
            Stage::Resuming { .. } | Stage::Failed(_) => vec![Effect::Thaw],
            Stage::Suspended => Effects::new(),
        }
    }

    /// Tells the supervisor what the stage is about, and the coordinator that it has come.
    fn entered(self) -> Next {
        let order = self.order_again();
        let wake = match self.stage {
            Stage::Suspending { until } | Stage::Resuming { until } => {
                Some(Effect::WakeSuspension(until))
            }
            Stage::Suspended | Stage::Failed(_) => None,
        };
        let (next, mut effects) = self.reported();
        effects.extend(order);
        effects.extend(wake);
        (next, effects)
    }

    fn reported(self) -> Next {
        let report = Effect::Report(self.status());
        (Attempt::Frozen(self), vec![report])
    }

    /// None of it runs; where it holds memory of GPUs, these must be seen free before it counts as frozen.
    fn stands_still(self, now: Now, freezer: &FreezerState) -> Next {
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

    /// Its GPUs were seen free.
    pub(crate) fn on_moved(self) -> Next {
        match (&self.stage, &self.moved) {
            (Stage::Suspending { .. }, Some(_)) if !self.turns => self.frozen(),
            (
                Stage::Suspending { .. }
                | Stage::Suspended
                | Stage::Resuming { .. }
                | Stage::Failed(_),
                _,
            ) => (Attempt::Frozen(self), Effects::new()),
        }
    }

    /// What it holds on GPUs cannot be moved. Nothing was done yet.
    pub(crate) fn on_unmovable(self, now: Now, why: SuspendFailure) -> Next {
        match self.stage {
            Stage::Suspending { .. } => self.failed(now, why),
            Stage::Suspended | Stage::Resuming { .. } | Stage::Failed(_) => {
                (Attempt::Frozen(self), Effects::new())
            }
        }
    }

    fn frozen(self) -> Next {
        let stage = Stage::Suspended;
        Self { stage, ..self }.reported()
    }

    fn failed(self, now: Now, why: SuspendFailure) -> Next {
        if self.turns && matches!(self.stage, Stage::Suspending { .. }) {
            return self.running(now);
        }
        let stage = Stage::Failed(why);
        Self {
            stage,
            turns: false,
            ..self
        }
        .reported()
    }

    /// It runs, and its time runs on.
    fn running(self, now: Now) -> Next {
        let timeout_at = self.left.map(|left| later(now.boot, left));
        if self.turns && matches!(self.stage, Stage::Resuming { .. }) {
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

/// How much of its `timeout` was left when it stood still.
fn left(timeout_at: Option<BootMillis>, since: BootMillis) -> Option<Span> {
    timeout_at.map(|at| Span::from_millis(at.0.saturating_sub(since.0)))
}

/// When a process has run for its `timeout`: the time that it was frozen does not count.
pub(crate) fn timeout_at(view: &AttemptView, process: Process) -> Option<BootMillis> {
    let timeout = view.launch_record.timeout?;
    Some(later(later(process.started(), timeout), view.frozen.before))
}

/// A process is met that runs, or is frozen since before the agent began.
pub(crate) fn meet(now: Now, view: &AttemptView, process: Process) -> Next {
    let frozen = Suspension::met(now, process, view);
    frozen.unwrap_or_else(|| run(view, process))
}

fn limit(holding: Option<Holding>) -> Span {
    let moving = holding.map_or(0, |holding| holding.limit.millis());
    Span::from_millis(
        SUSPEND_LIMIT
            .millis()
            .saturating_add(moving.saturating_mul(2)),
    )
}

fn deadline(now: Now, holding: Option<Holding>) -> BootMillis {
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

/// A view of an attempt that is frozen, or on its way: whether its process is still there.
pub(crate) fn still_runs(view: &AttemptView) -> bool {
    match view.phase {
        HostPhase::Running(_) => true,
        HostPhase::Ended(_) | HostPhase::Gone(_) => false,
    }
}

/// What is asked to end has to run for that: the word that thaws it may have been lost with a supervisor.
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
