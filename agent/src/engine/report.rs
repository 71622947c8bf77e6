//! Logs the attempts on this host for admins: one line each for start, suspend, stop and end, however often
//! the loop learns of them.

use std::collections::BTreeMap;

use agent_core::{Core, Input, TimerKey};
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptEnd, AttemptPhase, StartedProcess, StopReason, ToNode};
use tracing::{error_span, info, warn};

/// Lines of an attempt that were logged.
#[derive(Clone, Copy, Debug, Default)]
struct LoggedLines {
    start: bool,
    frozen: bool,
    stop: bool,
    end: bool,
}

/// The logged lines of each attempt that the core knows.
#[derive(Debug, Default)]
pub(super) struct AttemptLog(BTreeMap<AttemptId, LoggedLines>);

/// Attempts whose phase an input may have changed.
#[derive(Debug)]
pub(super) enum ChangedAttempts {
    Nobody,
    One(AttemptId),
    All,
}

impl ChangedAttempts {
    pub(super) fn by(input: &Input) -> Self {
        match input {
            Input::Command { command, .. } => match &command.order {
                ToNode::Assign(assignment) => ChangedAttempts::One(assignment.attempt.clone()),
                ToNode::Stop { attempt, .. }
                | ToNode::Forget { attempt }
                | ToNode::Suspend { attempt, .. }
                | ToNode::Resume { attempt } => ChangedAttempts::One(attempt.clone()),
                ToNode::RestoreGpus { .. } | ToNode::ShowWarrant { .. } | ToNode::Carve(_) => {
                    ChangedAttempts::Nobody
                }
            },
            Input::Attempt(view) => ChangedAttempts::One(view.attempt.clone()),
            Input::Inputs { attempt, .. } | Input::Probed { attempt, .. } => {
                ChangedAttempts::One(attempt.clone())
            }
            Input::Timer(
                TimerKey::Grace(attempt)
                | TimerKey::Timeout(attempt)
                | TimerKey::Release(attempt)
                | TimerKey::Suspension(attempt),
            ) => ChangedAttempts::One(attempt.clone()),
            // A scan stops attempts whose GPU is lost.
            Input::Gpus(_)
            | Input::SupervisorUp { .. }
            // Attempts that were not started are returned.
            | Input::Timer(TimerKey::Supervisor) => ChangedAttempts::All,
            Input::Dialled { .. }
            | Input::Welcomed { .. }
            | Input::LinkLost { .. }
            | Input::HeartbeatAcked { .. }
            | Input::Carved { .. }
            | Input::Looked { .. }
            | Input::GpuHealth(_)
            | Input::FreePorts(_)
            | Input::Timer(
                TimerKey::GpuScan | TimerKey::Probe(..) | TimerKey::Endpoint(_)
            )
            | Input::Tuned(_)
            | Input::SupervisorDown { .. } => ChangedAttempts::Nobody,
        }
    }
}

impl AttemptLog {
    /// Logs what has changed; called after the core has handled the input.
    pub(super) fn tell(&mut self, core: &Core, touched: ChangedAttempts) {
        match touched {
            ChangedAttempts::Nobody => {}
            ChangedAttempts::One(attempt) => match core.status(&attempt) {
                Some(phase) => self.tell_one(&attempt, &phase, "attempt started"),
                None => drop(self.0.remove(&attempt)),
            },
            ChangedAttempts::All => {
                for status in core.statuses() {
                    self.tell_one(&status.attempt, &status.phase, "attempt found running");
                }
            }
        }
    }

    /// `start` is the text for a process that was not seen before.
    fn tell_one(&mut self, attempt: &AttemptId, phase: &AttemptPhase, start: &str) {
        let said = self.0.entry(attempt.clone()).or_default();
        // Error level, so that the span exists under every filter.
        let span = error_span!("attempt", step = %attempt.step, attempt = attempt.number);
        let _in_span = span.enter();
        match phase {
            AttemptPhase::Starting => {}
            AttemptPhase::Running(process) => {
                said.start(process, start);
                said.freeze("attempt runs", false);
            }
            AttemptPhase::Suspending(process) | AttemptPhase::Resuming(process) => {
                said.start(process, start);
            }
            AttemptPhase::Suspended { started, .. } => {
                said.start(started, start);
                said.freeze("attempt is frozen", true);
            }
            AttemptPhase::NotSuspended { started, why } => {
                said.start(started, start);
                warn!(?why, "attempt could not be suspended or resumed");
            }
            AttemptPhase::Stopping { started, why } => {
                started
                    .iter()
                    .for_each(|process| said.start(process, start));
                said.stop(*why);
            }
            AttemptPhase::Ended(end) | AttemptPhase::Released(end) => said.end(end),
        }
    }
}

