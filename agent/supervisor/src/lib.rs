//! The supervisor, the only program of Sluice that may run as root.
//!
//! It starts attempts, signals them, enforces their leases and reaps them; it knows no pools, queues or network. One
//! thread runs one `poll` loop, so no locks are needed and the order of effects is fixed: an event is written to the
//! spool before the agent is told.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | the loop: one `poll`, one turn for each wakeup |
//! | [`options`] | the command line |
//! | [`config`] | the config file, and whether it can be trusted |
//! | [`identity`] | the users that run steps |
//! | [`state_dir`] | the directory, its lock and its socket |
//! | [`connection`] | one agent's connection |
//! | [`table`] | all attempts, and what happens to them |
//! | [`attempt`] | state of one attempt |
//! | [`background`] | forks for slow work |
//! | [`hooks`] | the admin's prolog, epilog and health check |
//! | [`lease`] | deadlines |
//! | [`keeper`] | the process that enforces leases if the supervisor does not |
//! | [`oom`] | scores for the kernel's out-of-memory killer |
//! | [`helper_program`] | starting `sluice-helper` |
//! | [`gpu_move`] | state of an attempt's GPU memory while it is suspended |
//! | [`spool`] | records on disk, which survive the supervisor |
//! | [`groups`] | the control groups of attempts |
//! | [`uids`] | user ids for attempts |
//! | [`upgrade`] | upgrade in place, by `exec` |
//! | [`handover`] | state passed to the upgraded program |
//! | [`spawn`] | starting the processes of an attempt |
//! | [`notice`] | the file that tells a step of its stop |
//! | [`process_scan`] | finding the attempt that a process belongs to |
//! | [`output`] | output files and their removal |
//! | [`process`] | reading `/proc` |
//! | [`reap`] | collecting ended children |
//! | [`seal`] | verifying signed leases |
//! | [`clock`] | the two clocks |
//! | [`trust`] | checking who can write a file |
//! | [`notify`] | notifying the init system |
//! | [`sys`] | the calls that need `unsafe` |
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]

pub mod atomic_file;
pub mod attempt;
pub mod background;
mod carving;
pub mod clock;
pub mod config;
pub mod connection;
#[cfg(test)]
mod fuzz;
pub mod gpu_move;
pub mod groups;
pub mod handover;
pub mod helper_program;
pub mod hooks;
pub mod identity;
pub mod keeper;
pub mod lease;
mod lock;
pub mod notice;
pub mod notify;
pub mod oom;
pub mod options;
pub mod output;
pub mod process;
pub mod process_scan;
pub mod reap;
pub mod seal;
pub mod server;
pub mod spawn;
pub mod spool;
pub mod state_dir;
pub mod storage;
pub mod sys;
pub mod table;
pub mod trust;
pub mod uids;
pub mod upgrade;
