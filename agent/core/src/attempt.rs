//! The state machine of one attempt. Pure: an event changes the value and returns effects, which [`crate::core`]
//! carries out.
//!
//! ```text
//!  assigned         seen running              main process ended        no process left      forgotten
//! ----------> Starting --------> Running ------------------------> Ended ----------> Released ----->
//!               |                   | stop, timeout                  ^
//!               | stop              v                                |
//!               +-------------> Stopping ----------------------------+
//!                  (the signal waits until a process is seen)
//! ```
//! Between "no process left" and `Released` the attempt is `Releasing`, until its GPUs are seen free: see
//! [`crate::on::gpus`]. A running attempt may be suspended and resumed any number of times: see [`crate::suspend`]. Any
//! phase may be skipped: the state that the supervisor reports is adopted, and an attempt that it no longer knows is
//! over.
//!
//! `Stopping` and `Ended` each have a [`Stop`], which the second takes over from the first. A main process that ends by
//! itself may leave other processes; they get the stop sequence of the whole attempt, with the step's own grace, because
//! the attempt's resources are free only when no process of it runs.

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

/// State of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The supervisor has the start order, or gets it as soon as it is connected.
    Starting {
        /// The start order; kept because it may be lost with the supervisor.
        spec: Box<SpawnSpec>,
        /// Whether the order may have been sent. If not, no process was ever made.
        was_sent: bool,
        /// Whether the host does not have the step's inputs yet. Nothing is sent until then.
        awaits_inputs: bool,
    },
    /// The main process was seen.
    Running {
        process: Process,
        /// When the attempt has run for its `timeout`.
        timeout_at: Option<BootMillis>,
        /// Time between SIGTERM and SIGKILL after the timeout.
        grace: Span,
    },
    /// The attempt is being suspended, is suspended or is being resumed.
    Frozen(Suspension),
    /// The attempt is being stopped.
    Stopping {
        /// The main process, if it was seen.
        process: Option<Process>,
        /// The reason of the first stop; later ones can only shorten the grace.
        why: StopReason,
        stop: Stop,
    },
    /// The main process has ended; the processes that it left are being stopped.
    Ended { end: AttemptEnd, stop: Stop },
    /// No process is left; the GPUs are not seen free yet.
    Releasing { end: AttemptEnd },
    /// No process is left, and each GPU is free or quarantined.
    Released { end: AttemptEnd },
}

/// An effect of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Report this phase to the coordinator.
    Report(AttemptPhase),
    /// Send a signal to the attempt's processes.
    Signal(StopSignal),
    /// Set the timer of the stop sequence.
    WakeStop(BootMillis),
    /// Set the timer of the timeout.
    WakeTimeout(BootMillis),
    /// Wait for the GPUs, then call [`Attempt::on_free`].
    AwaitGpus,
    /// Freeze the attempt's processes.
    Freeze,
    /// Thaw the attempt's processes.
    Thaw,
    /// Wait until the GPUs hold nothing of the attempt, then call [`Suspension::on_moved`].
    AwaitMoved,
    /// Set the timer of the suspension.
    WakeSuspension(BootMillis),
}

impl Effect {
    /// Whether the effect reaches the processes.
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

/// Effects in the order in which they must happen.
pub(crate) type Effects = Vec<Effect>;

pub(crate) type Transition = (Attempt, Effects);

impl Attempt {
    /// Adopts an attempt that the core first sees in a view.
    pub(crate) fn seen(now: Now, view: &AttemptView) -> Transition {
        match &view.phase {
            HostPhase::Running(process) => meet(now, view, *process),
            HostPhase::Ended(end) => {
                stop_leftovers(now, view.launch_record.grace, ended(end, None, None))
            }
            HostPhase::Gone(end) => gone(ended(end, None, None)),
        }
    }

    /// The phase for the coordinator.
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

