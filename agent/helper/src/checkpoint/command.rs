//! The command line of the mode `checkpoint` and what it prints: a line of JSON for each process. Started by the supervisor; by hand,
//! `probe` tells an admin whether a host can do it.

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
use super::{Checkpointing, act};

/// How long, where nobody says.
const DEFAULT_LOCK_TIMEOUT_MS: u32 = 10_000;

/// What it was asked to do.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    library: Option<PathBuf>,
    tool: Option<PathBuf>,
    lock_timeout_ms: u32,
    action: CheckpointAction,
    pids: Vec<u32>,
}

/// Why it did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    /// The command line is wrong.
    #[error(
        "{0}; usage: sluice-helper checkpoint [--library FILE] [--tool FILE] [--lock-timeout-ms N] probe|suspend|resume|undo PID..."
    )]
    Usage(#[from] lexopt::Error),
    /// Nobody reads what it prints.
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Does what the command line says (without the program's name and the mode).
///
/// # Errors
/// Where it is not understood; what becomes of processes is in what is printed.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), HelperError> {
    let request = parse(args)?;
    heed_no_stop();
    let lines = match way(&request) {
        Ok(way) => act(way.as_ref(), request.action, &request.pids),
        Err(why) => request
            .pids
            .iter()
            .map(|pid| hopeless(*pid, &why))
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

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Request, lexopt::Error> {
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
    Ok(Request {
        library,
        tool,
        lock_timeout_ms,
        action: action.ok_or("the action is missing")?,
        pids,
    })
}

/// A step that is told to stop is told as a whole, and this process stands in its group: what was begun is brought to an
/// end first. A kill ends it like any other.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
fn heed_no_stop() {
    // SAFETY: SIG_IGN installs no handler of ours.
    let _ = unsafe { nix::sys::signal::signal(Signal::SIGTERM, SigHandler::SigIgn) };
}

/// The library, or the tool where the library cannot.
fn way(request: &Request) -> Result<Box<dyn Checkpointing>, CheckpointError> {
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

fn hopeless(pid: u32, why: &CheckpointError) -> CheckpointResult {
    CheckpointResult {
        pid,
        state: None,
        failed: Some(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_command_line_is_understood_or_refused() {
        let found = parsed("--library /l --tool /t --lock-timeout-ms 5 suspend 7 8").unwrap();
        let wanted = Request {
            library: Some("/l".into()),
            tool: Some("/t".into()),
            lock_timeout_ms: 5,
            action: CheckpointAction::Suspend,
            pids: vec![7, 8],
        };
        assert_eq!(found, wanted);
        for (line, words) in [
            ("", "the action is missing"),
            ("freeze 7", "none of probe, suspend, resume, undo"),
            ("probe x", "x"),
            ("probe --all", "--all"),
        ] {
            let told = parsed(line).unwrap_err();
            assert!(told.contains(words), "{told}");
        }
    }
}
