//! The state machine of one attempt. Pure: an event changes the value and yields effects, which [`crate::core`]
//! carries out.
//!
//! ```text
//!  assigned         seen running              main process ended        nothing left      forgotten
//! ----------> Starting --------> Running ------------------------> Ended ----------> Released ----->
//!               |                   | stop, timeout                  ^
//!               | stop              v                                |
//!               +-------------> Stopping ----------------------------+
//!                  (the signal waits until a process is seen)
//! ```
//! Between "nothing left" and `Released` it is `Releasing`, until its GPUs were seen free: see [`crate::on::gpus`].
//! One that runs may be frozen and brought back, any number of times: see [`crate::suspend`].
//! Any phase may be passed over: what the supervisor shows is adopted as it stands, and an attempt that it no longer
//! knows is over.
//!
//! `Stopping` and `Ended` each hold a [`Stop`], the same one where the first becomes the second. A main process that
//! ends by itself may leave others of its group behind; they get the stop sequence that the whole attempt would have
//! got, with the step's own grace, since its units are free only when nothing of it runs.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FreezerState, HostPhase, Process, ProcessEnd, SpawnSpec,
    StopSignal,
};
use sluice_common::time::Span;
use sluice_common::usage::Usage;
use sluice_common::wire::{AttemptEnd, AttemptPhase, StartedProcess, StopReason};

use crate::input::Now;
use crate::spawn::never_started;
use crate::stop::Stop;
use crate::suspend::{Suspension, meet, still_runs, thaw_to_ask, timeout_at};

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The supervisor was told, or will be as soon as it is up.
    Starting {
        /// What it is told; kept because the word may be lost with the supervisor.
        spec: Box<SpawnSpec>,
        /// Whether it may have been told. If not, no process of it was ever made.
        handed: bool,
    },
    /// Its process was seen.
    Running {
        process: Process,
        /// When it has run for its `timeout`.
        timeout_at: Option<BootMillis>,
        /// Between the signal and the kill when it times out.
        grace: Span,
    },
    /// It is being frozen, is frozen or is brought back.
    Frozen(Suspension),
    /// It is being stopped.
    Stopping {
        /// The process, if it was seen.
        process: Option<Process>,
        /// The reason of the first stop; later ones only hurry it.
        why: StopReason,
        /// How far it has come.
        stop: Stop,
    },
    /// Its main process has ended; what is left of its group is being stopped.
    Ended {
        end: AttemptEnd,
        /// How far that has come.
        stop: Stop,
    },
    /// Nothing of it is left; its GPUs are awaited.
    Releasing {
        /// How it ended.
        end: AttemptEnd,
    },
    /// Nothing of it is left, and its GPUs are free or kept back.
    Released {
        /// How it ended.
        end: AttemptEnd,
    },
}

/// What an event asks for, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Tell the coordinator that the attempt stands here.
    Report(AttemptPhase),
    /// Send its processes a signal.
    Signal(StopSignal),
    /// Wake the stop sequence then.
    WakeStop(BootMillis),
    /// Wake the timeout then.
    WakeTimeout(BootMillis),
    /// Wait for its GPUs, then say [`Attempt::on_free`].
    AwaitGpus,
    /// Let none of its processes run.
    Freeze,
    /// Let them run again.
    Thaw,
    /// Wait until its GPUs hold nothing of it, then say [`Suspension::on_moved`].
    AwaitMoved,
    /// Wake what freezes or thaws then.
    WakeSuspension(BootMillis),
}

impl Effect {
    /// Whether it reaches the processes.
    pub(crate) fn is_signal(&self) -> bool {
        match self {
            Self::Signal(_) => true,
            Self::Report(_)
            | Self::WakeStop(_)
            | Self::WakeTimeout(_)
            | Self::AwaitGpus
            | Self::AwaitMoved
            | Self::Freeze
            | Self::Thaw
            | Self::WakeSuspension(_) => false,
        }
    }
}

/// What is to be done, in order.
pub(crate) type Effects = Vec<Effect>;

pub(crate) type Next = (Attempt, Effects);

