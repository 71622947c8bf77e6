//! The loop of `run` and `attach`: tracks the step, follows its attempts and reports progress.

use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::StepView;
use sluice_common::state::StepState;

use super::attempt::{self, FollowedAttempt};
use super::exit::{self, RunExit};
use super::input::{InputHandle, InputStop};
use super::{Ownership, RunEvent};
use crate::client::{Client, RetryLimit, StepAction};
use crate::commands::outage_note;
use crate::failure::{Failure, RUN_FAILED};
use crate::follow::{FollowEnd, FollowError};
use crate::out::Out;
use crate::render::safe;
use crate::render::step::refused_directory;
use crate::{signals, terminal};

/// Time that one call waits for a step to start or to end. Short, because a requeue is not an end and is only seen when
/// the call returns.
const POLL: Duration = Duration::from_secs(2);
/// Interval of looks at a step whose output is complete and whose end is not recorded yet.
const LOOK: Duration = Duration::from_millis(100);
/// Time that the output of an ended attempt may stand still before it is given up: a restarted coordinator must find its
/// nodes again, and a disconnected node must come back.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(30);
/// The same limit if the next attempt waits to be followed.
const REQUEUED_PATIENCE: Duration = Duration::from_secs(5);
/// Time that a step may wait before that is logged if nobody watches.
const QUIET: Duration = Duration::from_secs(2);
/// Cancels with the step's own grace period.
const CANCEL: StepAction = StepAction::Cancel { grace: None };
/// Time that a cancel may take when this process is about to end.
const PARTING: RetryLimit = RetryLimit::For(Duration::from_secs(5));

/// Follows a step until it has ended or this command leaves.
pub(super) struct RunLoop<'a> {
    client: &'a Client,
    out: Out,
    ownership: Ownership,
    step: StepView,
    send: Sender<RunEvent>,
    events: Receiver<RunEvent>,
    /// The attempt whose output is copied.
    current: Option<FollowedAttempt>,
    /// The last attempt that was followed, or skipped because it never ran.
    followed: u32,
    /// Last message about waiting.
    said: String,
    /// Start of the present wait.
    waiting_since: Option<Instant>,
    /// Attempt of which only the last lines are shown, because it ran before this command.
    cut: Option<(u32, usize)>,
    /// Last attempt that was reported as over and followed by another.
    announced: u32,
    /// Last attempt of which the directory was reported, because it is not the caller's.
    placed: u32,
    /// Signal that made this command cancel the step.
    interrupted: Option<i32>,
    /// Sends input to the step.
    feeder: Option<InputHandle>,
    /// Whether this process's terminal is that of the program.
    is_terminal: bool,
    /// Why this command had to cancel the step, if it had to.
    failed: Option<String>,
    /// Exit code, if this command leaves before the end.
    left: Option<u8>,
}

impl<'a> RunLoop<'a> {
    pub(super) fn new(
        client: &'a Client,
        out: Out,
        ownership: Ownership,
        step: StepView,
        send: Sender<RunEvent>,
        events: Receiver<RunEvent>,
    ) -> Self {
        // Attempts that were over before are not shown again.
        let over = match ownership {
            Ownership::Own => 0,
            Ownership::Guest { .. } if step.state == StepState::Queued => step.attempt,
            Ownership::Guest { .. } => step.attempt.saturating_sub(1),
        };
        let cut = match ownership {
            Ownership::Own => None,
            Ownership::Guest { tail } => Some((step.attempt, tail)),
        };
        Self {
            client,
            out,
            ownership,
            step,
            send,
            events,
            current: None,
            followed: over,
            said: String::new(),
            waiting_since: None,
            cut,
            announced: over,
            placed: over,
            interrupted: None,
            feeder: None,
            is_terminal: false,
            failed: None,
            left: None,
        }
    }

    /// Sends this process's standard input to the step, as keys if the program has a terminal.
    pub(super) fn feed(&mut self, is_terminal: bool) -> Result<(), Failure> {
        let id = self.step.id.clone();
        let started = InputHandle::start(self.client, &id, is_terminal, &self.send);
        let failed = |e| Failure::Failed(format!("cannot listen for signals: {e}"));
        self.feeder = Some(started.map_err(failed)?);
        self.is_terminal = is_terminal;
        Ok(())
    }

