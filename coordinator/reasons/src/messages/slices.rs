//! Amounts of GPUs in sentences about steps that ask for slices: by number, because slices of one profile are never
//! granted in part.

use alloc::format;
use alloc::string::{String, ToString};

use sluice_common::amount::MGPU;
use sluice_common::mig::MigProfile;
use sluice_common::quantity::{figure, quantity};

/// Number of slices of a profile that an amount covers; `None` if it is of another resource, or no slices are asked for.
fn number(key: &str, amount: u64, profile: Option<&MigProfile>) -> Option<u64> {
    let profile = profile.filter(|_| key == MGPU)?;
    Some(amount / profile.mgpu())
}

/// Formats a requested amount: `4 cores`, ``3 slices `1g.10gb` (0.426 gpu)``.
pub(super) fn requested(key: &str, amount: u64, profile: Option<&MigProfile>) -> String {
    let quantity = quantity(key, amount);
    match (number(key, amount, profile), profile) {
        (Some(n), Some(profile)) => {
            format!("{} `{profile}` ({quantity})", counted(n, "slice"))
        }
        (..) => quantity,
    }
}

/// Formats the amount that hosts have: `2.5`, for slices their number.
pub(super) fn available(key: &str, amount: u64, profile: Option<&MigProfile>) -> String {
    number(key, amount, profile).map_or_else(|| figure(key, amount), |n| n.to_string())
}

/// Formats the amount that a policy allows, and for slices the number for which it is enough.
pub(super) fn allowed(key: &str, amount: u64, profile: Option<&MigProfile>) -> (String, String) {
    match number(key, amount, profile) {
        None => (figure(key, amount), String::new()),
        Some(0) => (quantity(key, amount), String::from(", enough for none")),
        Some(n) => (quantity(key, amount), format!(", enough for {n}")),
    }
}

/// Formats a number of things.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
