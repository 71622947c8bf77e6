//! The rooms of `sluice-supervisor`, the only program of Sluice that may run as root.
//!
//! It starts attempts, signals them, holds their leases and sees them end; it knows nothing of pools, queues or the
//! network. It is one thread around one `poll`, so nothing here is ever locked and the order of effects is plain:
//! what has happened is written to the spool, then told to the agent.
//!
//! | room | what lives in it |
//! |---|---|
//! | [`server`] | the loop: descriptors in, turns out |
//! | [`options`] | the command line |
//! | [`config`] | the config file, and whether it can be trusted |
//! | [`identity`] | who steps run as |
//! | [`state_dir`] | the directory, its lock and its socket |
//! | [`connection`] | one agent's bytes |
//! | [`table`] | every attempt, and what happens to it |
//! | [`attempt`] | the phases of one attempt |
//! | [`background`] | forks that do what may take long or hang |
//! | [`hooks`] | the admin's programs around attempts |
//! | [`lease`] | deadlines |
//! | [`keeper`] | ending what a supervisor should have ended and has not |
//! | [`oom`] | whom the kernel kills first for want of memory |
//! | [`helper_program`] | the program that does what needs no root |
//! | [`gpu_move`] | how an attempt stands with what it holds on GPUs |
//! | [`spool`] | what survives the supervisor's death |
//! | [`groups`] | the control groups of attempts |
//! | [`uids`] | the user ids that attempts have of their own |
//! | [`upgrade`] | becoming a newer supervisor in the same process |
//! | [`handover`] | what is left to it |
//! | [`spawn`] | making a process of an attempt |
//! | [`notice`] | what a step is told of its stop |
//! | [`process_scan`] | whose process is this |
//! | [`output`] | what is kept of output |
//! | [`process`] | reading `/proc` |
//! | [`reap`] | children that have ended |
//! | [`seal`] | whose leases count |
//! | [`clock`] | the two clocks |
//! | [`trust`] | who else may have written what stands at a path |
//! | [`notify`] | what the init system is told |
//! | [`sys`] | the calls that need `unsafe` |
#![allow(
    missing_docs,
    reason = "fields and variants say by name what they are; comments explain the others"
)]

pub mod atomic_file;
pub mod attempt;
pub mod background;
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