    pub(super) fn drive(mut self) -> Result<u8, Failure> {
        loop {
            self.advance()?;
            if let Some(code) = self.left {
                return Ok(code);
            }
            if self.is_over() {
                return Ok(self.end());
            }
            match self.next_event() {
                Some(event) => self.on_event(event)?,
                None => self.look()?,
            }
        }
    }

    /// Returns the next event; `None` when it is time to look at the step again.
    fn next_event(&self) -> Option<RunEvent> {
        let pause = match &self.current {
            // No call is made: only the time limit of the output is checked.
            Some(_) if self.attempt_is_over() => LOOK,
            None if self.followed > 0 && self.followed == self.step.attempt && !self.waits() => {
                LOOK
            }
            None if self.waits() && self.said.is_empty() => QUIET,
            Some(_) | None => return self.events.recv().ok(),
        };
        self.events.recv_timeout(pause).ok()
    }

    /// Reads the step if its attempt has no more output and no event will come. A coordinator that is away does not
    /// matter here; the watcher retries.
    fn look(&mut self) -> Result<(), Failure> {
        if self.current.is_some() || self.step.state.is_terminal() {
            return Ok(());
        }
        match self.client.step(&self.step.id) {
            Ok(step) => self.step = step,
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(exit::unwatchable(&self.step, error)),
        }
        Ok(())
    }

    fn on_event(&mut self, event: RunEvent) -> Result<(), Failure> {
        match event {
            // An older view carries no news.
            RunEvent::View(step)
                if self.step.state.is_terminal() || step.attempt < self.step.attempt => {}
            RunEvent::View(step) => self.on_view(*step),
            RunEvent::Unwatchable(error) => return Err(exit::unwatchable(&self.step, error)),
            RunEvent::StreamBegun(number) => self.on_stream_begun(number),
            RunEvent::StreamEnded(number, end) => self.on_stream_end(number, end)?,
            RunEvent::Signal(signal) => self.on_signal(signal),
            RunEvent::InputStopped(why) => self.on_input_stopped(&why),
            RunEvent::Submitted(_) => {}
            RunEvent::Cancelled(Ok(())) => {}
            RunEvent::Cancelled(Err(error)) => {
                let id = safe(&self.step.id);
                self.out
                    .error(&format!("{id} could not be cancelled: {error}"));
            }
        }
        Ok(())
    }

    /// A step without the input that is meant for it must not succeed unnoticed.
    fn on_input_stopped(&mut self, why: &InputStop) {
        let id = safe(&self.step.id);
        let message = match why {
            InputStop::Left => return self.detach(),
            InputStop::TakenOver => {
                return self.out.notice(&format!(
                    "another caller sends the input of {id} from now on"
                ));
            }
            InputStop::NotRepeatable => format!(
                "attempt {} of {id} needs its input from the beginning, which is not kept: only the last MiB is; \
                 have the step read a file of its host (`--stdin FILE`) if it may start again",
                self.step.attempt
            ),
            InputStop::Refused(error) => error.to_string(),
        };
        if self.ownership != Ownership::Own {
            return self.out.warning(&message);
        }
        if self.failed.replace(message).is_none() && self.interrupted.is_none() {
            self.cancel();
        }
    }

    /// Leaves the step as it is.
    fn detach(&mut self) {
        terminal::restore();
        let id = safe(&self.step.id);
        let back = match self.is_terminal {
            true => "sluice attach -it",
            false => "sluice attach",
        };
        self.out.notice(&format!(
            "detached from {id}, which runs on: `{back} {id}` comes back, `sluice cancel {id}` stops it"
        ));
        self.left = Some(0);
    }

    /// A user who attached wants to hear of state changes; the one who runs the step sees its output.
    fn on_view(&mut self, step: StepView) {
        if self.ownership != Ownership::Own
            && step.state != self.step.state
            && !step.state.is_terminal()
        {
            self.out
                .notice(&format!("{} is {} now", safe(&step.id), step.state));
        }
        self.step = step;
    }

