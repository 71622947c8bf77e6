//! Decides what happens to every attempt on one host: start, stop, suspend, leases, and what is reported to the
//! coordinator.
//!
//! # Driving the core
//! The core does no I/O and reads no clock. Its driver feeds one [`Input`] at a time to [`Core::handle`], with a [`Now`]
//! that never goes back, then drains [`Core::outputs`] and performs them in order. An [`Output::SaveEpoch`] must be
//! durable before the outputs that follow it are performed.
//!
//! # Assumptions
//! The supervisor keeps processes, exits and leases while the agent is dead, so the core stores only the highest epoch
//! and GPU states: after a restart, the supervisor's views show what runs. No coordinator is greeted before the
//! supervisor has answered once, because a hello without the running attempts would report them as gone.
//!
//! # Guarantees
//! - An order takes effect only on the newest connection, after its welcome, under the highest epoch that the host
//!   has seen of one cluster. Any other order breaks the connection, so that the coordinator does not wait for it.
//! - An attempt is started only under a lease that has not expired, counted from messages of the agent that the
//!   coordinator has acknowledged.
//! - `Released` is reported when the supervisor has no process of the attempt, or does not know it, and each
//!   of its GPUs was seen free after that, or was reported as not to be granted.
//! - A stopping attempt is killed when its grace has passed, repeatedly until the supervisor reports it as gone.
//! - No port is given to two attempts that the host has not forgotten.
//! - Losing the coordinator stops nothing; the lease does that.
//!
//! [`check`] checks the invariants of the state.
#![no_std]
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]
#![deny(clippy::wildcard_enum_match_arm)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attempt;
mod carving;
mod core;
mod endpoint;
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
pub use endpoint::{MetricTarget, ProbeCheck, StoredEndpoint};
pub use gpus::{GpuHolders, StoredGpu, StoredGpus};
pub use input::{
    GpuHealth, GpuObservation, GpuScan, Input, InputsFailure, LinkId, Now, ProbeOutcome,
    ReloadedSettings, Settings, TimerKey,
};
pub use invariant::{Violation, check};
pub use output::Output;
pub use processors::{Processor, Topology};
pub use suspend::DEFAULT_MOVE_LIMIT;
