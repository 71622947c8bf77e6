//! The binary `sluice-helper` does work for the supervisor in processes of their own: what needs no root, and what needs a
//! vendor's library. The supervisor starts all modes but `carve` as another user, without capabilities.
//!
//! | mode | what it does | runs as |
//! |---|---|---|
//! | `carve` | cuts a GPU into slices ([`mod@carve`]) | the supervisor's user, if its config allows it |
//! | `checkpoint` | moves what a step holds on GPUs to the host's memory and back ([`mod@checkpoint`]) | the step's user |
//! | `copy-files` | copies files to and from a caller ([`copy`]) | the step's user |
//! | `copy-output` | copies a program's output to files of its user ([`streams::output`]) | the step's user |
//! | `exec-container` | runs a program in the container of a running step ([`container`]) | the step's user |
//! | `feed-input` | passes on a step's standard input ([`streams`]) | the step's user |
//! | `find-users` | looks up the users that run steps ([`users`]) | an unused id |
//! | `hold-allocation` | holds the place of an allocation ([`hold`]) | the step's user |
//! | `keep-files` | stores files of a step's own directory after its end ([`keep`]) | the step's user |
//! | `read-config` | reads `supervisor.toml` ([`mod@config`]) | an unused id |
//! | `relay-terminal` | works a program's terminal ([`streams::terminal`]) | the step's user |
//! | `remove-left` | removes files and other objects that an attempt has left on the host ([`leftovers`]) | the attempt's user id |
//! | `run-container` | runs a step's program in a container ([`container`]) | the step's user |
//! | `show-config` | prints the effective config | an unused id |
//! | `unpack-inputs` | makes the inputs of a step in its own directory ([`unpack`]) | the step's user |
//! | `write-output` | writes the output of all steps ([`writer`]) | the last id of the reserved range |

mod carve;
mod checkpoint;
mod config;
mod container;
mod copy;
mod hold;
mod keep;
mod leftovers;
mod streams;
mod unpack;
mod users;
mod writer;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use sluice_common::error_chain::error_chain;
use sluice_common::helper::{
    CARVE, CHECKPOINT, COPY_FILES, COPY_OUTPUT, ENTER_CONTAINER, FEED_INPUT, FIND_USERS,
    HOLD_ALLOCATION, KEEP_FILES, READ_CONFIG, RELAY_TERMINAL, REMOVE_LEFTOVERS, RUN_CONTAINER,
    SHOW_CONFIG, UNPACK_INPUTS, WRITE_OUTPUT,
};

const USAGE_ERROR: u8 = 2;

const HELP: &str = "\
Does work of sluice-supervisor in processes of their own. The supervisor starts it.

Usage: sluice-helper MODE [ARGUMENTS]

Modes:
  carve           cut a GPU that nothing uses into slices: [--library FILE] [--held UUID,...]
                  GPU-UUID whole|none|PROFILE,...
  checkpoint      move what processes hold on GPUs: [--library FILE] [--tool FILE] [--lock-timeout-ms N]
                  probe|suspend|resume|undo PID...
  copy-files      copy files to and from a caller, for the supervisor alone
  copy-output     copy a program's output to files, for the supervisor alone
  exec-container  run a program in the container of a running step, for the supervisor alone
  feed-input      pass on the input of a step, for the supervisor alone
  find-users      look up who steps run as, for the supervisor alone
  hold-allocation hold the place of an allocation, for the supervisor alone
  keep-files      store files of a step after its end, for the supervisor alone
  read-config     read the supervisor's config, for the supervisor alone
  relay-terminal  work the terminal of a program, for the supervisor alone
  remove-left     remove what an attempt has left on the host, for the supervisor alone
  run-container   run a step's program in a container, for the supervisor alone
  show-config     print the supervisor's config, for the supervisor alone
  unpack-inputs   make the inputs of a step in its directory, for the supervisor alone
  write-output    write the output of steps; standard input is a socket of the supervisor

Options:
  -h, --help      print this
  -V, --version   print the version

`sluice-helper checkpoint probe PID...` tells whether the memory that processes hold on GPUs can be moved on this host.
";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mode = args.next().unwrap_or_default();
    match mode.to_str() {
        Some(CARVE) => told(carve::run(args)),
        Some(ENTER_CONTAINER) => container::enter(args),
        Some(RUN_CONTAINER) => container::run(args),
        Some(CHECKPOINT) => told(checkpoint::command::run(args)),
        Some(COPY_FILES) => answered(copy::run()),
        Some(COPY_OUTPUT) => answered(streams::output::run(args)),
        Some(FEED_INPUT) => answered(streams::feed()),
        Some(FIND_USERS) => answered(users::find()),
        Some(HOLD_ALLOCATION) => answered(hold::run()),
        Some(KEEP_FILES) => answered(keep::run(args)),
        Some(READ_CONFIG) => answered(config::read()),
        Some(RELAY_TERMINAL) => answered(streams::terminal::run(args)),
        Some(REMOVE_LEFTOVERS) => answered(leftovers::remove()),
        Some(SHOW_CONFIG) => answered(config::show()),
        Some(UNPACK_INPUTS) => answered(unpack::run()),
        Some(WRITE_OUTPUT) => {
            writer::run();
            ExitCode::SUCCESS
        }
        Some("--help" | "-h") => print(HELP),
        Some("--version" | "-V") => {
            print(concat!("sluice-helper ", env!("CARGO_PKG_VERSION"), "\n"))
        }
        _ => {
            let _nobody_reads_it = io::stderr().write_all(HELP.as_bytes());
            ExitCode::from(USAGE_ERROR)
        }
    }
}

/// Writes no log, because the output is read by the supervisor or the admin.
fn told(done: Result<(), impl Error + 'static>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _nobody_reads_it = writeln!(io::stderr(), "error: {}", error_chain(&e));
            ExitCode::from(USAGE_ERROR)
        }
    }
}

/// The caller notices a failure because the answer ends early.
fn answered(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn print(text: &str) -> ExitCode {
    answered(io::stdout().write_all(text.as_bytes()))
}