impl Attempt {
    /// An attempt that the core meets in a view: it is taken over as it stands.
    pub(crate) fn seen(now: Now, view: &AttemptView) -> Next {
        match &view.phase {
            HostPhase::Running(process) => meet(now, view, *process),
            HostPhase::Ended(end) => sweep(now, view.launch_record.grace, ended(end, None, None)),
            HostPhase::Gone(end) => gone(ended(end, None, None)),
        }
    }

    /// As the coordinator is told.
    pub(crate) fn status(&self) -> AttemptPhase {
        match self {
            Self::Starting { .. } => AttemptPhase::Starting,
            Self::Running { process, .. } => AttemptPhase::Running(started(*process)),
            Self::Frozen(suspension) => suspension.status(),
            Self::Stopping { process, why, .. } => AttemptPhase::Stopping {
                started: process.map(started),
                why: *why,
            },
            Self::Ended { end, .. } | Self::Releasing { end } => AttemptPhase::Ended(end.clone()),
            Self::Released { end } => AttemptPhase::Released(end.clone()),
        }
    }

    /// The supervisor shows where the attempt stands. Without effect where that is no step forward.
    pub(crate) fn on_view(&mut self, now: Now, view: &AttemptView) -> Effects {
        match self {
            Self::Starting { .. } => self.turn(Self::seen(now, view)),
            Self::Running { process, .. } => {
                let process = *process;
                self.on_view_running(now, process, view)
            }
            Self::Frozen(suspension) if still_runs(view) => {
                let suspension = suspension.clone();
                self.turn(suspension.on_freezer(now, &view.freezer))
            }
            Self::Frozen(suspension) => {
                let process = suspension.process;
                self.on_view_running(now, process, view)
            }
            Self::Stopping { process, why, stop } => {
                let (process, why, stop) = (*process, *why, *stop);
                let mut effects = thaw_to_ask(stop, view);
                effects.extend(self.on_view_stopping(process, why, stop, &view.phase));
                effects
            }
            Self::Ended { end, .. } => match &view.phase {
                HostPhase::Running(_) | HostPhase::Ended(_) => Effects::new(),
                HostPhase::Gone(gone) => {
                    let usage = gone.usage.or(end.usage);
                    let end = AttemptEnd {
                        usage,
                        ..end.clone()
                    };
                    self.turn(releasing(end))
                }
            },
            Self::Releasing { .. } | Self::Released { .. } => refuse_to_live(&view.phase),
        }
    }

    fn on_view_running(&mut self, now: Now, process: Process, view: &AttemptView) -> Effects {
        match (&view.phase, &view.freezer) {
            // Nobody has a reason to freeze what is to run.
            (HostPhase::Running(_), FreezerState::Frozen | FreezerState::Moved(_)) => {
                vec![Effect::Thaw]
            }
            (HostPhase::Running(_), _) => Effects::new(),
            (HostPhase::Ended(end), _) => {
                let end = ended(end, Some(process), None);
                self.turn(sweep(now, view.launch_record.grace, end))
            }
            (HostPhase::Gone(end), _) => self.turn(gone(ended(end, Some(process), None))),
        }
    }

    fn on_view_stopping(
        &mut self,
        process: Option<Process>,
        why: StopReason,
        stop: Stop,
        phase: &HostPhase,
    ) -> Effects {
        match phase {
            HostPhase::Running(_) if process.is_some() => Effects::new(),
            HostPhase::Running(found) => self.turn(signalled(*found, why, stop)),
            HostPhase::Ended(end) => {
                let end = ended(end, process, Some(why));
                self.turn(swept_on(end, stop, process.is_some()))
            }
            HostPhase::Gone(end) => self.turn(gone(ended(end, process, Some(why)))),
        }
    }

