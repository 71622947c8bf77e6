//! Why a step is where it is: codes with typed parameters, which the core decides with and the log keeps, and the one room
//! of the sentences about them, `messages/`.
//!
//! A sentence is made of its parameters alone, when somebody reads it: no decision makes one, no state keeps one, and a
//! sentence that is written anew changes nothing of what a log comes to.
#![no_std]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

mod messages;
mod why;

pub use messages::{HelloRefusal, NearPools};
pub use why::Why;
