//! Health of a host as reported by its own health check, and whether its supervisor answers. A host without a health
//! check reports no health.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Result of the latest health checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostHealth {
    /// The checks found no problem.
    Fit,
    /// The host must take no more work; holds the cause as a clause, such as `/scratch is read-only`.
    Unfit(String),
}

/// Whether the supervisor answers its agent. Without a supervisor nothing can start or stop on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorState {
    /// The supervisor answers.
    Responding,
    /// The supervisor has answered this agent before and does not now. Holds the cause and what to do on the host.
    Unresponsive(String),
    /// The supervisor has not answered since the agent started, so the agent does not know the host's attempts. Holds
    /// the cause and what to do on the host.
    NeverSeen(String),
}

impl SupervisorState {
    /// Why the supervisor does not answer; `None` if it does.
    pub fn unresponsive_reason(&self) -> Option<&str> {
        match self {
            Self::Responding => None,
            Self::Unresponsive(why) | Self::NeverSeen(why) => Some(why),
        }
    }
}
