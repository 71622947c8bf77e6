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

/// State of a step. A step is in exactly one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// The step waits for resources.
    Queued,
    /// The step holds resources; its host has not confirmed the start yet.
    Allocated,
    /// The host is creating the step's process.
    Starting,
    /// The step's process runs.
    Running,
    /// The step's processes are being frozen and its GPUs emptied.
    Suspending,
    /// The step's processes are frozen; it waits to get its own GPUs back.
    Suspended,
    /// The step's processes are being restored.
    Resuming,
    /// The step is being stopped, for the given reason.
    Stopping,
    /// The step exited with code 0.
    Succeeded,
    /// The step exited with another code, could not be started, or was given up.
    Failed,
    /// The step was cancelled by a user.
    Cancelled,
    /// The step could never be granted its resources.
    Rejected,
    /// The step was preempted and is not tried again.
    Preempted,
}

impl StepState {
    /// All states in the order of a step's life.
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

    /// Whether a step never leaves this state.
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

/// State of a node as seen by the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node is connected and gets work.
    Ready,
    /// The node has reconnected and still holds attempts that the coordinator has ended. Its resources are not granted
    /// until they are gone.
    Reconciling,
    /// The agent is connected but its supervisor does not answer. The node keeps its steps and gets no new work.
    Unsupervised,
    /// The node is silent or disconnected. It keeps its steps and gets no new work.
    Unreachable,
    /// The node was silent for so long that its steps were started elsewhere.
    Lost,
}

impl NodeState {
    /// All states, best first.
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
