//! The life of every attempt on one host: starting, stopping, leases, what is reported and what was acknowledged.
//!
//! # How it is driven
//! The core does no I/O and reads no clock. Whoever owns it feeds one [`Input`] at a time through `Core::handle`, with
//! a [`Now`] that never goes back, then drains its [`Output`]s in order. An [`Output::SaveEpoch`] must be durable
//! before anything that follows it is done.
//!
//! # What it relies on
//! The supervisor keeps processes, exits and leases through any death of the agent, so the core keeps nothing on disk
//! but the highest epoch: after a restart, the supervisor's views tell what runs.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod input;
mod output;

pub use input::{Input, LinkId, Now, Settings, TimerKey};
pub use output::Output;
