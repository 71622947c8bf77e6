//! Holds an allocation while a program of this machine runs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::SIGINT;
use sluice_common::allocation::{AllocationState, HolderState, RenewalRequest};
use sluice_common::api::StepView;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;
use sluice_common::time::Span;

use super::check_granted;
use crate::client::{ApiError, Client, RetryLimit};
use crate::commands::{hear_ending, outage_note};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{or_dash, safe};
use crate::signals;

/// Variable in which a program finds the allocation.
const VARIABLE: &str = "SLUICE_ALLOCATION";

/// Pause before a renewal is tried again that failed, and between two looks for a signal while the allocation waits.
const SOON: Duration = Duration::from_secs(1);

/// Stage of the program. Its process is signalled only while it is certain to be its own.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// Not started. A signal came, if any.
    Awaited(Option<i32>),
    Running(Pid),
    Ended,
}

/// The program, shared with the threads that signal it.
#[derive(Clone, Debug)]
struct SharedProgram(Arc<Mutex<Program>>);

impl SharedProgram {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Program::Awaited(None))))
    }

    fn lock(&self) -> MutexGuard<'_, Program> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on a signal of this process. Ctrl-C reaches the program by itself, because it shares the terminal. After its
    /// end nothing is worth waiting for.
    fn hear(&self, signal: i32) {
        let mut program = self.lock();
        match *program {
            Program::Awaited(_) => *program = Program::Awaited(Some(signal)),
            Program::Running(_) if signal == SIGINT => {}
            Program::Running(pid) => send(pid, signal),
            Program::Ended => std::process::exit(i32::from(signals::exit_code(signal))),
        }
    }

    /// Tells the program to end.
    fn end(&self) {
        if let Program::Running(pid) = *self.lock() {
            send(pid, Signal::SIGTERM as i32);
        }
    }

    /// The signal that came before the program started, if any.
    fn early(&self) -> Option<i32> {
        match *self.lock() {
            Program::Awaited(signal) => signal,
            Program::Running(_) | Program::Ended => None,
        }
    }
}

fn send(pid: Pid, signal: i32) {
    if let Ok(signal) = Signal::try_from(signal) {
        let _ended_already = kill(pid, signal);
    }
}

/// Runs a program while the allocation lasts, and returns its exit code.
pub(super) fn hold(
    client: &Client,
    request: &StepRequest,
    lease: Span,
    command: &[String],
    out: Out,
) -> Result<u8, Failure> {
    let program = SharedProgram::new();
    // Before the submit, so that Ctrl-C never leaves an unnoticed allocation behind.
    let heard = program.clone();
    hear_ending(move |signal| {
        heard.hear(signal);
        true
    })?;
    let call = || client.allocate(request);
    let step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
    let id = step.id.clone();
    let pause = Duration::from_millis(lease.millis() / 3);
    let code = match wait(client, &program, step, pause, out) {
        Ok(None) => run(client, &program, (&id, pause), command, out),
        Ok(Some(signal)) => Ok(signals::exit_code(signal)),
        Err(failure) => Err(failure),
    };
    *program.lock() = Program::Ended;
    let release = || client.release(&id, None);
    let released = client.keep_trying(RetryLimit::CHANGE, outage_note(out), release);
    if let (Ok(_), Err(error)) = (&code, released) {
        let id = safe(&id);
        out.notice(&format!(
            "{id} could not be released, and ends by itself if nobody renews it: {error}"
        ));
    }
    code
}