    /// Follows the next attempt, gives up output that never completes, and reports why the step waits.
    fn advance(&mut self) -> Result<(), Failure> {
        self.give_up_stalled();
        self.tell_directory();
        if self.current.is_some() {
            return Ok(());
        }
        if let Some(number) = attempt::next_to_follow(&self.step, self.followed) {
            if self.followed > self.announced {
                self.out.notice(&format!(
                    "{}: attempt {number} runs now",
                    safe(&self.step.id)
                ));
            }
            self.announced = number - 1;
            self.followed = number;
            self.waiting_since = None;
            let tail = self.cut.filter(|(cut, _)| *cut == number);
            let attempt = FollowedAttempt::start(
                self.client,
                &self.step.id,
                number,
                tail.map(|(_, lines)| lines),
                &self.send,
                self.is_terminal,
                self.out,
            )?;
            self.current = Some(attempt);
        } else if self.waits() {
            self.say_waiting();
        }
        Ok(())
    }

    /// Tells once for each attempt if it does not work in the caller's directory.
    fn tell_directory(&mut self) {
        let Some(attempt) = self.step.attempts.last() else {
            return;
        };
        let is_told = self.ownership != Ownership::Own || attempt.number <= self.placed;
        if let Some(note) = refused_directory(&self.step, attempt).filter(|_| !is_told) {
            self.placed = attempt.number;
            self.out.notice(&note);
        }
    }

    /// Whether it waits for resources, for the first time or again.
    fn waits(&self) -> bool {
        self.step.state == StepState::Queued
    }

    fn attempt_is_over(&self) -> bool {
        let later = self.step.attempt > self.followed;
        self.step.state.is_terminal() || self.waits() || later
    }

    /// Logs a requeue always, and waiting only for those who watch.
    fn say_waiting(&mut self) {
        let (id, message) = (safe(&self.step.id), safe(&self.step.reason.message));
        if self.step.attempt > self.announced {
            self.announced = self.step.attempt;
            let number = self.step.attempt;
            self.out.notice(&format!(
                "{id}: attempt {number} ended and the step is queued again: {message}"
            ));
        } else if message != self.said {
            // Logs nothing about a step that starts at once.
            let since = *self.waiting_since.get_or_insert_with(Instant::now);
            if !self.out.is_watched() && since.elapsed() < QUIET {
                return;
            }
            self.out.aside(&format!("{id} waits: {message}"));
        }
        self.said = message;
    }

    fn give_up_stalled(&mut self) {
        let over = self.attempt_is_over();
        let patience = if self.step.state.is_terminal() {
            OUTPUT_PATIENCE
        } else {
            REQUEUED_PATIENCE
        };
        let Some(current) = &self.current else { return };
        if over && current.is_stalled(patience) {
            current.stop();
            let (id, number) = (safe(&self.step.id), current.number());
            self.out.warning(&format!(
                "the output of attempt {number} is not complete, because its host cannot be reached; \
                 `sluice logs {id} --attempt {number}` shows the rest once it can"
            ));
            self.current = None;
        }
    }

    /// Input goes to an attempt once its output is copied: the answer to keys that were typed before that must be seen.
    fn on_stream_begun(&mut self, number: u32) {
        let current = self.current.as_mut();
        let is_last = current.is_some_and(|it| it.number() == number && it.stream_begun());
        if let Some(feeder) = self.feeder.as_ref().filter(|_| is_last) {
            feeder.on_attempt(number);
        }
    }

