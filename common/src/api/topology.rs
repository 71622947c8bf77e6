//! The topology of the cluster as the API shows it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::topology::TopologyLevel;

/// Levels into which the hosts of the cluster are divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Topology")
)]
pub struct TopologyView {
    /// Levels, the widest first; empty if the cluster has no topology.
    #[serde(default)]
    pub levels: Vec<TopologyLevel>,
    /// Domains of the levels that hosts are in, by path.
    #[serde(default)]
    pub domains: Vec<DomainView>,
    /// Version of the topology, incremented by every change; 0 if never set. Also in `ETag` and `If-Match`.
    #[serde(default)]
    pub version: u64,
}

/// Domain of a level, with its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Domain")
)]
pub struct DomainView {
    /// Level of the domain.
    pub level: String,
    /// Values of the levels from the widest to this one, joined by `/`.
    pub path: String,
    /// Number of nodes in the domain.
    pub nodes: u64,
    /// Number of GPUs and slices of these nodes.
    pub gpus: u64,
}
