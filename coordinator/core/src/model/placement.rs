//! The hosts and GPUs that were granted to an attempt.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::id::NodeName;

/// One host's part of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Grant")
)]
pub struct Placement {
    pub node: NodeName,
    /// UUIDs of the GPUs, in the order in which the step sees them.
    pub gpus: Vec<String>,
}

impl Placement {
    /// A grant of a pool without hosts: no host, and no GPU by its name.
    pub(crate) fn hostless(of_pool: &NodeName) -> Self {
        Self {
            node: of_pool.clone(),
            gpus: Vec::new(),
        }
    }
}