    /// Handles a view of the supervisor. A view that is no step forward has no effect.
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
                    let mut end = end.clone();
                    end.usage = gone.usage.or(end.usage);
                    end.kept = gone.kept.clone();
                    self.turn(releasing(end))
                }
            },
            Self::Releasing { .. } | Self::Released { .. } => kill_released(&view.phase),
        }
    }

    fn on_view_running(&mut self, now: Now, process: Process, view: &AttemptView) -> Effects {
        match (&view.phase, &view.freezer) {
            // The attempt must run, so the freeze was not ordered by this agent.
            (HostPhase::Running(_), FreezerState::Frozen | FreezerState::Moved(_)) => {
                vec![Effect::Thaw]
            }
            (HostPhase::Running(_), _) => Effects::new(),
            (HostPhase::Ended(end), _) => {
                let end = ended(end, Some(process), None);
                self.turn(stop_leftovers(now, view.launch_record.grace, end))
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
                self.turn(continue_stop(end, stop, process.is_some()))
            }
            HostPhase::Gone(end) => self.turn(gone(ended(end, process, Some(why)))),
        }
    }

    /// Stops the attempt. A repeated stop can only shorten the grace, and keeps the first reason. If the main
    /// process has ended already, the stop of its remaining processes is hurried. Always reports.
    pub(crate) fn on_stop(&mut self, now: Now, why: StopReason, grace: Span) -> Effects {
        match self {
            Self::Starting {
                was_sent: false, ..
            } => self.give_back(now, Some(why), "it was stopped before that"),
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
                let effects = advance_stop(stop, stop.shortened(now.boot, grace));
                self.reporting(effects)
            }
            Self::Releasing { .. } | Self::Released { .. } => self.reporting(Effects::new()),
        }
    }

    /// Handles the timer of the stop sequence.
    pub(crate) fn on_stop_timer(&mut self, now: Now) -> Effects {
        match self {
            Self::Stopping { stop, .. } | Self::Ended { stop, .. } => {
                advance_stop(stop, stop.woken(now.boot))
            }
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Frozen(_)
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }

    /// Handles the timer of the timeout.
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

    /// Kills the attempt because one of its GPUs is lost. A stop in progress continues unchanged.
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

    /// Releases the attempt, because each GPU is free or quarantined.
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

    /// Repeats the signal of the current stage, which a restarted supervisor may have missed.
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

    /// Ends the attempt because a restarted supervisor does not know it; the exit is unknown. Not for
    /// `Starting`, whose lost order can be repeated.
    pub(crate) fn on_unlisted(&mut self, now: Now) -> Effects {
        match self {
            Self::Starting { .. } => Effects::new(),
            Self::Running { process, .. } => {
                let end = ended_unseen(now, Some(*process), None);
                self.turn(gone(end))
            }
            Self::Frozen(suspension) => {
                let end = ended_unseen(now, Some(suspension.process), None);
                self.turn(gone(end))
            }
            Self::Stopping { process, why, .. } => {
                let end = ended_unseen(now, *process, Some(*why));
                self.turn(gone(end))
            }
            Self::Ended { end, .. } => {
                let end = end.clone();
                self.turn(releasing(end))
            }
            Self::Releasing { .. } | Self::Released { .. } => Effects::new(),
        }
    }

    /// Returns an attempt that was never sent to the supervisor: no process was made, and no GPU used.
    pub(crate) fn give_back(
        &mut self,
        now: Now,
        stopped: Option<StopReason>,
        why: &str,
    ) -> Effects {
        let exit = Exit::NotBegun(why.to_owned());
        self.turn(release(never_started(now, exit, stopped)))
    }

    /// Ends an attempt that will never start. A supervisor that lost its state may have started it, so its
    /// GPUs are checked.
    pub(crate) fn on_refused(&mut self, end: AttemptEnd) -> Effects {
        self.turn(releasing(end))
    }

    pub(crate) fn turn(&mut self, (next, effects): Transition) -> Effects {
        *self = next;
        effects
    }

    pub(crate) fn reporting(&self, mut effects: Effects) -> Effects {
        effects.insert(0, Effect::Report(self.status()));
        effects
    }
}

/// The main process was seen. Its timeout counts from its start, which may lie before the agent's, on the
/// boot clock.
pub(crate) fn run(view: &AttemptView, process: Process) -> Transition {
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

pub(crate) fn stopping(
    now: Now,
    process: Option<Process>,
    why: StopReason,
    grace: Span,
) -> Transition {
    let stop = Stop::begin(now.boot, grace);
    let next = Attempt::Stopping { process, why, stop };
    // An attempt that is still starting gets the signal too: the host's prolog may be running.
    let effects = vec![
        Effect::Report(next.status()),
        Effect::Signal(stop.signal()),
        Effect::WakeStop(stop.wake_at()),
    ];
    (next, effects)
}

/// A process appeared after the stop had begun: the signal is due now, and the grace runs already.
fn signalled(process: Process, why: StopReason, stop: Stop) -> Transition {
    let next = Attempt::Stopping {
        process: Some(process),
        why,
        stop,
    };
    let report = Effect::Report(next.status());
    (next, vec![report, Effect::Signal(stop.signal())])
}

/// The main process ended by itself: the processes that it left are stopped.
fn stop_leftovers(now: Now, grace: Span, end: AttemptEnd) -> Transition {
    let stop = Stop::begin(now.boot, grace);
    let (next, mut effects) = continue_stop(end, stop, false);
    effects.push(Effect::WakeStop(stop.wake_at()));
    (next, effects)
}

/// The main process ended during a stop, which continues for the processes that it left.
fn continue_stop(end: AttemptEnd, stop: Stop, was_signalled: bool) -> Transition {
    let next = Attempt::Ended { end, stop };
    let mut effects = vec![Effect::Report(next.status())];
    effects.extend((!was_signalled).then_some(Effect::Signal(stop.signal())));
    (next, effects)
}

/// The end is known, and no process is left.
fn gone(end: AttemptEnd) -> Transition {
    let report = Effect::Report(AttemptPhase::Ended(end.clone()));
    let (next, mut effects) = releasing(end);
    effects.insert(0, report);
    (next, effects)
}

/// No process is left; the GPUs may still be in use.
fn releasing(end: AttemptEnd) -> Transition {
    (Attempt::Releasing { end }, vec![Effect::AwaitGpus])
}

/// The attempt's resources may be granted again.
fn release(end: AttemptEnd) -> Transition {
    let next = Attempt::Released { end };
    let report = Effect::Report(next.status());
    (next, vec![report])
}

/// Kills a process of a released attempt, because its resources may belong to another attempt by now.
fn kill_released(phase: &HostPhase) -> Effects {
    match phase {
        HostPhase::Running(_) | HostPhase::Ended(_) => vec![Effect::Signal(StopSignal::Kill)],
        HostPhase::Gone(_) => Effects::new(),
    }
}

/// Advances a stop; sends the kill if it became due.
fn advance_stop(stop: &mut Stop, next: Stop) -> Effects {
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
        workdir_refused: process.workdir_refused,
    }
}

fn ended(end: &ProcessEnd, seen: Option<Process>, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: end.process.or(seen).map(started),
        exit: end.exit.clone(),
        stopped,
        at: end.ended_at,
        usage: end.usage,
        kept: end.kept.clone(),
    }
}

fn ended_unseen(now: Now, process: Option<Process>, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: process.map(started),
        exit: Exit::Unknown,
        stopped,
        at: now.wall,
        usage: Usage::default(),
        kept: None,
    }
}

#[cfg(test)]
mod tests;
