//! The topology of the cluster: levels such as zone and rack, which divide hosts into domains by their labels.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::id::LevelName;
use crate::label::LabelKey;

/// Most levels of a topology.
pub const MAX_LEVELS: usize = 8;

/// Topology of the cluster. By default it has no levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TopologyTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct TopologySpec {
    /// Levels, the widest first: each divides the domains of the one before.
    pub levels: Vec<TopologyLevel>,
}

/// Level of a topology. Hosts with equal labels of this level and of all wider ones are in one domain; a host without
/// one of these labels is in no domain of the level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TopologyLevel {
    /// Name by which steps ask for the level, such as `rack`.
    pub name: LevelName,
    /// Key of a label or of a fact of nodes, such as `example.com/rack` or `sluice/nvlink-domain`.
    pub label: LabelKey,
}

/// Request of a step on several hosts to run within one domain of a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DomainRequest {
    /// Level of the domain.
    pub level: LevelName,
    /// Whether the step waits until one domain has room; else it takes hosts of several.
    pub required: bool,
}

impl TopologySpec {
    /// Whether it has no levels.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}
