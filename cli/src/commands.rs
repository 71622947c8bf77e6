//! The commands, one file each. Each takes the parsed arguments, makes calls, and returns an exit code.

pub(crate) mod access;
pub(crate) mod allocate;
pub(crate) mod apply;
pub(crate) mod bench;
pub(crate) mod change_many;
mod changes;
pub(crate) mod context;
pub(crate) mod cordon;
pub(crate) mod cp;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod detect;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod elsewhere;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod label;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod move_nodes;
pub(crate) mod move_steps;
pub(crate) mod open;
pub(crate) mod preview;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod selection;
pub(crate) mod services;
pub(crate) mod step_action;
pub(crate) mod submit;
pub(crate) mod token;
pub(crate) mod wait;

use std::path::PathBuf;

use crate::client::outage_note;
use crate::failure::Failure;
use crate::{signals, terminal};

/// Checks that this process has a terminal for a program.
fn check_terminal() -> Result<(), Failure> {
    match terminal::is_there() {
        true => Ok(()),
        false => Err(Failure::Usage(terminal::NO_TERMINAL.to_owned())),
    }
}

/// Passes the signals that end this process to `deliver`, until it returns `false`.
fn hear_ending(deliver: impl FnMut(i32) -> bool + Send + 'static) -> Result<(), Failure> {
    let heard = signals::forward(&signals::ending(), deliver);
    heard.map_err(|e| Failure::Failed(format!("cannot listen for signals: {e}")))
}

/// Returns the path of another Sluice program beside this one.
fn sibling(program: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(program);
    path.exists().then_some(path)
}