impl LoggedLines {
    fn start(&mut self, process: &StartedProcess, words: &str) {
        if !std::mem::replace(&mut self.start, true) {
            info!(pid = process.pid, "{words}");
        }
    }

    fn freeze(&mut self, words: &str, frozen: bool) {
        if std::mem::replace(&mut self.frozen, frozen) != frozen {
            info!("{words}");
        }
    }

    fn stop(&mut self, why: StopReason) {
        if !std::mem::replace(&mut self.stop, true) {
            info!("attempt is being stopped: {}", words(why));
        }
    }

    /// If the start was too short to be seen, it is logged first.
    fn end(&mut self, end: &AttemptEnd) {
        if std::mem::replace(&mut self.end, true) {
            return;
        }
        let process = end.started.iter();
        process.for_each(|process| self.start(process, "attempt started"));
        end.stopped.into_iter().for_each(|why| self.stop(why));
        let duration_ms = end.started.map(|from| end.at.since(from.at).millis());
        let (exit_code, signal) = (end.exit.code(), end.exit.signal());
        match &end.exit {
            Exit::Code(_) | Exit::Signal(_) => {
                info!(exit_code, signal, duration_ms, "attempt ended");
            }
            Exit::HostFailed(why) => {
                warn!("attempt ended: this host could not start it: {why}");
            }
            Exit::PrologFailed(why) => {
                warn!("attempt ended: the prolog of this host failed before it: {why}");
            }
            Exit::NotBegun(why) => {
                info!("attempt returned to the coordinator before it started: {why}")
            }
            Exit::StartFailed(why) => info!("attempt ended: it could not be started: {why}"),
            Exit::LeaseExpired => info!(duration_ms, "attempt ended: its lease expired"),
            Exit::HostRebooted => info!(duration_ms, "attempt ended: the host was rebooted"),
            Exit::OutOfMemory(found) => info!(
                limit_bytes = found.limit_bytes,
                peak_bytes = found.peak_bytes,
                duration_ms,
                "attempt ended: the kernel killed it because it was out of memory"
            ),
            Exit::StorageExceeded(found) => info!(
                bound = ?found.bound,
                used_bytes = found.used_bytes,
                used_files = found.used_files,
                duration_ms,
                "attempt ended: the supervisor killed it because its files took too much of the disk"
            ),
            Exit::Unknown => info!(duration_ms, "attempt ended: its exit is unknown"),
        }
    }
}

fn words(why: StopReason) -> &'static str {
    match why {
        StopReason::Cancelled => "it was cancelled",
        StopReason::TimedOut => "it timed out",
        StopReason::Drained => "the host is drained",
        StopReason::Preempted => "it is preempted by another step",
        StopReason::Superseded => "the coordinator has given it up",
        StopReason::GpuLost => "a GPU of it is lost",
        StopReason::Requeued => "it is requeued",
        StopReason::NotSuspended => "it could not be suspended",
        StopReason::SuspendedTooLong => "it was suspended for too long",
        StopReason::NotRenewed => "its holder did not renew it",
        StopReason::LivenessFailed => "its liveness probe failed",
        StopReason::PeerEnded => "a part of it on another host has ended",
    }
}

/// The attempt that an input assigns to this host.
pub(super) fn assigned(input: &Input) -> Option<AttemptId> {
    match input {
        Input::Command { command, .. } => match &command.order {
            ToNode::Assign(assignment) => Some(assignment.attempt.clone()),
            ToNode::Stop { .. }
            | ToNode::Forget { .. }
            | ToNode::Suspend { .. }
            | ToNode::Resume { .. }
            | ToNode::RestoreGpus { .. }
            | ToNode::ShowWarrant { .. }
            | ToNode::Carve(_) => None,
        },
        Input::Dialled { .. }
        | Input::Welcomed { .. }
        | Input::LinkLost { .. }
        | Input::HeartbeatAcked { .. }
        | Input::SupervisorUp { .. }
        | Input::SupervisorDown { .. }
        | Input::Carved { .. }
        | Input::Looked { .. }
        | Input::Attempt(_)
        | Input::Gpus(_)
        | Input::GpuHealth(_)
        | Input::Tuned(_)
        | Input::FreePorts(_)
        | Input::Probed { .. }
        | Input::Inputs { .. }
        | Input::Timer(_) => None,
    }
}
