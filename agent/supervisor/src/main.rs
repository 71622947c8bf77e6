//! The binary `sluice-supervisor`: parses the command line, sets up the log and runs [`Server`]. The library
//! of the same crate has everything else.

use std::io::{self, Write};
use std::process::ExitCode;

use sluice_common::error_chain::error_chain;
use sluice_log::{Filter, Format, LogError};
use sluice_supervisor::keeper::command as keeper;
use sluice_supervisor::options::{self, Command};
use sluice_supervisor::server::{Server, ServerError};
use sluice_supervisor::spawn::wrapper;
use tracing::error;

const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|mode| mode == keeper::MODE)
    {
        return keep();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|mode| mode == wrapper::MODE)
    {
        let (why, code) = wrapper::run(std::env::args_os().skip(2));
        let _nobody_reads_it = writeln!(io::stderr(), "sluice: {why}");
        return ExitCode::from(code);
    }
    let is_check = options::is_check(std::env::args_os().skip(1));
    let (format, filter, command) = match options::parse(std::env::args_os().skip(1)) {
        Ok(Command::Print(text)) => return print(&text),
        Ok(command @ (Command::Run(_) | Command::Rehearse(..))) => {
            (command.log_format(), Ok(command.log_filter()), Ok(command))
        }
        Err(e) if is_check => return refused(&e),
        // Logged in the form that the environment asks for, so that the error is not lost.
        Err(e) => (Format::default(), Filter::from_env_or(None), Err(e)),
    };
    let started = filter.map_err(LogError::from);
    if let Err(e) = started.and_then(|filter| sluice_log::start(format, &filter)) {
        let _nobody_reads_it = writeln!(io::stderr(), "error: {e}");
        return ExitCode::from(USAGE_ERROR);
    }
    match command.map(work) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => fail(&e, ExitCode::FAILURE),
        Err(e) => fail(&e, ExitCode::from(USAGE_ERROR)),
    }
}

/// A keeper sets up its own log and reads no config.
fn keep() -> ExitCode {
    match keeper::run(std::env::args_os().skip(2)) {
        Ok(Some(text)) => print(text),
        Ok(None) => ExitCode::SUCCESS,
        Err(e) => refused(&e),
    }
}

/// Prints an error for a person at a terminal.
fn refused(e: &dyn std::error::Error) -> ExitCode {
    let _nobody_reads_it = writeln!(io::stderr(), "error: {}", error_chain(e));
    ExitCode::from(USAGE_ERROR)
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn work(command: Command) -> Result<(), ServerError> {
    match command {
        Command::Run(options) => Server::open(options)?.run(),
        Command::Rehearse(options, form) => Server::rehearse(options, form),
        Command::Print(_) => Ok(()),
    }
}

fn fail(e: &dyn std::error::Error, code: ExitCode) -> ExitCode {
    error!("{}", error_chain(e));
    code
}
