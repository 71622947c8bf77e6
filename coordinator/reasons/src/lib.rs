//! Reasons: codes with typed parameters, with which the core decides and which the log keeps, and all sentences about
//! them in `messages/`.
//!
//! A sentence is made of its parameters alone, when it is read: no decision makes one and no step keeps one, so
//! rewriting a sentence changes nothing in a log. Only what is recorded about hosts that were refused or cordoned by
//! the coordinator is stored as text (`messages/recorded.rs`).
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
