//! Attempts of a step, and their parts on hosts.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ExitView;
use crate::directory_refusal::DirectoryRefusal;
use crate::keep::KeptFiles;
use crate::probe::ProbeFailure;
use crate::usage::Usage;

/// One host's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Placement")
)]
pub struct PlacementView {
    /// Name of the host.
    pub node: String,
    /// UUIDs of the GPUs granted there.
    pub gpus: Vec<String>,
    /// Rank of the host in the gang, starting at 0.
    pub rank: u32,
    /// Why the step started there in a directory of its own and not in `prefer_workdir`, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir_refused: Option<DirectoryRefusal>,
    /// Files that the host has kept; absent if none were to be kept, before that is done, and if the host was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptFiles>,
    /// Host name or address at which other hosts reach this one, from the agent's config; absent once the step has ended
    /// there, and if the config names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Ports that the step has there, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// Whether the step runs there and is ready: its readiness probe succeeds, or it has none.
    #[serde(default)]
    pub ready: bool,
    /// The failure that the last failed probe saw, while the step is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeFailure>,
}

/// One attempt to run a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Attempt")
)]
pub struct AttemptInfo {
    /// Attempt number, starting at 1.
    pub number: u32,
    /// Hosts and GPUs of the attempt.
    pub placements: Vec<PlacementView>,
    /// Time when the attempt was granted its resources.
    pub allocated_at: Timestamp,
    /// Time when its process started.
    pub started_at: Option<Timestamp>,
    /// Time when its process ended.
    pub ended_at: Option<Timestamp>,
    /// Time when its resources were free again.
    pub released_at: Option<Timestamp>,
    /// Exit code, signal or message of the attempt.
    pub exit: Option<ExitView>,
    /// Resources used on all hosts together; absent until the attempt has ended.
    #[serde(default)]
    pub usage: Option<Usage>,
}
