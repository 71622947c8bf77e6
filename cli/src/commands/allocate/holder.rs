//! Holds an allocation while a program of this machine runs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
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
use crate::render::safe;
use crate::signals;

/// Variable in which a program finds the allocation.
const VARIABLE: &str = "SLUICE_ALLOCATION";

/// The program, once it runs, and a signal that came before. 0 stands for none.
#[derive(Debug, Default)]
struct Program {
    pid: AtomicI32,
    early: AtomicI32,
}

impl Program {
    /// Passes a signal on. Ctrl-C reaches the program by itself, because it shares the terminal.
    fn signal(&self, signal: i32) {
        match self.pid.load(Ordering::SeqCst) {
            0 => self.early.store(signal, Ordering::SeqCst),
            _ if signal == SIGINT => {}
            pid => end(pid, signal),
        }
    }
}

/// Signals a program. One that has ended needs none.
fn end(pid: i32, signal: i32) {
    if let Ok(signal) = Signal::try_from(signal) {
        let _ended_already = kill(Pid::from_raw(pid), signal);
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
    let program = Arc::new(Program::default());
    // Before the submit, so that Ctrl-C never leaves an unnoticed allocation behind.
    let heard = program.clone();
    hear_ending(move |signal| {
        heard.signal(signal);
        true
    })?;
    let call = || client.allocate(request);
    let mut step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
    let id = step.id.clone();
    let pause = Duration::from_millis(lease.millis() / 3);
    let mut told = false;
    while !is_allocated(&step) {
        check_granted(&step)?;
        let early = program.early.load(Ordering::SeqCst);
        if early != 0 {
            client.release(&id, None)?;
            return Ok(signals::exit_code(early));
        }
        if !told {
            out.progress(&format!(
                "{} waits: {}",
                safe(&id),
                safe(&step.reason.message)
            ));
            told = true;
        }
        // Short, because a signal is noticed only in between.
        let wait = pause.min(Duration::from_secs(1));
        let look = || client.wait(&id, Some(StepState::Running), wait);
        step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), look)?;
        if !is_allocated(&step) && check_granted(&step).is_ok() {
            let renew = || client.renew(&id, &RenewalRequest::default());
            step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), renew)?;
        }
    }
    let nodes: Vec<String> = step.placements.iter().map(|it| safe(&it.node)).collect();
    out.progress(&format!(
        "{} is allocated on {}",
        safe(&id),
        nodes.join(", ")
    ));
    let started = Command::new(&command[0])
        .args(&command[1..])
        .env(VARIABLE, &id)
        .spawn();
    let code = match started {
        Ok(child) => watched(client, &program, (&id, pause), child, out),
        Err(e) => Err(Failure::Failed(format!(
            "`{}` could not be started: {e}",
            safe(&command[0])
        ))),
    };
    let call = || client.release(&id, None);
    client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
    code
}

fn is_allocated(step: &StepView) -> bool {
    let state = step.allocation.as_ref().map(|it| it.state);
    state == Some(AllocationState::Allocated)
}

/// Waits for the program, while another thread renews the allocation.
fn watched(
    client: &Client,
    program: &Program,
    (id, pause): (&str, Duration),
    mut child: Child,
    out: Out,
) -> Result<u8, Failure> {
    let pid = child.id().cast_signed();
    program.pid.store(pid, Ordering::SeqCst);
    let over = Arc::new(AtomicBool::new(false));
    let (client, id, ended) = (client.clone(), id.to_owned(), over.clone());
    thread::spawn(move || {
        let lost = renewed(&client, (&id, pause), &ended, out);
        if let Some(why) = lost {
            out.notice(&format!("{why}: the program is told to end"));
            end(pid, Signal::SIGTERM as i32);
        }
    });
    let exit = child
        .wait()
        .map_err(|e| Failure::Failed(format!("the program is lost: {e}")))?;
    over.store(true, Ordering::SeqCst);
    let code = exit.code().or_else(|| Some(128 + exit.signal()?));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX))
}

/// Renews an allocation until the program has ended; returns why it is lost, if it is.
fn renewed(
    client: &Client,
    (id, pause): (&str, Duration),
    ended: &AtomicBool,
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
        if ended.load(Ordering::SeqCst) {
            return None;
        }
        match seen {
            Ok(step) if is_allocated(&step) => {}
            Ok(step) => return Some(taken(&step)),
            Err(error) if is_outage(&error) => {}
            Err(error) => return Some(error.to_string()),
        }
    }
}

fn is_outage(error: &ApiError) -> bool {
    error.status().is_none_or(|status| status >= 500)
}

fn taken(step: &StepView) -> String {
    let id = safe(&step.id);
    let release_by = step.allocation.as_ref().and_then(|it| it.release_by);
    match release_by {
        Some(at) => format!("{id} is taken back, and must be released before {at}"),
        None => format!("{id} is lost: {}", safe(&step.reason.message)),
    }
}
