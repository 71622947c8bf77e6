//! Every sentence about the state of a step. A sentence depends on its parameters alone, never on the scheduling
//! state.

mod check;
mod exit;
pub mod explanation;
mod hello;
mod join;
mod near;
pub mod recorded;
mod refusal;
mod rejection;
mod slices;
mod standing;
mod suspension;
mod unenforced;
mod wait;
mod why;

pub use hello::HelloRefusal;
pub use join::JoinRefusal;
pub use near::SimilarPools;
pub use refusal::{InUse, QueueBound, QueueFull, Refusal, Shrunk, Use};
pub use unenforced::{Uncounted, Unenforced};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;

use sluice_common::dependency::ExpectedEnd;
use sluice_common::id::PoolName;

/// Shortens a list to the first `most` names and the number of the others.
pub fn shortened(mut names: Vec<String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    names.truncate(most);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Adds to an amount that a step did not ask for itself whose default it is.
pub(crate) fn with_source(amount: String, by_default: Option<&PoolName>) -> String {
    match by_default {
        Some(pool) => format!("{amount} (default of pool `{pool}`)"),
        None => amount,
    }
}

/// Words for the end that a dependency asks for, after the name of the step.
pub(crate) fn has_ended(end: ExpectedEnd) -> &'static str {
    match end {
        ExpectedEnd::Ok => "has succeeded",
        ExpectedEnd::Any => "has ended",
        ExpectedEnd::Failed => "has failed",
    }
}

/// Quotes names for a sentence.
pub fn quoted<T: Display>(names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
