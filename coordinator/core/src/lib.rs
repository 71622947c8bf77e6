//! The scheduling core: the whole truth about pools, queues, nodes and steps, and every decision about them.
//!
//! # How it is driven
//! The core does no I/O, reads no clock and draws nothing at random. Whoever owns it
//! 1. brings it back with [`Core::recover`] and lets it begin its epoch with [`Core::start`],
//! 2. feeds it one [`Input`] at a time through [`Core::handle`], with a time that never goes back,
//! 3. drains [`Core::outputs`] and acts on them in the order in which they come, which is always: **commit the
//!    records (all of one drain together), then send, then reply, then arm timers**. Several inputs may be handled before one drain (group commit); a reply never goes out before the
//!    records that were drained with it are durable.
//!
//! # How it changes
//! `handle` decides and emits [`Record`]s; a record changes the [`State`] through [`State::apply`] and nothing else
//! does. So a state is the fold of its records, and a restart is `apply` over a snapshot and what follows it.
//!
//! # What it does not own
//! Sessions' sockets, durability, the JSON of the API, log bytes: those are the coordinator's.
#![no_std]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attempts;
mod contact;
mod context;
mod core;
mod explain;
mod guard;
mod hosts;
mod input;
mod invariant;
mod model;
mod on;
mod output;
pub mod record;
mod recovery;
mod schedule;
mod state;
mod submit;
mod terms;
#[cfg(test)]
mod tests;
mod unenforced;
pub mod written;

pub use crate::core::Core;
pub use explain::{Awaited, Explanation, Holding, InPool, Past, Promised};
pub use hosts::report::HELD_BACK;
pub use input::{
    Bounds, Change, Input, NewJoinToken, NewStep, NodeChange, ReplyId, SessionId, Settings, Steer,
    TimerKey, Wanted, WantedPool,
};
pub use invariant::{Violation, check, check_record};
pub use model::access::{Access, AccessChange, KeptToken, Written};
pub use model::admission::{
    Admission, JoinToken, MAX_JOIN_TOKENS, NodeAccess, TokenStanding, TokenUse,
};
pub use model::cluster::{Cluster, Home};
pub use model::join::{JoinAsk, Joined};
pub use model::node::{Cordon, Drain, GpuCordon, Moves, Node};
pub use model::placement::Placement;
pub use model::pool::{Binding, Platform, Pool};
pub use model::recovery::{FrozenOnHost, LogPoint, Recovery, RecoveryEnd, RecoveryWhy, Warrant};
pub use model::step::{
    Attempt, Finished, MAX_ATTEMPTS_KEPT, Part, PartPhase, Step, Suspension, SuspensionPhase,
};
pub use model::template::{Grounds, KeptTemplate};
pub use model::validation::Validation;
pub use output::preview::{Line, Passage, Preview, Previewed, Stage, StageReport};
pub use output::{
    Answer, Applied, JoinRefusal, Outcome, Output, QueueBound, QueueFull, Refusal, Refused,
    Submitted, Terms, Use,
};
pub use record::{About, ClockJump, JoinTokenMade, Record, Stamped};
pub use state::book::Book;
pub use state::{Misfit, Mismatch, State};
pub use submit::effective_spec::MergedStep;
pub use unenforced::Enforcement;

/// Whether hosts count a resource key, so that what there is of it is what they have.
pub fn counted_by_hosts(key: &str) -> bool {
    sluice_scheduler::HOST_KEYS.contains(&key)
}
