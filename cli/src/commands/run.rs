//! `sluice run`: submits a step, passes its output through, and ends as it ends.
//!
//! One loop owns what is known; threads bring it events and decide nothing: one watches the step, one passes on each
//! stream of the attempt that is followed, one waits for signals. Attempts are followed one after the other, each to
//! the end of its output, so what a later one writes never stands between.
//!
//! ```text
//! submit -> waits -> follows attempt 1 -> ended
//!             ^            |
//!             +-- requeued +
//! ```

mod attempt;
mod ending;

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGINT;
use sluice_common::api::StepView;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;

use super::outage_note;
use crate::args::RunArgs;
use crate::client::{ApiError, Client, Patience};
use crate::failure::{Failure, RUN_FAILED};
use crate::follow::{End, FollowError};
use crate::order::{self, Defaults};
use crate::out::Out;
use crate::render::safe;
use crate::signals;

use attempt::Attempt;
use ending::Ending;

/// How long one call waits for a step to start or to end. Short, because a step that has to wait again is not an end
/// and is only seen when the call returns.
const POLL: Duration = Duration::from_secs(2);
/// Between looks at a step whose output is complete and whose end is not recorded yet.
const LOOK: Duration = Duration::from_millis(100);
/// How long the output of an attempt that is over may stand still before it is given up: a coordinator that was just
/// restarted must find its nodes again, and a node that was cut off must come back.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(30);
/// The same where the next attempt waits to be seen.
const REQUEUED_PATIENCE: Duration = Duration::from_secs(5);
/// How long a cancel may take when nobody is left to tell of it.
const PARTING: Patience = Patience::For(Duration::from_secs(5));

/// What the threads bring.
#[derive(Debug)]
enum Event {
    /// The answer to the submit.
    Submitted(Result<Box<StepView>, ApiError>),
    /// The step as it is now.
    View(Box<StepView>),
    /// It cannot be watched any more.
    Unwatchable(ApiError),
    /// One stream of an attempt has ended.
    StreamEnded(u32, Result<End, FollowError>),
    /// Somebody wants us to end.
    Signal(i32),
    /// The cancel that a signal asked for was answered.
    Cancelled(Result<(), ApiError>),
}

/// Runs the command.
pub(crate) fn run(client: &Client, args: RunArgs, out: Out) -> Result<u8, Failure> {
    let defaults = Defaults::of(&client.context().file)?;
    let request = order::from_flags(args.step, args.command, &defaults)?;
    let (send, events) = mpsc::channel();
    // Before the submit, so that no Ctrl-C can leave a step behind that nobody heard of.
    let tell = send.clone();
    signals::forward(&signals::ending(), move |signal| {
        tell.send(Event::Signal(signal)).is_ok()
    })
    .map_err(|e| Failure::Failed(format!("cannot listen for signals: {e}")))?;
    let mut early = None;
    let Some(step) = submit(client, request, &send, &events, &mut early, out)? else {
        return Ok(signals::exit_code(early.unwrap_or(SIGINT)));
    };
    let mut run = Run::new(client, out, step, send, events);
    if !run.step.state.is_terminal() {
        run.spawn_watcher();
    }
    if let Some(signal) = early {
        run.on_signal(signal);
    }
    run.drive()
}

/// Submits, and listens to signals meanwhile: one is kept in `early`, a second one leaves (`None`).
fn submit(
    client: &Client,
    request: StepRequest,
    send: &Sender<Event>,
    events: &Receiver<Event>,
    early: &mut Option<i32>,
    out: Out,
) -> Result<Option<StepView>, Failure> {
    let id = safe(request.id.as_deref().unwrap_or_default());
    let (client, send) = (client.clone(), send.clone());
    thread::spawn(move || {
        let call = || client.submit(&request);
        let answer = client.keep_trying(Patience::CHANGE, outage_note(out), call);
        let _ = send.send(Event::Submitted(answer.map(Box::new)));
    });
    loop {
        match events.recv() {
            Ok(Event::Submitted(answer)) => return Ok(Some(*answer?)),
            Ok(Event::Signal(_)) if early.is_some() => {
                out.notice(&format!(
                    "left before the coordinator had answered: `sluice cancel {id}` if it exists"
                ));
                return Ok(None);
            }
            Ok(Event::Signal(signal)) => *early = Some(signal),
            _ => {}
        }
    }
}

