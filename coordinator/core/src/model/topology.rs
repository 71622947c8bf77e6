//! Stored topology of the cluster.

use serde::{Deserialize, Serialize};

use sluice_common::topology::TopologySpec;

/// The topology of the cluster, with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    pub terms: TopologySpec,
    /// Number of the record that set it last; 0 if none did.
    pub version: u64,
}

impl Topology {
    /// Whether none was ever set.
    pub(crate) fn is_unset(&self) -> bool {
        self.version == 0
    }
}