    /// The attempt is to stop. A repeat can only hurry it; its reason stays the first one. What has ended already is
    /// hurried as well, for the sake of what it left behind. Always reports.
    pub(crate) fn on_stop(&mut self, now: Now, why: StopReason, grace: Span) -> Effects {
        match self {
            Self::Starting { handed: false, .. } => {
                self.give_back(now, Some(why), "it was stopped before that")
            }
            Self::Starting { .. } => self.turn(stopping(now, None, why, grace)),
            Self::Running { process, .. } => {
                let process = Some(*process);
                self.turn(stopping(now, process, why, grace))
            }
            Self::Frozen(suspension) => {
                let suspension = suspension.clone();
                self.turn(suspension.on_stop(now, why, grace))
            }
            Self::Stopping { stop, .. } | Self::Ended { stop, .. } => {
                let effects = pursue(stop, stop.shortened(now.boot, grace));
                self.reporting(effects)
            }
            Self::Releasing { .. } | Self::Released { .. } => self.reporting(Effects::new()),
        }
    }

    /// The timer of the stop sequence has fired.
    pub(crate) fn on_stop_timer(&mut self, now: Now) -> Effects {
        match self {
            Self::Stopping { stop, .. } | Self::Ended { stop, .. } => {
                pursue(stop, stop.woken(now.boot))
            }
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Frozen(_)
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// The timer of the timeout has fired.
    pub(crate) fn on_timeout_timer(&mut self, now: Now) -> Effects {
        match self {
            Self::Running {
                process,
                timeout_at: Some(at),
                grace,
            } => {
                let (process, at, grace) = (*process, *at, *grace);
                if now.boot < at {
                    return vec![Effect::WakeTimeout(at)];
                }
                self.turn(stopping(now, Some(process), StopReason::TimedOut, grace))
            }
            Self::Running { .. }
            | Self::Frozen(_)
            | Self::Starting { .. }
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// A GPU of it is lost: what computed there can come to nothing any more. What is being stopped already goes on.
    pub(crate) fn on_gpu_lost(&mut self, now: Now) -> Effects {
        match self {
            Self::Starting { .. } | Self::Running { .. } | Self::Frozen(_) => {
                self.on_stop(now, StopReason::GpuLost, Span::ZERO)
            }
            Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// Its GPUs are free, or kept back.
    pub(crate) fn on_free(&mut self) -> Effects {
        match self {
            Self::Releasing { end } => {
                let end = end.clone();
                self.turn(release(end))
            }
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Frozen(_)
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// The signal of the stop's stage, for a supervisor that has come back and may have missed it.
    pub(crate) fn signal_again(&self) -> Effects {
        match self {
            Self::Stopping { stop, .. } | Self::Ended { stop, .. } => {
                vec![Effect::Signal(stop.signal())]
            }
            Self::Frozen(suspension) => suspension.order_again(),
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// A supervisor that has come back does not know it: it is over, and nobody saw how. Not for one that is
    /// `Starting`, whose spawn was lost and can be said again.
    pub(crate) fn on_unlisted(&mut self, now: Now) -> Effects {
        match self {
            Self::Starting { .. } => Effects::new(),
            Self::Running { process, .. } => {
                let end = unseen(now, Some(*process), None);
                self.turn(gone(end))
            }
            Self::Frozen(suspension) => {
                let end = unseen(now, Some(suspension.process), None);
                self.turn(gone(end))
            }
            Self::Stopping { process, why, .. } => {
                let end = unseen(now, *process, Some(*why));
                self.turn(gone(end))
            }
            Self::Ended { end, .. } => {
                let end = end.clone();
                self.turn(releasing(end))
            }
            Self::Releasing { .. } | Self::Released { .. } => Effects::new(),
        }
    }

    /// The supervisor was not told of it and never will be: no process of it was ever made, and no GPU used.
    pub(crate) fn give_back(
        &mut self,
        now: Now,
        stopped: Option<StopReason>,
        why: &str,
    ) -> Effects {
        let exit = Exit::NotBegun(why.to_owned());
        self.turn(release(never_started(now, exit, stopped)))
    }

    /// It will never be started. A supervisor that has lost its memory may have started it: its GPUs are looked at.
    pub(crate) fn on_refused(&mut self, end: AttemptEnd) -> Effects {
        self.turn(releasing(end))
    }

    pub(crate) fn turn(&mut self, (next, effects): Next) -> Effects {
        *self = next;
        effects
    }

    pub(crate) fn reporting(&self, mut effects: Effects) -> Effects {
        effects.insert(0, Effect::Report(self.status()));
        effects
    }
}

/// The process was seen. Its timeout runs from its start, which may lie before the agent's, on the clock that nobody
/// can set.
pub(crate) fn run(view: &AttemptView, process: Process) -> Next {
    let timeout_at = timeout_at(view, process);
    let next = Attempt::Running {
        process,
        timeout_at,
        grace: view.launch_record.grace,
    };
    let mut effects = vec![Effect::Report(next.status())];
    effects.extend(timeout_at.map(Effect::WakeTimeout));
    (next, effects)
}

pub(crate) fn stopping(now: Now, process: Option<Process>, why: StopReason, grace: Span) -> Next {
    let stop = Stop::begin(now.boot, grace);
    let next = Attempt::Stopping { process, why, stop };
    // One that is still starting is told as well: the host's prolog may run for it.
    let effects = vec![
        Effect::Report(next.status()),
        Effect::Signal(stop.signal()),
        Effect::WakeStop(stop.wake_at()),
    ];
    (next, effects)
}

/// A process came up after the stop had begun: the signal is due now, the grace runs already.
fn signalled(process: Process, why: StopReason, stop: Stop) -> Next {
    let next = Attempt::Stopping {
        process: Some(process),
        why,
        stop,
    };
    let report = Effect::Report(next.status());
    (next, vec![report, Effect::Signal(stop.signal())])
}

/// The main process has ended by itself: what it left behind is stopped.
fn sweep(now: Now, grace: Span, end: AttemptEnd) -> Next {
    let stop = Stop::begin(now.boot, grace);
    let (next, mut effects) = swept_on(end, stop, false);
    effects.push(Effect::WakeStop(stop.wake_at()));
    (next, effects)
}

/// The main process has ended under a stop, which goes on for what it left behind.
fn swept_on(end: AttemptEnd, stop: Stop, was_signalled: bool) -> Next {
    let next = Attempt::Ended { end, stop };
    let mut effects = vec![Effect::Report(next.status())];
    effects.extend((!was_signalled).then_some(Effect::Signal(stop.signal())));
    (next, effects)
}

/// Its end is seen, and nothing of it is left.
fn gone(end: AttemptEnd) -> Next {
    let report = Effect::Report(AttemptPhase::Ended(end.clone()));
    let (next, mut effects) = releasing(end);
    effects.insert(0, report);
    (next, effects)
}

/// Its processes are gone; its GPUs may still be busy with what they did.
fn releasing(end: AttemptEnd) -> Next {
    (Attempt::Releasing { end }, vec![Effect::AwaitGpus])
}

/// Its units may be granted again.
fn release(end: AttemptEnd) -> Next {
    let next = Attempt::Released { end };
    let report = Effect::Report(next.status());
    (next, vec![report])
}

/// A released attempt's units may be another's by now: nothing of it may run, whatever brought it back.
fn refuse_to_live(phase: &HostPhase) -> Effects {
    match phase {
        HostPhase::Running(_) | HostPhase::Ended(_) => vec![Effect::Signal(StopSignal::Kill)],
        HostPhase::Gone(_) => Effects::new(),
    }
}

/// Moves a stop on; the kill goes out when it became due by that.
fn pursue(stop: &mut Stop, next: Stop) -> Effects {
    let kill_due = next != *stop && next.signal() == StopSignal::Kill;
    *stop = next;
    let mut effects = Effects::new();
    effects.extend(kill_due.then_some(Effect::Signal(StopSignal::Kill)));
    effects.push(Effect::WakeStop(next.wake_at()));
    effects
}

pub(crate) fn started(process: Process) -> StartedProcess {
    StartedProcess {
        pid: process.pid,
        at: process.started_at,
    }
}

fn ended(end: &ProcessEnd, seen: Option<Process>, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: end.process.or(seen).map(started),
        exit: end.exit.clone(),
        stopped,
        at: end.ended_at,
        usage: end.usage,
    }
}

fn unseen(now: Now, process: Option<Process>, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: process.map(started),
        exit: Exit::Unknown,
        stopped,
        at: now.wall,
        usage: Usage::default(),
    }
}

#[cfg(test)]
mod tests;