    fn on_stream_end(
        &mut self,
        number: u32,
        end: Result<FollowEnd, FollowError>,
    ) -> Result<(), Failure> {
        if let Err(FollowError::Sink(error)) = end {
            if error.kind() == std::io::ErrorKind::BrokenPipe {
                self.on_closed_pipe();
            }
            let id = safe(&self.step.id);
            self.out
                .error(&format!("{id} runs on: `sluice cancel {id}` stops it"));
            return Err(Failure::Output(error));
        }
        let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.number() == number)
        else {
            return Ok(());
        };
        let last = current.stream_ended();
        if let Err(error) = end {
            self.out.warning(&format!(
                "the output of attempt {number} is not complete: {error}"
            ));
        }
        if last {
            self.current = None;
        }
        Ok(())
    }

    /// Ends this process like a program whose reader has gone, and cancels the own step.
    fn on_closed_pipe(&self) -> ! {
        if self.ownership != Ownership::Own {
            signals::end_like_a_closed_pipe();
        }
        let cancel = || self.client.act_on_step(&self.step.id, CANCEL);
        if let Err(error) = self.client.keep_trying(PARTING, |_| (), cancel) {
            let id = safe(&self.step.id);
            self.out
                .progress(&format!("{id} could not be cancelled: {error}"));
        }
        signals::end_like_a_closed_pipe()
    }

    /// Cancels the own step at the first signal; leaves at the second. An attached command leaves at the first.
    pub(super) fn on_signal(&mut self, signal: i32) {
        let id = safe(&self.step.id);
        if self.ownership != Ownership::Own {
            return self.detach();
        }
        if self.interrupted.is_some() {
            self.out.notice(&format!(
                "left {id} before it had ended: `sluice describe step {id}` shows where it is"
            ));
            self.left = Some(signals::exit_code(signal));
            return;
        }
        self.interrupted = Some(signal);
        self.out.progress(&format!(
            "cancelling {id}; press Ctrl-C again to leave without waiting for it"
        ));
        self.cancel();
    }

    fn cancel(&self) {
        let (client, id, send) = (self.client.clone(), self.step.id.clone(), self.send.clone());
        thread::spawn(move || {
            let answer = client.keep_trying(
                RetryLimit::Endless,
                |_| (),
                || client.act_on_step(&id, CANCEL),
            );
            let _ = send.send(RunEvent::Cancelled(answer.map(drop)));
        });
    }

    fn is_over(&self) -> bool {
        self.step.state.is_terminal()
            && self.current.is_none()
            && attempt::next_to_follow(&self.step, self.followed).is_none()
    }

    /// Returns the exit code; never success for a step whose input was lost.
    fn end(self) -> u8 {
        terminal::restore();
        if let Some(why) = self.failed.as_ref().filter(|_| self.interrupted.is_none()) {
            self.out.error(&safe(why));
            return RUN_FAILED;
        }
        self.end_of_step()
    }

    /// Reports how the step has ended; returns the exit code.
    fn end_of_step(&self) -> u8 {
        match exit::of(&self.step, self.interrupted) {
            RunExit::Own(0) => 0,
            // A program that ended by itself has its code; watchers are told nonetheless.
            RunExit::Own(code) if exit::tells_all(&self.step) => {
                self.out.progress(&exit::sentence(&self.step));
                code
            }
            RunExit::Own(code) | RunExit::Cancelled(code) => {
                let line = format!("sluice: {}", exit::sentence(&self.step));
                self.out.notice(&line);
                code
            }
            RunExit::Sluice => {
                self.out.error(&exit::sentence(&self.step));
                RUN_FAILED
            }
        }
    }

    /// Watches the step until it has ended, on a thread that ends with the process.
    pub(super) fn spawn_watcher(&self) {
        if self.step.state.is_terminal() {
            return;
        }
        let (client, send, out) = (self.client.clone(), self.send.clone(), self.out);
        let (id, mut started) = (self.step.id.clone(), false);
        thread::spawn(move || {
            let mut note = outage_note(out);
            loop {
                let goal = (!started).then_some(StepState::Running);
                let poll = || client.wait(&id, goal, POLL);
                let event = match client.keep_trying(RetryLimit::Endless, &mut note, poll) {
                    Ok(step) => {
                        started = !matches!(
                            step.state,
                            StepState::Queued | StepState::Allocated | StepState::Starting
                        );
                        RunEvent::View(Box::new(step))
                    }
                    Err(error) => RunEvent::Unwatchable(error),
                };
                let last = match &event {
                    RunEvent::View(step) => step.state.is_terminal(),
                    _ => true,
                };
                if send.send(event).is_err() || last {
                    return;
                }
            }
        });
    }
}
