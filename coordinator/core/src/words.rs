//! Parts of sentences that several rooms need.

use crate::model::pool::Pool;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{PlatformName, PoolName, StepId};
use sluice_common::inventory::Capability;
use sluice_common::nearest::nearest;

/// The first `most` of some names, and how many more there are.
pub(crate) fn shortened(mut names: Vec<String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    names.truncate(most);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Why an attempt never began whose order did not arrive while it was valid.
pub(crate) const ORDER_RAN_OUT: &str = "the order to start it did not arrive in time";

/// What a host lacks that its pool requires.
pub(crate) fn lacks(capabilities: &BTreeSet<Capability>) -> String {
    let names: Vec<&str> = capabilities.iter().map(|it| it.as_str()).collect();
    let noun = if names.len() == 1 {
        "capability"
    } else {
        "capabilities"
    };
    format!("lacks {noun} {}, which the pool requires", names.join(", "))
}

/// Why a host is closed that could not start a step.
pub(crate) fn closed_for(step: &StepId, sentence: &str) -> String {
    format!("closed by itself, because step `{step}` could not be started: {sentence}")
}

/// Names in a sentence.
pub(crate) fn quoted(names: &[PlatformName]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// `, did you mean ...` or, where no name is near, the names there are.
pub(crate) fn did_you_mean(pools: &BTreeMap<PoolName, Pool>, pool: &PoolName) -> String {
    let names = pools.keys().map(PoolName::as_str);
    match nearest(pool.as_str(), names.clone()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => format!(" among `{}`", names.collect::<Vec<_>>().join("`, `")),
    }
}

pub(crate) fn listed(names: &[PlatformName]) -> String {
    let names: Vec<&str> = names.iter().map(PlatformName::as_str).collect();
    names.join(",")
}
