//! `sluice run`: submits a step, passes its output through, and ends as it ends. `sluice attach` does the same with an
//! existing step, from now on, and leaves it running when it goes.
//!
//! One loop owns all knowledge of the step; threads send it events and decide nothing: one watches the step, one copies
//! each stream of the followed attempt, one waits for signals. Attempts are followed one after the other, each to the
//! end of its output, so outputs are never mixed.
//!
//! ```text
//! submit -> waits -> follows attempt 1 -> ended
//!             ^            |
//!             +-- requeued +
//! ```

mod attempt;
mod exit;
mod input;
mod run_loop;

use std::slice;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use signal_hook::consts::SIGINT;
use sluice_common::api::StepView;
use sluice_common::request::StepRequest;
use sluice_common::streams::STREAMED;

use super::{hear_ending, outage_note, preview, submit};
use crate::args::{AttachArgs, SubmitArgs};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::follow::{FollowEnd, FollowError};
use crate::local_inputs::InputPaths;
use crate::out::Out;
use crate::render::safe;
use crate::request_builder::Defaults;
use crate::{signals, step_source, terminal};

use input::InputStop;
use run_loop::RunLoop;

/// An event from a thread.
#[derive(Debug)]
enum RunEvent {
    /// The answer to the submit.
    Submitted(Result<Box<StepView>, ApiError>),
    /// The step as it is now.
    View(Box<StepView>),
    /// The step cannot be watched any more.
    Unwatchable(ApiError),
    /// One stream of an attempt is copied from now on.
    StreamBegun(u32),
    /// One stream of an attempt has ended.
    StreamEnded(u32, Result<FollowEnd, FollowError>),
    /// No more input is sent.
    InputStopped(InputStop),
    /// A signal that ends this process.
    Signal(i32),
    /// The answer to the cancel after a signal.
    Cancelled(Result<(), ApiError>),
}

pub(crate) fn run(client: &Client, mut args: SubmitArgs, out: Out) -> Result<u8, Failure> {
    let defaults = Defaults::of(&client.context().file);
    let dry_run = args.dry_run;
    let inputs = InputPaths::of(&args.step.inputs)?;
    args.step.input_files = inputs.files();
    let mut request = only(step_source::requests(args, &defaults, out)?)?;
    if let Some(array) = &request.array {
        return Err(Failure::Usage(format!(
            "--array: `{}` makes many parts, and `run` shows the output of one: use `sluice submit`, `sluice wait` and `sluice logs ID.INDEX`",
            safe(array)
        )));
    }
    submit::fill_subject(client, slice::from_mut(&mut request), out)?;
    if dry_run {
        return preview::run(client, &[request], out);
    }
    inputs.upload(client, out)?;
    let is_terminal = request.terminal.unwrap_or(false);
    if is_terminal {
        super::check_terminal()?;
        let term = request.env.entry("TERM".to_owned());
        term.or_insert_with(terminal::term);
    } else if request.stdin.is_none() && input::is_given() {
        request.stdin = Some(STREAMED.to_owned());
    }
    let feeds = is_terminal || request.stdin.as_deref() == Some(STREAMED);
    let (send, events) = mpsc::channel();
    // Before the submit, so that Ctrl-C never leaves an unnoticed step behind.
    let tell = send.clone();
    hear_ending(move |signal| tell.send(RunEvent::Signal(signal)).is_ok())?;
    let mut early = None;
    let Some(step) = submit(client, request, &send, &events, &mut early, out)? else {
        return Ok(signals::exit_code(early.unwrap_or(SIGINT)));
    };
    submit::tell_warnings(&step, out);
    let mut run = RunLoop::new(client, out, Ownership::Own, step, send, events);
    run.spawn_watcher();
    if feeds {
        run.feed(is_terminal)?;
    }
    if let Some(signal) = early {
        run.on_signal(signal);
    }
    run.drive()
}

/// Returns the only step of a file.
fn only(requests: Vec<StepRequest>) -> Result<StepRequest, Failure> {
    let steps = requests.len();
    <[StepRequest; 1]>::try_from(requests).map_or_else(
        |_| {
            Err(Failure::Usage(format!(
                "--file: there are {steps} steps in it, and `run` follows one: submit them with `sluice submit`"
            )))
        },
        |[request]| Ok(request),
    )
}

pub(crate) fn attach(client: &Client, args: &AttachArgs, out: Out) -> Result<u8, Failure> {
    let call = || client.step_called(&args.step);
    let step = client.keep_trying(RetryLimit::READ, outage_note(out), call)?;
    let id = safe(&step.id);
    if args.terminal {
        super::check_terminal()?;
        if !step.terminal {
            return Err(Failure::Failed(format!(
                "{id} has no terminal: `sluice exec -it {id} -- bash` opens one beside it, `sluice attach {id}` shows its output"
            )));
        }
    }
    if step.state.is_terminal() {
        return Err(Failure::Failed(format!(
            "{}: `sluice logs {id}` shows what it wrote",
            exit::sentence(&step)
        )));
    }
    let (send, events) = mpsc::channel();
    let tell = send.clone();
    hear_ending(move |signal| tell.send(RunEvent::Signal(signal)).is_ok())?;
    let leave = match args.terminal {
        true => "Enter, `~` and `.` leave",
        false => "Ctrl-C leaves",
    };
    out.progress(&format!(
        "attached to {id}, which is {}; {leave} it as it is",
        step.state
    ));
    let tail = match args.terminal {
        // The program shows its screen again when it hears of the terminal's size.
        true => 0,
        false => args.tail,
    };
    let mut run = RunLoop::new(client, out, Ownership::Guest { tail }, step, send, events);
    run.spawn_watcher();
    if args.terminal {
        run.feed(true)?;
    }
    run.drive()
}

/// Submits, and listens for signals meanwhile: the first is kept in `early`, a second one leaves (`None`).
fn submit(
    client: &Client,
    request: StepRequest,
    send: &Sender<RunEvent>,
    events: &Receiver<RunEvent>,
    early: &mut Option<i32>,
    out: Out,
) -> Result<Option<StepView>, Failure> {
    let id = safe(request.id.as_deref().unwrap_or_default());
    let (client, send) = (client.clone(), send.clone());
    thread::spawn(move || {
        let call = || client.submit(&request);
        let answer = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call);
        let _ = send.send(RunEvent::Submitted(answer.map(Box::new)));
    });
    loop {
        match events.recv() {
            Ok(RunEvent::Submitted(answer)) => return Ok(Some(*answer?)),
            Ok(RunEvent::Signal(_)) if early.is_some() => {
                out.notice(&format!(
                    "left before the coordinator had answered: `sluice cancel {id}` if it exists"
                ));
                return Ok(None);
            }
            Ok(RunEvent::Signal(signal)) => *early = Some(signal),
            _ => {}
        }
    }
}

/// Relation of this command to the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// This command's: it is cancelled when the command is told to end.
    Own,
    /// Somebody else's: this command only watches, from the last lines of the running attempt.
    Guest { tail: usize },
}