struct Run<'a> {
    client: &'a Client,
    out: Out,
    step: StepView,
    send: Sender<Event>,
    events: Receiver<Event>,
    /// The attempt whose output is passed on.
    current: Option<Attempt>,
    /// The last attempt that was followed, or passed over because it never ran.
    followed: u32,
    /// What was said last about waiting.
    said: String,
    /// The last attempt of which was said that it is over and another follows.
    announced: u32,
    /// The signal that made us cancel.
    interrupted: Option<i32>,
    /// The exit code of leaving before the end.
    left: Option<u8>,
}

impl<'a> Run<'a> {
    fn new(
        client: &'a Client,
        out: Out,
        step: StepView,
        send: Sender<Event>,
        events: Receiver<Event>,
    ) -> Self {
        Self {
            client,
            out,
            step,
            send,
            events,
            current: None,
            followed: 0,
            said: String::new(),
            announced: 0,
            interrupted: None,
            left: None,
        }
    }

    fn drive(mut self) -> Result<u8, Failure> {
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

    /// The next event; `None` when it is time to look at the step again.
    fn next_event(&self) -> Option<Event> {
        let pause = match &self.current {
            // Looking costs nothing here: only the patience with its output is checked.
            Some(_) if self.attempt_is_over() => LOOK,
            None if self.followed > 0 && self.followed == self.step.attempt && !self.waits() => {
                LOOK
            }
            Some(_) | None => return self.events.recv().ok(),
        };
        self.events.recv_timeout(pause).ok()
    }

    /// Asks for the step where its attempt has nothing more to say and nobody will tell. The watcher is patient with a
    /// coordinator that is away; here it does not matter.
    fn look(&mut self) -> Result<(), Failure> {
        if self.current.is_some() || self.step.state.is_terminal() {
            return Ok(());
        }
        match self.client.step(&self.step.id) {
            Ok(step) => self.step = step,
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(self.unwatchable(error)),
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            // A view that was under way while a newer one came says nothing new.
            Event::View(step)
                if self.step.state.is_terminal() || step.attempt < self.step.attempt => {}
            Event::View(step) => self.step = *step,
            Event::Unwatchable(error) => return Err(self.unwatchable(error)),
            Event::StreamEnded(number, end) => self.on_stream_end(number, end)?,
            Event::Signal(signal) => self.on_signal(signal),
            Event::Submitted(_) => {}
            Event::Cancelled(Ok(())) => {}
            Event::Cancelled(Err(error)) => {
                let id = safe(&self.step.id);
                self.out
                    .error(&format!("{id} could not be cancelled: {error}"));
            }
        }
        Ok(())
    }

    fn unwatchable(&self, error: ApiError) -> Failure {
        match error.status() {
            Some(404) => Failure::Failed(format!(
                "the cluster no longer knows {}: how it ended is not known",
                safe(&self.step.id)
            )),
            _ => error.into(),
        }
    }

    /// Starts to follow what can be followed, gives up what nobody will complete, and says why it waits.
    fn advance(&mut self) -> Result<(), Failure> {
        self.give_up_stalled();
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
            let attempt = Attempt::start(self.client, &self.step.id, number, &self.send, self.out)?;
            self.current = Some(attempt);
        } else if self.waits() {
            self.say_waiting();
        }
        Ok(())
    }

    /// Whether it waits for units, for the first time or again.
    fn waits(&self) -> bool {
        self.step.state == StepState::Queued
    }

