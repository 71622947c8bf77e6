//! The life of every attempt on one host: starting, stopping, leases, what is reported and what was acknowledged.
//!
//! # How it is driven
//! The core does no I/O and reads no clock. Whoever owns it feeds one [`Input`] at a time through [`Core::handle`],
//! with a [`Now`] that never goes back, then drains [`Core::outputs`] and does them in order. An
//! [`Output::SaveEpoch`] must be durable before anything that follows it is done.
//!
//! # What it relies on
//! The supervisor keeps processes, exits and leases through any death of the agent, so the core keeps nothing on disk
//! but the highest epoch: after a restart, the supervisor's views tell what runs. Until the supervisor has answered
//! once, no coordinator is greeted: a hello without the attempts that run would say that they are gone.
//!
//! # What it promises
//! - An order takes effect only on the newest connection, after its welcome, under the highest epoch that the host
//!   has seen of one cluster. Any other breaks the connection, so that nobody waits for what was not done.
//! - An attempt is started only under a lease that has not passed, counted from words of the agent that the
//!   coordinator has answered.
//! - `Released` is reported when the supervisor says that nothing of the attempt is left, or does not know it, and each
//!   of its GPUs was seen free after that, or the coordinator was told that it is not to be granted.
//! - What is to stop is killed when its grace has passed, and again until the supervisor says that it is gone.
//! - Losing the coordinator stops nothing; that is what the lease is for.
//!
//! [`check`] holds the invariants of the state itself.
#![no_std]
#![allow(
    missing_docs,
    reason = "a field says by its name what it is; where it does not, it has a comment"
)]
#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attempt;
mod core;
mod environment;
mod gpus;
mod input;
mod invariant;
mod link;
mod notice;
mod on;
mod output;
mod processors;
mod spawn;
mod stop;
mod suspend;
mod waiting;

pub use crate::core::Core;
pub use gpus::{Holders, KeptGpu, KeptGpus};
pub use input::{GpuHealth, GpuLook, Input, LinkId, Now, Seen, Settings, TimerKey, Tuning};
pub use invariant::{Violation, check};
pub use output::Output;
pub use processors::{Processor, Topology};
pub use suspend::DEFAULT_MOVE_LIMIT;
