//! Reasons: codes with typed parameters that the core decides with and the log stores, and all sentences about them
//! in `messages/`.
//!
//! A sentence is made from its parameters when it is read. Decisions and steps hold no sentences, so rewriting one
//! changes nothing in a log. Only reasons about hosts that the coordinator refused or cordoned are stored as text
//! (`messages/recorded.rs`).
#![no_std]
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
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
    Uncounted, Unenforced, Use,
};
pub use rejection::{Exclusion, Rejection};
pub use standing::{StepReason, Wait};
pub use why::Cause;
