//! Every sentence about where a step is. Nothing here looks at a state: what a sentence names, its parameters hold.

mod exit;
mod hello;
mod near;
mod suspension;
mod why;

pub use hello::HelloRefusal;
pub use near::NearPools;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;

/// Names in a sentence.
fn quoted<T: Display>(names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
