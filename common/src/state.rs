//! The states of steps and nodes.
//!
//! ```text
//! queued -> allocated -> starting -> running -> succeeded | failed | cancelled
//!   |            |           |          |
//!   |            +-----------+----------+--> stopping -> queued | cancelled | failed | preempted
//!   |                                   +--> suspending -> suspended -> resuming -> running
//!   +--> cancelled        rejected: from the start
//! ```

use core::fmt;

use serde::{Deserialize, Serialize};

/// Where a step is in its life. A step is in exactly one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It waits for units.
    Queued,
    /// It holds units; its host has not said that it works on it.
    Allocated,
    /// Its host makes its process.
    Starting,
    /// Its process runs.
    Running,
    /// Its process is being frozen and its GPUs emptied.
    Suspending,
    /// Its process is frozen; it waits for its own GPUs.
    Suspended,
    /// Its process is being brought back.
    Resuming,
    /// It was told to stop; the reason says why.
    Stopping,
    /// It exited with code 0.
    Succeeded,
    /// It exited otherwise, could not be started, or was given up.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It could never have been granted.
    Rejected,
    /// It gave way and may not be tried again.
    Preempted,
}

impl StepState {
    /// Every state there is, in the order of a life.
    pub const ALL: [StepState; 13] = [
        StepState::Queued,
        StepState::Allocated,
        StepState::Starting,
        StepState::Running,
        StepState::Suspending,
        StepState::Suspended,
        StepState::Resuming,
        StepState::Stopping,
        StepState::Succeeded,
        StepState::Failed,
        StepState::Cancelled,
        StepState::Rejected,
        StepState::Preempted,
    ];

    /// The state as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepState::Queued => "queued",
            StepState::Allocated => "allocated",
            StepState::Starting => "starting",
            StepState::Running => "running",
            StepState::Suspending => "suspending",
            StepState::Suspended => "suspended",
            StepState::Resuming => "resuming",
            StepState::Stopping => "stopping",
            StepState::Succeeded => "succeeded",
            StepState::Failed => "failed",
            StepState::Cancelled => "cancelled",
            StepState::Rejected => "rejected",
            StepState::Preempted => "preempted",
        }
    }

    /// Whether a step in this state stays in it for ever.
    pub const fn is_terminal(self) -> bool {
        match self {
            StepState::Succeeded
            | StepState::Failed
            | StepState::Cancelled
            | StepState::Rejected
            | StepState::Preempted => true,
            StepState::Queued
            | StepState::Allocated
            | StepState::Starting
            | StepState::Running
            | StepState::Suspending
            | StepState::Suspended
            | StepState::Resuming
            | StepState::Stopping => false,
        }
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a node stands with the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is linked and heard: it gets work.
    Ready,
    /// It came back and still holds attempts that the coordinator has ended: none of its units are given until they
    /// are gone.
    Reconciling,
    /// Its agent is heard, and has no supervisor: it keeps what it has and gets no new work.
    Unsupervised,
    /// It is silent or its link is down: it keeps what it has and gets no new work.
    Unreachable,
    /// It was silent for so long that its steps were started elsewhere.
    Lost,
}

impl NodeState {
    /// Every state there is, the best first.
    pub const ALL: [NodeState; 5] = [
        NodeState::Ready,
        NodeState::Reconciling,
        NodeState::Unsupervised,
        NodeState::Unreachable,
        NodeState::Lost,
    ];

    /// The state as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeState::Ready => "ready",
            NodeState::Reconciling => "reconciling",
            NodeState::Unsupervised => "unsupervised",
            NodeState::Unreachable => "unreachable",
            NodeState::Lost => "lost",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
