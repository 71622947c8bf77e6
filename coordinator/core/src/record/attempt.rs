//! Records of attempts.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::keep::KeptFiles;
use sluice_common::port::PortName;
use sluice_common::probe::ProbeFailure;
use sluice_common::time::Span;
use sluice_common::wire;
use sluice_common::wire::{AttemptEnd, StopReason, SuspendFailure};

use crate::model::placement::Placement;
use crate::model::recovery::{FrozenOnHost, Warrant};

/// Resources were granted to a new attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Allocated {
    pub attempt: AttemptId,
    /// The pool that granted them.
    pub pool: PoolName,
    pub placements: Vec<Placement>,
    /// Queued steps that were passed over for this grant and may preempt it.
    #[serde(default)]
    pub backfill: BTreeSet<StepId>,
    /// The port at which the parts of a gang meet, on the host of rank 0.
    #[serde(default)]
    pub port: Option<u16>,
}

/// An attempt's process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Started {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub process: wire::StartedProcess,
}

/// A host has given an attempt its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PortsAllocated {
    pub attempt: AttemptId,
    pub node: NodeName,
    /// Ports of the host by name.
    pub ports: BTreeMap<PortName, u16>,
}

/// An attempt has become ready on a host or is no longer ready there, or its probe fails in another way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ReadinessChanged {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub ready: bool,
    /// The failure that a probe saw, if it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProbeFailure>,
}

/// An attempt is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Stopping {
    pub attempt: AttemptId,
    pub why: StopReason,
    /// The step that preempts it, if one does.
    #[serde(default)]
    pub by: Option<StepId>,
    /// Grace of this stop, if the caller set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Whether it is preempted by priority, and not by reclaim.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub by_priority: bool,
    /// Whether it is stopped because the allocation ends inside which it runs.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub with_allocation: bool,
}

impl Stopping {
    /// A stop that makes room for no other step, with the step's own grace.
    pub(crate) fn because(attempt: AttemptId, why: StopReason) -> Self {
        Self {
            attempt,
            why,
            by: None,
            grace: None,
            by_priority: false,
            with_allocation: false,
        }
    }
}

/// An attempt's process has ended; its resources are not free yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Ended {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub end: AttemptEnd,
}

/// An attempt's resources on a host are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Released {
    pub attempt: AttemptId,
    pub node: NodeName,
    /// Files that the host has kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Box<KeptFiles>>,
}

/// An attempt is being frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Suspending {
    pub attempt: AttemptId,
    /// The step that preempts it; `None` if a caller suspended it.
    pub by: Option<StepId>,
    /// Host memory that is held for what will be moved from its GPUs.
    pub room_mb: u64,
}

/// An attempt is frozen: all that it held except its memory is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Suspended {
    pub attempt: AttemptId,
    pub node: NodeName,
    /// Memory that was moved from its GPUs to the host, which it holds too.
    pub moved_mb: u64,
}

/// An attempt could not be frozen or resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NotSuspended {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub why: SuspendFailure,
}

/// An attempt that runs or ran on a host and was not known here was adopted, with its step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Adopted {
    pub attempt: AttemptId,
    /// The host that showed its warrant.
    pub node: NodeName,
    #[serde(serialize_with = "Warrant::without_values")]
    pub warrant: Box<Warrant>,
    /// The process and the moved memory, if it is frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FrozenOnHost>,
}