    fn attempt_is_over(&self) -> bool {
        let later = self.step.attempt > self.followed;
        self.step.state.is_terminal() || self.waits() || later
    }

    /// That it must run again belongs into every log; that it waits is for those who watch.
    fn say_waiting(&mut self) {
        let (id, message) = (safe(&self.step.id), safe(&self.step.reason.message));
        if self.step.attempt > self.announced {
            self.announced = self.step.attempt;
            let number = self.step.attempt;
            self.out.notice(&format!(
                "{id}: attempt {number} is over and the step waits to run again: {message}"
            ));
        } else if message != self.said {
            self.out.progress(&format!("{id} waits: {message}"));
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
        if over && current.stood_still_since_over(patience) {
            current.stop();
            let (id, number) = (safe(&self.step.id), current.number());
            self.out.warning(&format!(
                "the output of attempt {number} is not complete, because its host cannot be reached; \
                 `sluice logs {id} --attempt {number}` shows the rest once it can"
            ));
            self.current = None;
        }
    }

    fn on_stream_end(&mut self, number: u32, end: Result<End, FollowError>) -> Result<(), Failure> {
        if let Err(FollowError::Sink(error)) = end {
            if error.kind() == std::io::ErrorKind::BrokenPipe {
                self.on_closed_pipe();
            }
            let id = safe(&self.step.id);
            self.out.error(&format!(
                "{id} goes on without us: `sluice cancel {id}` stops it"
            ));
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

    /// Whoever read our output has gone. A program that ran here would die of that, so the step is cancelled.
    fn on_closed_pipe(&self) -> ! {
        let cancel = || self.client.cancel(&self.step.id);
        if let Err(error) = self.client.keep_trying(PARTING, |_| (), cancel) {
            let id = safe(&self.step.id);
            self.out
                .progress(&format!("{id} could not be cancelled: {error}"));
        }
        signals::end_like_a_closed_pipe()
    }

    /// The first signal cancels the step; a second one leaves at once.
    fn on_signal(&mut self, signal: i32) {
        let id = safe(&self.step.id);
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
        let (client, id, send) = (self.client.clone(), self.step.id.clone(), self.send.clone());
        thread::spawn(move || {
            let answer = client.keep_trying(Patience::Endless, |_| (), || client.cancel(&id));
            let _ = send.send(Event::Cancelled(answer.map(drop)));
        });
    }

    fn is_over(&self) -> bool {
        self.step.state.is_terminal()
            && self.current.is_none()
            && attempt::next_to_follow(&self.step, self.followed).is_none()
    }

    fn end(self) -> u8 {
        match ending::of(&self.step, self.interrupted) {
            Ending::Own(0) => 0,
            Ending::Own(code) => {
                self.out.progress(&ending::sentence(&self.step));
                code
            }
            Ending::Cancelled(code) => {
                self.out.notice(&ending::sentence(&self.step));
                code
            }
            Ending::Sluice => {
                self.out.error(&ending::sentence(&self.step));
                RUN_FAILED
            }
        }
    }

    /// Watches the step until it has ended. Ends with the process.
    fn spawn_watcher(&self) {
        let (client, send, out) = (self.client.clone(), self.send.clone(), self.out);
        let (id, mut started) = (self.step.id.clone(), false);
        thread::spawn(move || {
            let mut note = outage_note(out);
            loop {
                let goal = (!started).then_some(StepState::Running);
                let poll = || client.wait(&id, goal, POLL);
                let event = match client.keep_trying(Patience::Endless, &mut note, poll) {
                    Ok(step) => {
                        started = !matches!(
                            step.state,
                            StepState::Queued | StepState::Allocated | StepState::Starting
                        );
                        Event::View(Box::new(step))
                    }
                    Err(error) => Event::Unwatchable(error),
                };
                let last = match &event {
                    Event::View(step) => step.state.is_terminal(),
                    _ => true,
                };
                if send.send(event).is_err() || last {
                    return;
                }
            }
        });
    }
}
