//! The binary `sluice-supervisor`: reads the command line, sets up the log and runs [`Server`]. Everything else is in
//! the library of the same crate.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use sluice_common::chain::chain;
use sluice_supervisor::options::{self, Command, Options};
use sluice_supervisor::server::{Server, ServerError};
use tracing::error;
use tracing_subscriber::EnvFilter;

const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    start_log();
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(options)) => match work(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => fail(&e, ExitCode::FAILURE),
        },
        Ok(Command::Print(text)) => match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(e) => fail(&e, ExitCode::from(USAGE_ERROR)),
    }
}

fn work(options: Options) -> Result<(), ServerError> {
    Server::open(options)?.run()
}

fn fail(e: &dyn std::error::Error, code: ExitCode) -> ExitCode {
    error!("{}", chain(e));
    code
}

fn start_log() {
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .with_env_var("SLUICE_LOG")
        .from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        // Whoever reads the log may be gone: that must not stop the supervisor from stopping the steps.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .init();
}
