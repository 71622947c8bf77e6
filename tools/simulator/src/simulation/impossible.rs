//! Errors of impossible events in a simulation, and the largest amounts: those of a cluster, so that a simulation
//! ends and sums do not overflow.

use sluice_common::id::{NameError, NodeName, PoolName, StepId};
use sluice_common::limit::{MAX_AMOUNT, MAX_GANG_NODES};
use sluice_common::pool::ResourceTable;

use super::HostSize;

/// The reason why an event is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// No pool has this name.
    #[error("there is no pool `{0}`")]
    UnknownPool(PoolName),
    /// No host has this name.
    #[error("there is no node `{0}`")]
    UnknownNode(NodeName),
    /// The name of a platform is invalid.
    #[error("platform: {0}")]
    BadName(NameError),
    /// No request of this name was submitted.
    #[error("there is no request `{0}`: submit it first")]
    UnknownRequest(StepId),
    /// A job of this name was submitted before.
    #[error("request `{0}` was submitted before: give each its own name")]
    Repeated(StepId),
    /// A request asks for whole GPUs and for slices.
    #[error("request `{0}` asks for whole GPUs and for slices: leave out `gpu` or `mig`")]
    TwoClasses(StepId),
    /// An amount exceeds the maximum.
    #[error("{what}: {amount} is more than there can be: the maximum is {most}")]
    TooMuch {
        what: String,
        amount: u64,
        most: u64,
    },
}

/// Most GPUs of one host, which are checked one by one.
const MAX_HOST_GPUS: u64 = 65_536;

/// Checks the amounts of a table.
pub(crate) fn amounts(table: &ResourceTable) -> Result<(), Impossible> {
    table
        .iter()
        .try_for_each(|(key, amount)| at_most(key.as_str(), *amount, MAX_AMOUNT))
}

/// Checks the size of a host.
pub(super) fn host(size: &HostSize) -> Result<(), Impossible> {
    let slices = size.mig.values().copied().fold(0, u64::saturating_add);
    at_most("gpus", size.gpus, MAX_HOST_GPUS)?;
    at_most("mig", slices, MAX_HOST_GPUS)?;
    [
        ("mcpu", size.mcpu),
        ("memory_mb", size.memory_mb),
        ("storage_mb", size.storage_mb),
    ]
    .into_iter()
    .try_for_each(|(what, amount)| at_most(what, amount.unwrap_or_default(), MAX_AMOUNT))
}

/// Checks the number of hosts of a gang.
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
