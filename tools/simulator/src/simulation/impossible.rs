//! Why something cannot happen in a simulation, and what may be said at most: as much as a cluster takes, so that what is played
//! ends, and adds up.

use sluice_common::id::{NameError, NodeName, PoolName, StepId};
use sluice_common::limit::{MAX_AMOUNT, MAX_GANG_NODES};
use sluice_common::pool::ResourceTable;

use super::HostSize;

/// Why something cannot happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// No pool has this name.
    #[error("there is no pool `{0}`")]
    UnknownPool(PoolName),
    /// No host has this name.
    #[error("there is no node `{0}`")]
    UnknownNode(NodeName),
    /// A platform's name is none.
    #[error("platform: {0}")]
    BadName(NameError),
    /// Nothing of this name was submitted.
    #[error("there is no request `{0}`: submit it first")]
    UnknownRequest(StepId),
    /// A job of this name was submitted before.
    #[error("request `{0}` was submitted before: give each its own name")]
    Repeated(StepId),
    /// More than there can be.
    #[error("{what}: {amount} is more than there can be: the most is {most}")]
    TooMuch {
        what: String,
        /// What was written.
        amount: u64,
        /// What may be.
        most: u64,
    },
}

/// GPUs of one host. They are checked one by one.
const MAX_HOST_GPUS: u64 = 65_536;

/// Every amount of a table is one that can be counted.
pub(crate) fn amounts(table: &ResourceTable) -> Result<(), Impossible> {
    table
        .iter()
        .try_for_each(|(key, amount)| at_most(key.as_str(), *amount, MAX_AMOUNT))
}

/// A host is one that could be.
pub(super) fn host(size: &HostSize) -> Result<(), Impossible> {
    at_most("gpus", size.gpus, MAX_HOST_GPUS)?;
    [
        ("mcpu", size.mcpu),
        ("memory_mb", size.memory_mb),
        ("storage_mb", size.storage_mb),
    ]
    .into_iter()
    .try_for_each(|(what, amount)| at_most(what, amount.unwrap_or_default(), MAX_AMOUNT))
}

/// A gang is one that could be.
pub(crate) fn gang(nodes: u32) -> Result<(), Impossible> {
    at_most("nodes", nodes.into(), MAX_GANG_NODES.into())
}

fn at_most(what: &str, amount: u64, most: u64) -> Result<(), Impossible> {
    let what: String = what.to_string();
    match amount <= most {
        true => Ok(()),
        false => Err(Impossible::TooMuch { what, amount, most }),
    }
}
