//! Why a step is where it is: codes with typed parameters, which the core decides with and the log keeps, and the one room
//! of the sentences about them, `messages/`.
//!
//! A sentence is made of its parameters alone, when somebody reads it: no decision about a step makes one, no step keeps
//! one, and a sentence that is written anew changes nothing of what a log comes to. What is recorded of hosts that were not
//! let in, or closed by the coordinator, is a text like those of admins (`messages/recorded.rs`).
#![no_std]
#![allow(
    missing_docs,
    reason = "a field says by its name what it is; where it does not, it has a comment"
)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod check;
pub mod messages;
pub mod rejection;
pub mod standing;
mod why;

pub use check::Check;
pub use messages::{
    HelloRefusal, InUse, JoinRefusal, QueueBound, QueueFull, Refusal, Shrunk, SimilarPools,
    Unenforced, Use,
};
pub use rejection::{Exclusion, Rejection};
pub use standing::{StepReason, Wait};
pub use why::Cause;
