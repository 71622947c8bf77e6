//! Command line and output of the mode `checkpoint`. The output is a line of JSON for each process. The
//! supervisor starts it; an admin can run `probe` by hand to see if a host supports checkpointing.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Value};
use nix::sys::signal::{SigHandler, Signal};
use sluice_common::helper::{
    CheckpointAction, CheckpointError, CheckpointResult, LIBRARY, LOCK_TIMEOUT, TOOL,
};

use super::library::Library;
use super::tool::Tool;
use super::{Checkpointer, act};

const DEFAULT_LOCK_TIMEOUT_MS: u32 = 10_000;

/// Parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct CheckpointRequest {
    library: Option<PathBuf>,
    tool: Option<PathBuf>,
    lock_timeout_ms: u32,
    action: CheckpointAction,
    pids: Vec<u32>,
}

/// Why the command did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(
        "{0}; usage: sluice-helper checkpoint [--library FILE] [--tool FILE] [--lock-timeout-ms N] probe|suspend|resume|undo PID..."
    )]
    Usage(#[from] lexopt::Error),
    /// Standard output is closed.
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Runs the command line, which lacks the program's name and the mode. Results for each process are printed.
///
/// # Errors
/// If the command line is invalid, or standard output is closed.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), CommandError> {
    let request = parse(args)?;
    ignore_sigterm();
    let lines = match backend(&request) {
        Ok(backend) => act(backend.as_ref(), request.action, &request.pids),
        Err(why) => request
            .pids
            .iter()
            .map(|pid| failed_line(*pid, &why))
            .collect(),
    };
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(
            out,
            "{}",
            serde_json::to_string(&line).map_err(io::Error::other)?
        )?;
    }
    Ok(())
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<CheckpointRequest, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut library, mut tool, mut lock_timeout_ms) = (None, None, DEFAULT_LOCK_TIMEOUT_MS);
    let (mut action, mut pids) = (None, Vec::new());
    while let Some(arg) = parser.next()? {
        match arg {
            Long(LIBRARY) => library = Some(PathBuf::from(parser.value()?)),
            Long(TOOL) => tool = Some(PathBuf::from(parser.value()?)),
            Long(LOCK_TIMEOUT) => lock_timeout_ms = parser.value()?.parse()?,
            Value(word) if action.is_none() => action = Some(word.parse()?),
            Value(pid) => pids.push(pid.parse()?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(CheckpointRequest {
        library,
        tool,
        lock_timeout_ms,
        action: action.ok_or("the action is missing")?,
        pids,
    })
}

/// Ignores SIGTERM. This process is in the step's group, so a step that is told to stop would interrupt it;
/// an action that has begun must complete. SIGKILL still ends it.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
fn ignore_sigterm() {
    // SAFETY: SIG_IGN installs no handler.
    let _ = unsafe { nix::sys::signal::signal(Signal::SIGTERM, SigHandler::SigIgn) };
}

/// The library, or the tool if the library is not usable.
fn backend(request: &CheckpointRequest) -> Result<Box<dyn Checkpointer>, CheckpointError> {
    let library = Library::open(request.library.as_deref(), request.lock_timeout_ms);
    let no_library = match library {
        Ok(library) => return Ok(Box::new(library)),
        Err(why) => why,
    };
    match Tool::find(request.tool.as_deref()) {
        Ok(tool) => Ok(Box::new(tool)),
        Err(no_tool) => Err(CheckpointError::Unsupported(format!(
            "{no_library}; {no_tool}"
        ))),
    }
}

fn failed_line(pid: u32, why: &CheckpointError) -> CheckpointResult {
    CheckpointResult {
        pid,
        state: None,
        failed: Some(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<CheckpointRequest, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_command_line_is_understood_or_refused() {
        let found = parsed("--library /l --tool /t --lock-timeout-ms 5 suspend 7 8").unwrap();
        let wanted = CheckpointRequest {
            library: Some("/l".into()),
            tool: Some("/t".into()),
            lock_timeout_ms: 5,
            action: CheckpointAction::Suspend,
            pids: vec![7, 8],
        };
        assert_eq!(found, wanted);
        for (line, wanted) in [
            ("", "the action is missing"),
            ("freeze 7", "not one of probe, suspend, resume, undo"),
            ("probe x", "x"),
            ("probe --all", "--all"),
        ] {
            let told = parsed(line).unwrap_err();
            assert!(told.contains(wanted), "{told}");
        }
    }
}