/// Waits until the allocation is granted, or a signal has come.
fn wait(
    client: &Client,
    program: &SharedProgram,
    mut step: StepView,
    pause: Duration,
    out: Out,
) -> Result<Option<i32>, Failure> {
    let id = step.id.clone();
    let mut renewed_at = Instant::now();
    let mut told = false;
    while !is_allocated(&step) {
        check_granted(&step)?;
        if let Some(signal) = program.early() {
            return Ok(Some(signal));
        }
        if !told {
            let why = safe(&step.reason.message);
            out.progress(&format!("{} waits: {why}", safe(&id)));
            told = true;
        }
        let look = || client.wait(&id, Some(StepState::Running), pause.min(SOON));
        step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), look)?;
        if renewed_at.elapsed() >= pause && !is_allocated(&step) && check_granted(&step).is_ok() {
            let renew = || client.renew(&id, &RenewalRequest::default());
            step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), renew)?;
            renewed_at = Instant::now();
        }
    }
    let nodes: Vec<String> = step.placements.iter().map(|it| safe(&it.node)).collect();
    // A pool without hosts gives none.
    let place = match nodes.is_empty() {
        true => format!("in pool {}", or_dash(step.pool.as_deref())),
        false => format!("on {}", nodes.join(", ")),
    };
    out.progress(&format!("{} is allocated {place}", safe(&id)));
    Ok(program.early())
}

fn is_allocated(step: &StepView) -> bool {
    let state = step.allocation.as_ref().map(|it| it.state);
    state == Some(AllocationState::Allocated)
}

/// Runs the program to its end, while another thread renews the allocation.
fn run(
    client: &Client,
    program: &SharedProgram,
    (id, pause): (&str, Duration),
    command: &[String],
    out: Out,
) -> Result<u8, Failure> {
    let spawned = {
        // A signal that comes now finds the program running.
        let mut shared = program.lock();
        let (file, arguments) = (&command[0], &command[1..]);
        let spawned = Command::new(file).args(arguments).env(VARIABLE, id).spawn();
        if let Ok(child) = &spawned {
            let pid = Pid::from_raw(child.id().cast_signed());
            if let Program::Awaited(Some(signal)) = *shared {
                send(pid, signal);
            }
            *shared = Program::Running(pid);
        }
        spawned
    };
    let child = spawned.map_err(|e| {
        let file = safe(&command[0]);
        Failure::Failed(format!("`{file}` could not be started: {e}"))
    })?;
    let (renewing, id, shared) = (client.clone(), id.to_owned(), program.clone());
    thread::spawn(move || {
        if let Some(why) = renewed(&renewing, (&id, pause), &shared, out) {
            out.notice(&format!("{why}: the program is told to end"));
            shared.end();
        }
    });
    wait_for(child, program)
}

/// Waits for the program, which is nobody's to signal once it has ended and before its process id is free again.
fn wait_for(mut child: Child, program: &SharedProgram) -> Result<u8, Failure> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), flags) == Err(nix::errno::Errno::EINTR) {}
    *program.lock() = Program::Ended;
    let exit = child.wait();
    let exit = exit.map_err(|e| Failure::Failed(format!("the program is lost: {e}")))?;
    let code = exit.code().or_else(|| Some(128 + exit.signal()?));
    Ok(code.map_or(u8::MAX, |code| u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Renews an allocation until the program has ended; returns why it is lost, if it is.
fn renewed(
    client: &Client,
    (id, pause): (&str, Duration),
    program: &SharedProgram,
    out: Out,
) -> Option<String> {
    let request = RenewalRequest {
        state: Some(HolderState::Running),
        lease: None,
    };
    loop {
        let call = || client.renew(id, &request);
        let renewed = client.keep_trying(RetryLimit::READ, outage_note(out), call);
        // Returns at once if it is being taken back.
        let seen = renewed.and_then(|_| client.wait(id, Some(StepState::Stopping), pause));
        if matches!(*program.lock(), Program::Ended) {
            return None;
        }
        match seen {
            Ok(step) if is_allocated(&step) => {}
            Ok(step) => return Some(taken(&step)),
            Err(error) if is_final(&error) => return Some(error.to_string()),
            Err(_) => thread::sleep(SOON),
        }
    }
}

/// Whether no later call can succeed.
fn is_final(error: &ApiError) -> bool {
    let is_refused = error.status().is_some_and(|status| status < 500);
    matches!(error, ApiError::Gone(_)) || is_refused && !error.is_passing()
}

fn taken(step: &StepView) -> String {
    let id = safe(&step.id);
    let release_by = step.allocation.as_ref().and_then(|it| it.release_by);
    match release_by {
        Some(at) => format!("{id} is taken back, and must be released before {at}"),
        None => format!("{id} is lost: {}", safe(&step.reason.message)),
    }
}
